"""Compiled twin of the searchable kernel."""

include "_scripts_class.pxd"

from cpython.mem cimport PyMem_Free, PyMem_Malloc

from hermes_state._fastpath._json_parse_c import NOT_READ, attempt
from hermes_state._fastpath._searchable_py import MAX_INDEXED_CHARS
from hermes_state._fastpath._searchable_py import _structured as _pure_structured

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    str PyUnicode_FromKindAndData(int kind, const void* data, Py_ssize_t size)
    bint PyUnicode_Tailmatch(object text, object part, Py_ssize_t start, Py_ssize_t end, int direction) except -1

cdef Py_ssize_t CAP = MAX_INDEXED_CHARS
cdef str MARKER = "\x00json:"
cdef str ESCAPE = "\\u"
cdef Py_ssize_t URI_HEAD = 200


cdef inline bint _has(str text, Py_UCS4 char) noexcept:
    return PyUnicode_FindChar(text, char, 0, PyUnicode_GET_LENGTH(text), 1) >= 0


cdef inline bint _open_end(str text, Py_ssize_t last) noexcept:
    """Whether an unspaced letter stands among the ``last`` characters of ``text``."""
    cdef Py_ssize_t i, size = PyUnicode_GET_LENGTH(text)
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    for i in range(max(0, size - last), size):
        if CLASS[PyUnicode_READ(kind, data, i)] & UNSPACED:
            return True
    return False


cdef enum:
    BLOCK = 256


ctypedef fused Units:
    const Py_UCS2
    const uint32_t


cdef inline bint _any_unstorable(Units* units, Py_ssize_t size) noexcept nogil:
    """Whether a NUL or a surrogate is there, asked a block at a time without a branch inside."""
    cdef Py_ssize_t start = 0, end, i
    cdef unsigned int found
    while start < size:
        end = min(start + BLOCK, size)
        found = 0
        for i in range(start, end):
            found |= (units[i] >> 11 == 0x1B) | (units[i] == 0)
        if found:
            return True
        start = end
    return False


cdef bint _unstorable(str text) noexcept:
    """Whether a NUL or a surrogate stands in ``text``."""
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    if kind == 2:
        return _any_unstorable(<const Py_UCS2*>data, PyUnicode_GET_LENGTH(text))
    if kind == 4:
        return _any_unstorable(<const uint32_t*>data, PyUnicode_GET_LENGTH(text))
    return _has(text, 0)


cdef str _column(object value):
    if isinstance(value, str):
        return _exact(value)
    if value is None:
        return ""
    if isinstance(value, bytes):
        return bytes.decode(value, "utf-8", "replace")
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    raise TypeError(f"a stored column is None, str, bytes, int or float, not {type(value).__name__}")


cdef inline int _hex(uint32_t char) noexcept nogil:
    if 48 <= char <= 57:
        return char - 48
    char |= 32
    return char - 87 if 97 <= char <= 102 else -1


cdef Py_ssize_t _escape_at(int kind, void* data, Py_ssize_t size, Py_ssize_t at, uint32_t* code) noexcept:
    """Read backslashes, u and four hexadecimal digits at ``at``; where they end, or -1."""
    cdef Py_ssize_t i = at
    cdef int digit
    while i < size and PyUnicode_READ(kind, data, i) == 92:
        i += 1
    if i == at or i + 5 > size or PyUnicode_READ(kind, data, i) != 117:
        return -1
    code[0] = 0
    for i in range(i + 1, i + 5):
        digit = _hex(PyUnicode_READ(kind, data, i))
        if digit < 0:
            return -1
        code[0] = code[0] * 16 + digit
    return i + 1


