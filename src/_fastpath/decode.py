"""From stored rows to the dicts that callers get: the dispatcher of the ``decode`` kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._decode_py import CONVERSATION_COLUMNS
from ._mode import NO_EXTENSIONS, fall_back

__all__ = ["CONVERSATION_COLUMNS", "rows_to_conversation", "rows_to_messages", "strip_memory"]

if TYPE_CHECKING or NO_EXTENSIONS:
    from ._decode_py import rows_to_conversation, rows_to_messages, strip_memory
else:
    try:
        from ._decode_c import rows_to_conversation, rows_to_messages, strip_memory
    except ImportError as error:
        fall_back("decode", error)
        from ._decode_py import rows_to_conversation, rows_to_messages, strip_memory
