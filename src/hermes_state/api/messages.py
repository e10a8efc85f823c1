"""SessionDB by subject: messages in and out, and search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hermes_state._fastpath import encode, query_text, scripts
from hermes_state.api.limited import LimitedReads
from hermes_state.search import run as search_run
from hermes_state.search.filters import Moment
from hermes_state.store import lineage, message_writes, messages
from hermes_state.store.idempotency import KeyedRows

Record = dict[str, Any]
CHUNK_ROWS = 1000
"""Rows that are encoded at a time while a batch is stored."""


class MessageCalls(LimitedReads):
    """Calls on rows of ``messages``."""

    # -- the content format, called through ``self`` by other programs --

    @classmethod
    def _encode_content(cls, content: Any) -> str | None:
        """The text that is stored for a message's content."""
        return encode.encode_content(content)

    @classmethod
    def _decode_content(cls, content: Any) -> Any:
        """The content that a stored text stands for."""
        return encode.decode_content(content)

    def _content_encoder(self) -> Callable[[Any], Any] | None:
        """None for our own encoder; what a program put in the place of ``_encode_content`` otherwise."""
        ours = MessageCalls.__dict__["_encode_content"].__func__
        current = self._encode_content
        return None if getattr(current, "__func__", None) is ours else current

    # -- in --

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        *,
        idempotency_key: str | None = None,
    ) -> int:
        """Store one message and return its id, once it is committed.

        Args:
            content: text, a list or dict (stored as JSON and returned as such), or None.
            idempotency_key: a second append to the session with the same key stores nothing
                and returns the first one's id.

        Raises:
            UnknownSessionError: there is no such session; nothing was stored.
            TypeError, ValueError: an argument cannot be stored; nothing was.
            StoreBusyError: the write lock was not to be had in time; nothing was stored.
        """

        def row(encoder: Callable[[Any], Any] | None) -> tuple[Any, ...]:
            return encode.encode_message(
                session_id, role, content, tool_name, tool_calls, tool_call_id, token_count, finish_reason,
                reasoning, reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items,
                time.time(), encoder,
            )  # fmt: skip

        self._check_open("append_message")
        encoder = self._content_encoder()
        return self._append(lambda: [row(encoder)], encoder, idempotency_key, "append_message")[0]

    def append_messages(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> list[int]:
        """Store a batch of messages of one session, all or nothing; their ids in order.

        Args:
            messages: dicts with ``role`` and any of the columns, as ``get_messages`` gives them.
            idempotency_key: as for ``append_message``, for the whole batch.

        Raises:
            UnknownSessionError, TypeError, ValueError, StoreBusyError: as ``append_message``.
        """
        self._check_open("append_messages")
        encoder = self._content_encoder()
        if not messages:
            return []
        return self._append(
            lambda: encode.encode_messages(session_id, messages, time.time(), encoder),
            encoder,
            idempotency_key,
            "append_messages",
        )

    def _append(
        self,
        rows: Callable[[], Sequence[Any]],
        encoder: Callable[[Any], Any] | None,
        key: str | None,
        operation: str,
    ) -> list[int]:
        """Encode and store; a program's own ``_encode_content`` runs inside the transaction, as in v11."""

        def group() -> Sequence[Any]:
            return rows() if key is None else KeyedRows.of(rows(), key)

        if encoder is None:
            return self._engine.store(group(), operation)
        return self._engine.store_encoded_inside(group, operation)

    def replace_messages(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Make ``messages`` the session's whole history, all or nothing.

        An unchanged head keeps its rows and ids. Timestamps that are given are kept; missing
        ones are the present, rising by a microsecond.
        """

        def work(conn: Any) -> None:
            rows = encode.encode_messages(session_id, messages, None, self._content_encoder())
            new = message_writes.replace(conn, session_id, rows, self._engine.upkeep.forget)
            self._engine.index_inline(conn, new)

        self._write(work, "replace_messages", rows=len(messages), seconds=self._engine.message_patience)

    # -- out --

    def get_messages(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        after_id: int | None = None,
    ) -> list[Record]:
        """The session's messages in order, as dicts of all columns; content and tool_calls decoded.

        ``limit`` counts messages from the end if only ``before_id`` is given, else from the start.
        """
        return self._read(
            lambda conn: messages.get(conn, session_id, limit=limit, before_id=before_id, after_id=after_id),
            "get_messages",
            single=True,
        )

    def get_messages_as_conversation(self, session_id: str, include_ancestors: bool = False) -> list[Record]:
        """The session for replay to a model: role and content, tool calls and reasoning where set.

        With ``include_ancestors`` the parents' messages come first, root first.
        """
        return self._read(
            lambda conn: messages.conversation(
                conn, lineage.conversation_chain(conn, session_id) if include_ancestors else [session_id]
            ),
            "get_messages_as_conversation",
            single=not include_ancestors,
        )

    def get_messages_around(self, session_id: str, around_message_id: int, window: int = 5) -> Record:
        """The message and ``window`` on each side: ``{"window", "messages_before", "messages_after"}``."""
        return self._read(
            lambda conn: messages.around(conn, session_id, around_message_id, window), "get_messages_around"
        )

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Iterable[str] | None = ("user", "assistant"),
    ) -> Record:
        """Like ``get_messages_around``, with the session's first and last messages beside it."""
        return self._read(
            lambda conn: messages.anchored_view(
                conn, session_id, around_message_id, window, bookend, keep_roles
            ),
            "get_anchored_view",
        )

    def message_count(self, session_id: str | None = None) -> int:
        """How many messages there are, in one session or all."""
        return self._read(lambda conn: messages.count(conn, session_id), "message_count", single=True)

    # -- search --

    @staticmethod
    def _sanitize_fts5_query(query: str) -> str:
        """A string that FTS5 accepts and that means what the user meant."""
        return query_text.sanitize(query)

    @staticmethod
    def _contains_cjk(text: str) -> bool:
        """True if the text holds a letter of Chinese, Japanese or Korean."""
        return scripts.count_cjk(text) > 0

    def search_messages(
        self,
        query: str,
        source_filter: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
        role_filter: Iterable[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        *,
        exclude_session_id: str | None = None,
        per_session: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        match: str = "words",
        cursor: str | None = None,
        time_limit: float | None = None,
    ) -> list[Record]:
        """Messages that match the query, in any script; any text is a valid query.

        Args:
            query: words (all must be there), "phrases", AND / OR / NOT, ``prefix*``.
            source_filter: only sessions of these sources; none at all for an empty list.
            exclude_sources, role_filter: not sessions of these sources; only messages of these roles.
                An empty list filters nothing.
            limit: hits at most; -1 for all.
            offset: leave out so many of the first.
            sort: ``"newest"`` or ``"oldest"``; anything else is by relevance (bm25).
            exclude_session_id: leave this session out.
            per_session: hits of one session at most.
            since, until: only messages from that moment on, and before that one; Unix seconds or a
                datetime (one without a zone is local time).
            match: ``"words"``, or ``"substring"``: each word and phrase matches wherever its letters
                stand, inside words too (docs/search.md).
            cursor: go on behind the page that ``search_page`` gave it with.
            time_limit: seconds after which the search gives up.

        Returns:
            Dicts of ``id, session_id, role, timestamp, tool_name, snippet, context, source,
            model, session_started``.

        Raises:
            StoreInterruptedError: the time limit has passed; nothing is held.
            TypeError, ValueError: an argument other than the query's text is wrong.
        """
        return self._page(
            "search_messages", time_limit, query=query, source_filter=source_filter,
            exclude_sources=exclude_sources, role_filter=role_filter, limit=limit, offset=offset, sort=sort,
            exclude_session_id=exclude_session_id, per_session=per_session, since=since, until=until,
            match=match, cursor=cursor,
        ).hits  # fmt: skip

    def search_page(
        self,
        query: str,
        source_filter: Iterable[str] | None = None,
        exclude_sources: Iterable[str] | None = None,
        role_filter: Iterable[str] | None = None,
        limit: int = 20,
        sort: str | None = None,
        *,
        exclude_session_id: str | None = None,
        per_session: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        match: str = "words",
        cursor: str | None = None,
        time_limit: float | None = None,
    ) -> Record:
        """A page of ``search_messages`` and the cursor of the next: ``{"hits", "cursor"}``.

        ``cursor`` is None behind the last page. Given with the same query, filters and order it leads
        to what comes behind the last hit shown, whatever was stored meanwhile; the other arguments
        and the errors are those of ``search_messages``.
        """
        page = self._page(
            "search_page", time_limit, query=query, source_filter=source_filter,
            exclude_sources=exclude_sources, role_filter=role_filter, limit=limit, sort=sort,
            exclude_session_id=exclude_session_id, per_session=per_session, since=since, until=until,
            match=match, cursor=cursor,
        )  # fmt: skip
        return {"hits": page.hits, "cursor": page.cursor}

    def _page(self, operation: str, time_limit: float | None, **given: Any) -> search_run.Page:
        damage = self._engine.damage
        return self._read_within(
            lambda conn: search_run.search_page(
                conn, **given, index_usable=not damage.known, on_damage=damage.met
            ),
            operation,
            time_limit,
            indexed=True,
        )

    def explain_search(self, query: str, match: str = "words") -> str:
        """How the query is understood and which index answers each term, in words."""
        return self._read(lambda conn: search_run.explain(conn, query, match), "explain_search", indexed=True)
