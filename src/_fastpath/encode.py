"""From what callers give to the row that is bound: the dispatcher of the ``encode`` kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._encode_py import COLUMNS, MARKER
from ._mode import NO_EXTENSIONS, fall_back

__all__ = [
    "COLUMNS",
    "MARKER",
    "count_tool_calls",
    "decode_content",
    "encode_content",
    "encode_json_column",
    "encode_message",
    "encode_messages",
]

if TYPE_CHECKING or NO_EXTENSIONS:
    from ._encode_py import (
        count_tool_calls,
        decode_content,
        encode_content,
        encode_json_column,
        encode_message,
        encode_messages,
    )
else:
    try:
        from ._encode_c import (
            count_tool_calls,
            decode_content,
            encode_content,
            encode_json_column,
            encode_message,
            encode_messages,
        )
    except ImportError as error:
        fall_back("encode", error)
        from ._encode_py import (
            count_tool_calls,
            decode_content,
            encode_content,
            encode_json_column,
            encode_message,
            encode_messages,
        )