cdef str _unescaped(str text):
    """Escapes as characters; what stays escaped: see ``_unescaped`` of the pure twin."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text), at = 0, done = 0, end, second
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef uint32_t code = 0, low = 0
    cdef uint32_t* out = NULL
    if size <= PY_SSIZE_T_MAX // <Py_ssize_t>sizeof(uint32_t):
        out = <uint32_t*>PyMem_Malloc(size * sizeof(uint32_t))
    if out == NULL:
        raise MemoryError
    try:
        while at < size:
            end = -1
            if PyUnicode_READ(kind, data, at) == 92:
                end = _escape_at(kind, data, size, at, &code)
                if end < 0:  # the whole run of backslashes stays; an escape begins with a run only
                    while at < size and PyUnicode_READ(kind, data, at) == 92:
                        out[done] = 92
                        done += 1
                        at += 1
                    continue
            if end < 0:
                out[done] = PyUnicode_READ(kind, data, at)
                done += 1
                at += 1
                continue
            if 0xD800 <= code <= 0xDBFF:
                second = _escape_at(kind, data, size, end, &low)
                if second > 0 and 0xDC00 <= low <= 0xDFFF:
                    out[done] = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    done += 1
                    at = second
                    continue
            if code < 0x20 or code == 0x22 or code == 0x5C or code == 0x7F or 0xD800 <= code <= 0xDFFF:
                while at < end:
                    out[done] = PyUnicode_READ(kind, data, at)
                    done += 1
                    at += 1
                continue
            out[done] = code
            done += 1
            at = end
        return PyUnicode_FromKindAndData(4, out, done)
    finally:
        PyMem_Free(out)


cdef str _structured(str body):
    value = attempt(body, len(MARKER))
    return _pure_structured(body) if value is NOT_READ else "\n".join(parts(value))


def text(content, tool_name, tool_calls):
    """See the pure twin."""
    cdef str body = _column(content), name = _column(tool_name), calls = _column(tool_calls)
    cdef str joined
    if PyUnicode_Tailmatch(body, MARKER, 0, len(MARKER), -1):
        body = _structured(body)
    if ESCAPE in calls:
        calls = _unescaped(calls)
    joined = f"{body} {name} {calls}"
    if PyUnicode_GET_LENGTH(joined) > CAP:
        joined = PyUnicode_Substring(joined, 0, CAP)
    if _unstorable(joined):
        joined = joined.replace("\x00", " ")
        joined = joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined + "  " if _open_end(joined, 2) else joined


cdef inline Py_ssize_t _plain_size(object column) except -2:
    """Characters of a column that is NULL or text without NUL, else -1."""
    cdef Py_ssize_t size
    if column is None:
        return 0
    if not isinstance(column, str):
        return -1
    size = PyUnicode_GET_LENGTH(column)
    return size if PyUnicode_FindChar(column, 0, 0, size, 1) < 0 else -1


def is_plain(content, tool_name, tool_calls):
    """See the pure twin."""
    cdef Py_ssize_t body = _plain_size(content)
    cdef Py_ssize_t name = _plain_size(tool_name) if body >= 0 else -1
    cdef Py_ssize_t calls = _plain_size(tool_calls) if name >= 0 else -1
    if calls < 0 or body + name + calls + 2 > CAP:
        return False
    if calls:
        return ESCAPE not in <str>tool_calls and not _open_end(<str>tool_calls, 2)
    return name == 0 or not _open_end(<str>tool_name, 1)


def parts(value):
    """See the pure twin."""
    cdef list out = [], waiting = [value]
    cdef set met = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            _add_part(out, _exact(item))
        elif isinstance(item, list):
            if _is_new(met, item):
                waiting.extend(list.__reversed__(item))
        elif isinstance(item, dict):
            if _is_new(met, item):
                waiting.append((<dict>item).get("content"))
                own = (<dict>item).get("text")
                waiting.append((<dict>own).get("value") if isinstance(own, dict) else own)
    return out


cdef inline str _exact(object text):
    return <str>text if PyUnicode_CheckExact(text) else PyUnicode_Substring(text, 0, PyUnicode_GET_LENGTH(text))


cdef int _add_part(list out, str part) except -1:
    if part and not (part.startswith("data:") and ";base64," in part[:URI_HEAD]):
        out.append(part)
    return 0


cdef bint _is_new(set met, object container) except -1:
    cdef object address = <size_t><void*>container
    if address in met:
        return False
    met.add(address)
    return True
