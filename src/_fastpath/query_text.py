"""The user's query text as tokens, as groups of terms, and as an FTS5 query string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _mode

if TYPE_CHECKING or _mode.NO_EXTENSIONS:
    from ._query_text_py import MAX_QUERY_CHARS, MAX_TERMS, groups, match_string, sanitize, tokenize
else:
    try:
        from ._query_text_c import MAX_QUERY_CHARS, MAX_TERMS, groups, match_string, sanitize, tokenize
    except ImportError as error:
        _mode.fall_back("query_text", error)
        from ._query_text_py import MAX_QUERY_CHARS, MAX_TERMS, groups, match_string, sanitize, tokenize

__all__ = ["MAX_QUERY_CHARS", "MAX_TERMS", "groups", "match_string", "sanitize", "tokenize"]
