"""Pure twin of the ``json_parse`` kernel."""

from __future__ import annotations

import json
from typing import Any


def loads(text: Any, start: int = 0) -> Any:
    """Return what the JSON in ``text`` from the character ``start`` on says, just as ``json.loads`` does.

    Raises what ``json.loads`` raises: ValueError for text that is not JSON,
    TypeError for what is neither text nor bytes, RecursionError.
    """
    return json.loads(text[start:] if start else text)
