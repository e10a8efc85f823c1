"""SessionDB by subject: sessions, titles, lineage, lists and token counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes_state.api.limited import LimitedReads
from hermes_state.store import lineage, listing, sessions, titles, usage

Record = dict[str, Any]


class SessionCalls(LimitedReads):
    """Calls on rows of ``sessions``. Every write is one transaction of its own."""

    MAX_TITLE_LENGTH = titles.MAX_LENGTH

    def create_session(self, session_id: str, source: str, **kwargs: Any) -> str:
        """Make a session, or fill in what a row of that id lacks; returns ``session_id``.

        Keyword arguments: ``model``, ``model_config`` (a dict), ``system_prompt``, ``user_id``,
        ``parent_session_id``. An existing row keeps what it has; only its NULL columns and a
        source of ``unknown`` are filled in.

        Raises:
            TypeError: an argument of the wrong type or name.
            UnknownSessionError: there is no session ``parent_session_id``.
        """
        return self._write(lambda conn: sessions.create(conn, session_id, source, **kwargs), "create_session")

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **kwargs: Any
    ) -> str:
        """Make the session if it is not there, like ``create_session``; returns ``session_id``."""
        return self._write(
            lambda conn: sessions.ensure(conn, session_id, source, model, **kwargs), "ensure_session"
        )

    def end_session(self, session_id: str, end_reason: str | None) -> None:
        """Mark the session ended now. The first reason wins: an ended session keeps its own."""
        self._write(lambda conn: sessions.end(conn, session_id, end_reason), "end_session")

    def reopen_session(self, session_id: str) -> None:
        """Clear the end and its reason."""
        self._write(lambda conn: sessions.reopen(conn, session_id), "reopen_session")

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Store the system prompt as it was sent."""
        self._write(
            lambda conn: sessions.update_system_prompt(conn, session_id, system_prompt),
            "update_system_prompt",
        )

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int | None = 0,
        output_tokens: int | None = 0,
        model: str | None = None,
        cache_read_tokens: int | None = 0,
        cache_write_tokens: int | None = 0,
        reasoning_tokens: int | None = 0,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        api_call_count: int | None = 0,
        absolute: bool = False,
    ) -> None:
        """Add to the session's counts (or with ``absolute`` set them); None adds nothing.

        Tokens are counts, costs US dollars. A cost that is not given is left alone. A session
        that is not there yet is made with source ``unknown``.
        """
        self._write(
            lambda conn: usage.update_token_counts(
                conn, session_id, input_tokens, output_tokens, model, cache_read_tokens, cache_write_tokens,
                reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status, cost_source,
                pricing_version, billing_provider, billing_base_url, billing_mode, api_call_count, absolute,
            ),
            "update_token_counts",
        )  # fmt: skip

    def get_session(self, session_id: str) -> Record | None:
        """The session's row as a dict of all columns, or None."""
        return self._read(lambda conn: sessions.get(conn, session_id), "get_session", single=True)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The id itself if it exists, else the one id that begins with it; None if none or several do."""
        return self._read(
            lambda conn: sessions.resolve_prefix(conn, session_id_or_prefix), "resolve_session_id"
        )

    def session_count(self, source: str | None = None) -> int:
        """How many sessions there are, of one source or all."""
        return self._read(lambda conn: sessions.count(conn, source), "session_count", single=True)

    # -- titles --

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """The title with white space folded and control characters dropped; empty is None.

        Raises:
            ValueError: it is over 100 characters long.
        """
        return titles.sanitize(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Give the session a title (None or empty takes it away); False if there is no such session.

        Raises:
            ValueError: another session has it ("already in use"), or it is too long. The ended
                ancestor of a compression continuation gives its title up instead.
        """
        return self._write(lambda conn: titles.set_title(conn, session_id, title), "set_session_title")

    def set_or_number_title(self, session_id: str, title: str) -> str:
        """Give the session the title, or the next ``title #N`` of its family; the title it got.

        One transaction: of several sessions that want the same title at once each gets its own.
        """
        return self._write(lambda conn: titles.set_or_number(conn, session_id, title), "set_or_number_title")

    def get_session_title(self, session_id: str) -> str | None:
        """The session's title, or None."""
        return self._read(lambda conn: titles.get(conn, session_id), "get_session_title", single=True)

    def get_session_by_title(self, title: str) -> Record | None:
        """The session with exactly this title, as a dict, or None."""
        return self._read(lambda conn: titles.session_by_title(conn, title), "get_session_by_title")

    def resolve_session_by_title(self, title: str) -> str | None:
        """The id of the newest of the family ``title``, ``title #2``, ...; None if there is none."""
        return self._read(lambda conn: titles.resolve(conn, title), "resolve_session_by_title")

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """The base title if it is free, else ``base #N`` with N one above the family's highest."""
        return self._read(lambda conn: titles.next_in_lineage(conn, base_title), "get_next_title_in_lineage")

    # -- lineage --

    def get_compression_tip(self, session_id: str) -> str | None:
        """The last continuation of a compressed session; the id itself where there is none."""
        return self._read(lambda conn: lineage.compression_tip(conn, session_id), "get_compression_tip")

    def get_lineage(self, session_id: str) -> list[Record]:
        """The session and its ancestors, nearest first, as session dicts."""
        return self._read(lambda conn: lineage.ancestors(conn, session_id), "get_lineage")

    def get_descendants(self, session_id: str) -> list[Record]:
        """The session and all that come from it, as session dicts."""
        return self._read(lambda conn: lineage.descendants(conn, session_id), "get_descendants")

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Where a conversation goes on: the tip, the session, or its nearest descendant with messages."""
        return self._read(lambda conn: lineage.resolve_resume(conn, session_id), "resolve_resume_session_id")

    def finalize_orphaned_compression_sessions(self) -> int:
        """End the continuations that were never used and are over 7 days old; how many."""
        return self._write(lineage.finalize_orphans, "finalize_orphaned_compression_sessions")

    # -- lists --

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Iterable[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        *,
        time_limit: float | None = None,
    ) -> list[Record]:
        """Sessions as dicts with ``preview`` and ``last_active``, newest start (or activity) first.

        A compression chain is one entry, under its tip's id, title, counts and preview, with
        ``_lineage_root_id``. Other children are left out but for branches, unless asked for.

        Raises:
            StoreInterruptedError: ``time_limit`` seconds have passed; nothing is held.
        """
        return self._read_within(
            lambda conn: listing.rich(
                conn, source, exclude_sources, limit, offset, include_children, project_compression_tips,
                order_by_last_active,
            ),
            "list_sessions_rich",
            time_limit,
        )  # fmt: skip

    def search_sessions(
        self,
        source: str | None = None,
        limit: int = 20,
        offset: int = 0,
        *,
        time_limit: float | None = None,
    ) -> list[Record]:
        """Session dicts with ``last_active``, latest activity first.

        Raises:
            StoreInterruptedError: ``time_limit`` seconds have passed; nothing is held.
        """
        return self._read_within(
            lambda conn: listing.search_sessions(conn, source, limit, offset), "search_sessions", time_limit
        )

    def recent_sessions(self, limit: int = 20) -> list[Record]:
        """The latest started sessions with ``preview`` (63 characters) and ``last_active``."""
        return self._read(lambda conn: listing.recent_with_preview(conn, limit), "recent_sessions")

    def token_usage_by_model(self) -> list[Record]:
        """Sessions, tokens and cost of each model, most expensive first."""
        return self._read(usage.by_model, "token_usage_by_model")

    def token_usage_by_source(self) -> list[Record]:
        """Sessions, messages, tokens and cost of each source."""
        return self._read(usage.by_source, "token_usage_by_source")

    def top_sessions_by_tokens(self, limit: int = 10) -> list[Record]:
        """The sessions with the most tokens."""
        return self._read(lambda conn: usage.top_sessions(conn, limit), "top_sessions_by_tokens")
