"""SessionDB: the whole public class, joined from its subjects."""

from __future__ import annotations

from hermes_state.api.handoff import HandoffCalls
from hermes_state.api.health import HealthCalls
from hermes_state.api.messages import MessageCalls
from hermes_state.api.retention import RetentionCalls
from hermes_state.api.sessions import SessionCalls
from hermes_state.api.transfer import TransferCalls
from hermes_state.schema.columns import Columns, parse_schema_columns


class SessionDB(SessionCalls, MessageCalls, RetentionCalls, TransferCalls, HandoffCalls, HealthCalls):
    """The session store of Hermes Agent: sessions, their messages, and a search over all of them.

    Safe to use from any number of threads and processes. Every handle of a
    process on the same file shares one engine. Usable as a context manager.
    """

    @staticmethod
    def _parse_schema_columns(sql: str) -> Columns:
        """Table -> column -> declaration, as ALTER TABLE takes it, of a schema script."""
        return parse_schema_columns(sql)
