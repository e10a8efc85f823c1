"""Titles: cleaning, uniqueness, and families (``base``, ``base #2``, ``base #3`` ...)."""

from __future__ import annotations

import re
from typing import Any

import apsw

from hermes_state._fastpath.text import clean
from hermes_state.store import lineage, sessions
from hermes_state.store.rows import one, rows, scalar
from hermes_state.store.values import text

MAX_LENGTH = 100
"""Characters of a title at most."""

_ZWJ = "\u200d"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffc]")

# The blocks that hold emoji (Unicode's emoji-data, Extended_Pictographic), taken
# whole: in text, a joiner that stands in one of them joins pictures.
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_STRAY_JOINER = re.compile(f"{_ZWJ}(?:(?<![{_EMOJI}]{_ZWJ})(?<![{_EMOJI}]\ufe0f{_ZWJ})|(?![{_EMOJI}]))")

_NUMBER = re.compile(r"[0-9]{1,100}", re.ASCII)
_NUMBERED = re.compile(r"(.*\S)\s+#[0-9]+", re.ASCII | re.DOTALL)

_FAMILY = "SELECT id, title FROM sessions WHERE title >= ? AND title < ?"
"""Titles that begin with ``base #``; the bounds end in ``#`` and in ``$``, the character after it."""


def sanitize(title: str | None) -> str | None:
    """``title`` as it is stored, or None if nothing of it is left.

    Control, invisible and direction-changing characters go, except a zero-width
    joiner between two emoji; white space is folded to single spaces.

    Raises:
        TypeError: not a str.
        ValueError: "Title too long (N chars, max 100)".
    """
    cleaned = _fold(title)
    if cleaned is not None and len(cleaned) > MAX_LENGTH:
        raise ValueError(f"Title too long ({len(cleaned)} chars, max {MAX_LENGTH})")
    return cleaned


def set_title(conn: apsw.Connection, session_id: str, title: str | None) -> bool:
    """Give the session its title; None or an empty one takes it away. False if there is no such session.

    A session that continues a compressed one may take that one's title: the
    ancestor loses it.

    Raises:
        ValueError: too long, or in use by another session.
    """
    wanted = sanitize(title)
    if not sessions.exists(conn, session_id):
        return False
    if wanted is not None:
        holder = _holder(conn, wanted, session_id)
        if holder is not None:
            if not _gives_up(conn, holder, session_id):
                raise ValueError(f"Title '{wanted}' is already in use by session {holder}")
            conn.execute("UPDATE sessions SET title = NULL WHERE id = ?", (holder,))
    conn.execute("UPDATE sessions SET title = ? WHERE id = ?", (wanted, text(session_id, "session_id")))
    return True


def set_or_number(conn: apsw.Connection, session_id: str, title: str) -> str:
    """Give the session ``title``, or the next free ``title #N`` when another holds it; returns what it got.

    A session that has a number in that family already keeps it, so a repeated
    call changes nothing.

    Raises:
        LookupError: there is no such session.
        ValueError: the title is empty or too long.
    """
    wanted = sanitize(title)
    if wanted is None:
        raise ValueError("Title is empty")
    if not sessions.exists(conn, session_id):
        raise LookupError(f"There is no session {session_id!r}")
    holder = _holder(conn, wanted, session_id)
    if holder is not None and not _gives_up(conn, holder, session_id):
        own = get(conn, session_id)
        if own is not None and _number(own, wanted):
            return own
        wanted = next_in_lineage(conn, wanted)
    set_title(conn, session_id, wanted)
    return wanted


def get(conn: apsw.Connection, session_id: str) -> str | None:
    """The session's title; None if it has none or there is no such session."""
    key = text(session_id, "session_id")
    title: str | None = scalar(conn, "SELECT title FROM sessions WHERE id = ?", (key,))
    return title


def session_by_title(conn: apsw.Connection, title: str) -> dict[str, Any] | None:
    """All columns of the session of exactly this title, or None."""
    return one(conn, "SELECT * FROM sessions WHERE title = ?", (text(title, "title"),))


def resolve(conn: apsw.Connection, title: str) -> str | None:
    """Id of the session with the highest number in the family of ``title``, else of that title, or None."""
    wanted = text(title, "title")
    if not wanted:
        return None
    numbered = [(_number(found, wanted), session_id) for session_id, found in _family(conn, wanted)]
    best = max((pair for pair in numbered if pair[0]), default=None)
    if best is not None:
        return best[1]
    exact: str | None = scalar(conn, "SELECT id FROM sessions WHERE title = ?", (wanted,))
    return exact


def next_in_lineage(conn: apsw.Connection, base_title: str) -> str:
    """The first free title of a family: the base itself, else ``base #<highest + 1>``.

    A ``#<digits>`` at the end of ``base_title`` is no part of the base. The base is cut
    where the result would be longer than 100 characters.
    """
    base = _fold(base_title) or ""
    numbered = _NUMBERED.fullmatch(base)
    base = _cut(numbered.group(1) if numbered else base, MAX_LENGTH)
    highest = _highest(conn, base)
    if not highest:
        return base
    number = highest + 1
    while True:
        end = f" #{number}"
        stem = _cut(base, MAX_LENGTH - len(end))
        # A base that had to be cut shares the family of its stem.
        if stem == base or (taken := _highest(conn, stem)) < number:
            return stem + end
        number = taken + 1


def _fold(title: str | None) -> str | None:
    if title is None:
        return None
    if not isinstance(title, str):
        raise TypeError(f"title must be a str or None, not {type(title).__name__}")
    visible = _INVISIBLE.sub("", _CONTROL.sub("", clean(title)))
    if _ZWJ in visible:
        visible = _STRAY_JOINER.sub("", visible)
    return " ".join(visible.split()) or None


def _cut(title: str, length: int) -> str:
    """At most ``length`` characters of ``title``, with no space or joiner left at the end of a cut."""
    return title if len(title) <= length else title[:length].rstrip(f" {_ZWJ}")


def _holder(conn: apsw.Connection, title: str, session_id: str) -> str | None:
    """The other session that has ``title``."""
    sql = "SELECT id FROM sessions WHERE title = ? AND id <> ?"
    found: str | None = scalar(conn, sql, (title, text(session_id, "session_id")))
    return found


def _gives_up(conn: apsw.Connection, holder: str, session_id: str) -> bool:
    return lineage.continues(conn, session_id, holder)


def _family(conn: apsw.Connection, base: str) -> list[tuple[str, str]]:
    """(id, title) of every title that begins with ``base #``."""
    return [(row[0], row[1]) for row in rows(conn, _FAMILY, (f"{base} #", f"{base} $"))[1]]


def _number(title: str, base: str) -> int:
    """N if ``title`` is ``base #N``, else 0."""
    if not (isinstance(title, str) and title.startswith(f"{base} #")):
        return 0
    digits = title[len(base) + 2 :]
    return int(digits) if _NUMBER.fullmatch(digits) else 0


def _highest(conn: apsw.Connection, base: str) -> int:
    """The highest number of the family; 1 if only the base itself is there, 0 if nothing is."""
    highest = max((_number(title, base) for _, title in _family(conn, base)), default=0)
    if highest:
        return highest
    return 1 if scalar(conn, "SELECT 1 FROM sessions WHERE title = ?", (base,)) else 0
