"""The files that other programs keep beside the store, one name a session."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import apsw

from hermes_state.store.rows import column
from hermes_state.store.values import json_list

_DUMP_PREFIX = "request_dump_"
_DUMP_SUFFIX = ".json"
_NO_NAMES = frozenset({"", ".", ".."})

_LONGER = """\
SELECT DISTINCT s.id FROM json_each(?) e
JOIN sessions s ON s.id >= e.value || '_' AND s.id < e.value || '`'
"""  # the backquote is the character after the underscore


def longer_ids(conn: apsw.Connection, ids: Iterable[str]) -> set[str]:
    """The sessions whose id begins with one of ``ids`` and an underscore: ``kept`` of ``remove_files``."""
    return set(column(conn, _LONGER, (json_list(ids),)))


def remove_files(
    sessions_dir: str | os.PathLike[str] | None, ids: Iterable[str], kept: Collection[str] = ()
) -> int:
    """Remove ``<id>.json``, ``<id>.jsonl`` and ``request_dump_<id>_*.json`` of deleted sessions.

    Only entries of ``sessions_dir`` itself are touched: an id that could be a path
    names no file, and no character of it is a pattern. A dump goes by the longest
    session id that it may belong to, so that of session ``a_b`` outlives session
    ``a`` as long as ``a_b`` is in ``kept``. Files that cannot be removed are left.

    Returns how many were removed.
    """
    owners = {session_id for session_id in ids if _is_name(session_id)}
    if sessions_dir is None or not owners:
        return 0
    folder = Path(sessions_dir)
    names = [session_id + suffix for session_id in sorted(owners) for suffix in (".json", ".jsonl")]
    names += [name for name in _entries(folder) if _is_dump_of(name, owners, kept)]
    return sum(_removed(folder / name) for name in names)


def _is_name(session_id: str) -> bool:
    """True if ``session_id`` can be part of a file name and of nothing more than that."""
    if not isinstance(session_id, str) or session_id in _NO_NAMES:
        return False
    return not any(character in session_id for character in "/\\:\x00")


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        # No such folder, or no right to read it: then there is nothing of ours to remove.
        return []


def _is_dump_of(name: str, owners: Collection[str], kept: Collection[str]) -> bool:
    if not (name.startswith(_DUMP_PREFIX) and name.endswith(_DUMP_SUFFIX)):
        return False
    stem = name[len(_DUMP_PREFIX) : -len(_DUMP_SUFFIX)]
    while "_" in stem:
        stem = stem.rpartition("_")[0]
        if stem in kept or stem in owners:
            return stem not in kept
    return False


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except (OSError, ValueError):
        # Missing, a folder, in use, or a name this system does not take: the session is gone all the same.
        return False
    return True
