"""Tokens and costs: adding them up in a session, and the totals over sessions."""

from __future__ import annotations

import time
from typing import Any

import apsw

from hermes_state.store.rows import dicts
from hermes_state.store.sessions import UNKNOWN_SOURCE
from hermes_state.store.values import bound, cost, count, required_text, text

# ?1 id, ?2-?7 counts, ?8 model, ?9 and ?10 costs, ?11-?13 how the cost is known (the newest
# word counts), ?14-?16 whom is billed (the first word stays), ?17 absolute.
_UPDATE = """\
UPDATE sessions SET
    input_tokens       = ?2 + CASE WHEN ?17 THEN 0 ELSE COALESCE(input_tokens, 0) END,
    output_tokens      = ?3 + CASE WHEN ?17 THEN 0 ELSE COALESCE(output_tokens, 0) END,
    cache_read_tokens  = ?4 + CASE WHEN ?17 THEN 0 ELSE COALESCE(cache_read_tokens, 0) END,
    cache_write_tokens = ?5 + CASE WHEN ?17 THEN 0 ELSE COALESCE(cache_write_tokens, 0) END,
    reasoning_tokens   = ?6 + CASE WHEN ?17 THEN 0 ELSE COALESCE(reasoning_tokens, 0) END,
    api_call_count     = ?7 + CASE WHEN ?17 THEN 0 ELSE COALESCE(api_call_count, 0) END,
    model              = COALESCE(model, ?8),
    estimated_cost_usd = CASE WHEN ?17 THEN COALESCE(?9, estimated_cost_usd)
                              ELSE COALESCE(estimated_cost_usd, 0) + COALESCE(?9, 0) END,
    actual_cost_usd    = CASE WHEN ?10 IS NULL THEN actual_cost_usd
                              WHEN ?17 THEN ?10
                              ELSE COALESCE(actual_cost_usd, 0) + ?10 END,
    cost_status        = COALESCE(?11, cost_status),
    cost_source        = COALESCE(?12, cost_source),
    pricing_version    = COALESCE(?13, pricing_version),
    billing_provider   = COALESCE(billing_provider, ?14),
    billing_base_url   = COALESCE(billing_base_url, ?15),
    billing_mode       = COALESCE(billing_mode, ?16)
WHERE id = ?1
"""

_TOTALS = """\
COUNT(*) AS session_count,
CAST(TOTAL(input_tokens) AS INTEGER) AS total_input,
CAST(TOTAL(output_tokens) AS INTEGER) AS total_output,
SUM(estimated_cost_usd) AS total_cost"""
# TOTAL() and not SUM(): SUM() raises where integers overflow, and gives NULL where all are NULL.

_BY_MODEL = f"""\
SELECT model, {_TOTALS} FROM sessions WHERE model IS NOT NULL
GROUP BY model ORDER BY total_cost DESC, total_input DESC, model
"""  # noqa: S608 -- constant SQL

_BY_SOURCE = f"""\
SELECT source, {_TOTALS}, CAST(TOTAL(message_count) AS INTEGER) AS total_messages
FROM sessions GROUP BY source ORDER BY session_count DESC, source
"""  # noqa: S608 -- constant SQL


def update_token_counts(
    conn: apsw.Connection,
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
    """Add to the session's counters, or set them when ``absolute``; NULL counters count as 0.

    A cost that is not given changes nothing when ``absolute``. Costs are US
    dollars. A session that does not exist yet is made, with source ``unknown``.

    Raises:
        TypeError: a count is not a whole number, a cost not a number; nothing was written.
        OverflowError: a count does not fit in 64 bits.
        ValueError: a cost is infinite.
    """
    key = required_text(session_id, "session_id")
    values = (
        key,
        count(input_tokens, "input_tokens"),
        count(output_tokens, "output_tokens"),
        count(cache_read_tokens, "cache_read_tokens"),
        count(cache_write_tokens, "cache_write_tokens"),
        count(reasoning_tokens, "reasoning_tokens"),
        count(api_call_count, "api_call_count"),
        text(model, "model"),
        cost(estimated_cost_usd, "estimated_cost_usd"),
        cost(actual_cost_usd, "actual_cost_usd"),
        text(cost_status, "cost_status"),
        text(cost_source, "cost_source"),
        text(pricing_version, "pricing_version"),
        text(billing_provider, "billing_provider"),
        text(billing_base_url, "billing_base_url"),
        text(billing_mode, "billing_mode"),
        bool(absolute),
    )
    conn.execute(_UPDATE, values)
    if not conn.changes():
        conn.execute(
            "INSERT INTO sessions(id, source, started_at) VALUES (?, ?, ?)",
            (key, UNKNOWN_SOURCE, time.time()),
        )
        conn.execute(_UPDATE, values)


def by_model(conn: apsw.Connection) -> list[dict[str, Any]]:
    """The document's query "total tokens by model", dearest first.

    Rows of ``model, session_count, total_input, total_output, total_cost``;
    ``total_cost`` is None where no session of the model has a cost.
    """
    return dicts(conn, _BY_MODEL)


def by_source(conn: apsw.Connection) -> list[dict[str, Any]]:
    """The same totals by source, most sessions first.

    Rows of ``source, session_count, total_input, total_output, total_cost, total_messages``.
    """
    return dicts(conn, _BY_SOURCE)


def top_sessions(conn: apsw.Connection, limit: int = 10) -> list[dict[str, Any]]:
    """The document's query "sessions with highest token usage".

    Rows of ``id, title, model, total_tokens, estimated_cost_usd``; NULL counters count as 0.
    """
    return dicts(
        conn,
        "SELECT id, title, model, COALESCE(input_tokens, 0) + COALESCE(output_tokens, 0) AS total_tokens, "
        "estimated_cost_usd FROM sessions ORDER BY total_tokens DESC, started_at DESC, id LIMIT ?",
        (bound(limit),),
    )
