"""Compiled twin of the ``text`` kernel."""

from _unicode cimport is_clean

from hermes_state._fastpath._text_py import clean as _mend, fallback

__all__ = ["clean", "fallback"]


def clean(value):
    """See the pure twin, which also mends what has to be mended."""
    return value if is_clean(value) else _mend(value)
