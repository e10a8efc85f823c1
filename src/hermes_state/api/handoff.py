"""SessionDB by subject: handing a session to another platform, Telegram topics, key/value metadata."""

from __future__ import annotations

from typing import Any

from hermes_state.api.base import Handle
from hermes_state.store import handoff, meta, telegram

Record = dict[str, Any]


class HandoffCalls(Handle):
    """Calls on the handoff columns, the two Telegram tables and ``state_meta``."""

    def get_meta(self, key: str) -> str | None:
        """The value of a ``state_meta`` key, or None."""
        return self._read(lambda conn: meta.get(conn, key), "get_meta", single=True)

    def set_meta(self, key: str, value: Any) -> None:
        """Set a ``state_meta`` key."""
        self._write(lambda conn: meta.set(conn, key, value), "set_meta")

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask for the session to go on at ``platform``; False if unknown or one is under way."""
        return self._write(lambda conn: handoff.request(conn, session_id, platform), "request_handoff")

    def get_handoff_state(self, session_id: str) -> Record | None:
        """``{"state", "platform", "error"}``, or None where no handoff was asked for."""
        return self._read(lambda conn: handoff.state(conn, session_id), "get_handoff_state", single=True)

    def list_pending_handoffs(self) -> list[Record]:
        """The sessions whose handoff waits to be claimed, oldest start first."""
        return self._read(handoff.pending, "list_pending_handoffs")

    def claim_handoff(self, session_id: str) -> bool:
        """Take a pending handoff; True for exactly one of all that try."""
        return self._write(lambda conn: handoff.claim(conn, session_id), "claim_handoff")

    def complete_handoff(self, session_id: str) -> None:
        """Mark the handoff done."""
        self._write(lambda conn: handoff.complete(conn, session_id), "complete_handoff")

    def fail_handoff(self, session_id: str, error: Any) -> None:
        """Mark the handoff failed, with the reason."""
        self._write(lambda conn: handoff.fail(conn, session_id, error), "fail_handoff")

    # -- Telegram topic mode --

    def apply_telegram_topic_migration(self) -> None:
        """Make the two Telegram tables, or bring them to their version 2."""
        self._write(telegram.apply, "apply_telegram_topic_migration")

    def enable_telegram_topic_mode(
        self,
        *,
        chat_id: Any,
        user_id: Any,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
    ) -> None:
        """Switch topic mode on for a chat, making the tables if they are missing."""
        self._write(
            lambda conn: telegram.enable(
                conn, chat_id=chat_id, user_id=user_id, has_topics_enabled=has_topics_enabled,
                allows_users_to_create_topics=allows_users_to_create_topics,
            ),
            "enable_telegram_topic_mode",
        )  # fmt: skip

    def disable_telegram_topic_mode(self, *, chat_id: Any, clear_bindings: bool = True) -> None:
        """Switch topic mode off for a chat and, by default, forget its bindings."""
        self._write(
            lambda conn: telegram.disable(conn, chat_id=chat_id, clear_bindings=clear_bindings),
            "disable_telegram_topic_mode",
        )

    def is_telegram_topic_mode_enabled(self, *, chat_id: Any, user_id: Any) -> bool:
        """True if this user switched topic mode on for the chat."""
        return self._read(
            lambda conn: telegram.is_enabled(conn, chat_id=chat_id, user_id=user_id),
            "is_telegram_topic_mode_enabled",
        )

    def bind_telegram_topic(
        self, *, chat_id: Any, thread_id: Any, user_id: Any, session_key: str, session_id: str,
        managed_mode: str = "auto",
    ) -> None:  # fmt: skip
        """Tie a topic to a session.

        Raises:
            ValueError: the session is already linked to another topic.
            UnknownSessionError: there is no such session.
        """
        self._write(
            lambda conn: telegram.bind(
                conn, chat_id=chat_id, thread_id=thread_id, user_id=user_id, session_key=session_key,
                session_id=session_id, managed_mode=managed_mode,
            ),
            "bind_telegram_topic",
        )  # fmt: skip

    def get_telegram_topic_binding(self, *, chat_id: Any, thread_id: Any) -> Record | None:
        """The topic's binding as a dict, or None."""
        return self._read(
            lambda conn: telegram.binding(conn, chat_id=chat_id, thread_id=thread_id),
            "get_telegram_topic_binding",
        )

    def get_telegram_topic_binding_by_session(self, *, session_id: str) -> Record | None:
        """The session's binding as a dict, or None."""
        return self._read(
            lambda conn: telegram.binding_by_session(conn, session_id=session_id),
            "get_telegram_topic_binding_by_session",
        )

    def list_telegram_topic_bindings_for_chat(self, *, chat_id: Any) -> list[Record]:
        """The chat's bindings, newest update first."""
        return self._read(
            lambda conn: telegram.bindings_for_chat(conn, chat_id=chat_id),
            "list_telegram_topic_bindings_for_chat",
        )

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        """True if the session is tied to a topic."""
        return self._read(
            lambda conn: telegram.is_linked(conn, session_id=session_id),
            "is_telegram_session_linked_to_topic",
        )

    def list_unlinked_telegram_sessions_for_user(
        self, *, chat_id: Any, user_id: Any, limit: int = 10
    ) -> list[Record]:
        """The user's Telegram sessions without a topic, with ``preview`` and ``last_active``."""
        return self._read(
            lambda conn: telegram.unlinked_sessions(conn, chat_id=chat_id, user_id=user_id, limit=limit),
            "list_unlinked_telegram_sessions_for_user",
        )
