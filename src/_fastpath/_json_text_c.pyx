"""Compiled twin of the ``json_text`` kernel.

It writes what the common values hold - exact str, int, float, bool, None,
list, tuple and dict - as UTF-8 into one buffer. No Python code runs meanwhile,
and nothing is allocated that the garbage collector looks at, so no container
changes under it. At the first value of another kind it leaves the whole to
the pure twin.
"""

from _unicode cimport (
    Py_UCS2, PyUnicode_CheckExact, PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_IS_ASCII, PyUnicode_KIND,
    has_special, is_clean,
)
from cpython.dict cimport PyDict_CheckExact, PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.math cimport isfinite
from libc.stdint cimport uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strlen

from hermes_state._fastpath._json_text_py import MAX_DEPTH as _MAX_DEPTH
from hermes_state._fastpath._json_text_py import dumps as _pure_dumps
from hermes_state._fastpath._json_text_py import escape_surrogates as _escape

__all__ = ["dumps", "escape_surrogates"]

cdef extern from "Python.h":
    int Py_DTSF_ADD_DOT_0
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind) except NULL
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

cdef int DEEPEST = _MAX_DEPTH

cdef enum:
    FIRST = 4096  # bytes on the stack before the heap is asked
    CHUNK = 64  # characters for which room is reserved at once
    LONGEST = 6  # bytes that one character may become
    WRITTEN = 0
    LEFT_TO_PURE = 1


ctypedef fused character:
    unsigned char
    Py_UCS2
    uint32_t


cdef struct Buffer:
    char* data
    Py_ssize_t used
    Py_ssize_t room
    char* first  # where the buffer begins, on the stack; never freed


cdef inline int reserve(Buffer* out, Py_ssize_t more) except -1:
    return 0 if more <= out.room - out.used else grow(out, out.used + more)


cdef int grow(Buffer* out, Py_ssize_t wanted) except -1:
    cdef char* data
    wanted += wanted >> 1
    if out.data == out.first:
        data = <char*>PyMem_Malloc(wanted)
        if data != NULL:
            memcpy(data, out.data, out.used)
    else:
        data = <char*>PyMem_Realloc(out.data, wanted)
    if data == NULL:
        raise MemoryError
    out.data = data
    out.room = wanted
    return 0


cdef inline int put(Buffer* out, const char* text, Py_ssize_t size) except -1:
    reserve(out, size)
    memcpy(out.data + out.used, text, size)
    out.used += size
    return 0


cdef inline void put_escape(Buffer* out, uint32_t unit) noexcept:
    """Append ``\\uXXXX``; the caller has reserved the room."""
    cdef const char* digits = "0123456789abcdef"
    cdef char* to = out.data + out.used
    to[0] = c"\\"
    to[1] = c"u"
    to[2] = digits[unit >> 12 & 15]
    to[3] = digits[unit >> 8 & 15]
    to[4] = digits[unit >> 4 & 15]
    to[5] = digits[unit & 15]
    out.used += 6


cdef inline char short_escape(uint32_t unit) noexcept:
    """The letter after the backslash, or 0 where there is no short form."""
    if unit == c'"' or unit == c"\\":
        return <char>unit
    if unit == c"\n":
        return c"n"
    if unit == c"\r":
        return c"r"
    if unit == c"\t":
        return c"t"
    if unit == c"\b":
        return c"b"
    if unit == c"\f":
        return c"f"
    return 0


cdef inline void put_special(Buffer* out, uint32_t unit) noexcept:
    """Append an ASCII character that JSON escapes; the caller has reserved the room."""
    cdef char letter = short_escape(unit)
    if letter:
        out.data[out.used] = c"\\"
        out.data[out.used + 1] = letter
        out.used += 2
    else:
        put_escape(out, unit)


cdef inline bint is_special(uint32_t unit) noexcept:
    return unit < 0x20 or unit == c'"' or unit == c"\\"


cdef int put_ascii(Buffer* out, const char* text, Py_ssize_t length) except -1:
    cdef Py_ssize_t i = 0, end
    cdef unsigned char unit
    while i < length:
        end = min(i + CHUNK, length)
        reserve(out, (end - i) * LONGEST)
        while i < end:
            if i + 8 <= end and not has_special(text + i):
                memcpy(out.data + out.used, text + i, 8)
                out.used += 8
                i += 8
                continue
            unit = <unsigned char>text[i]
            i += 1
            if is_special(unit):
                put_special(out, unit)
            else:
                out.data[out.used] = unit
                out.used += 1
    return 0


cdef inline void put_code_point(Buffer* out, uint32_t point) noexcept:
    """Append ``point`` as UTF-8; the caller has reserved the room."""
    cdef unsigned char* to = <unsigned char*>out.data + out.used
    if point < 0x80:
        to[0] = point
        out.used += 1
    elif point < 0x800:
        to[0] = 0xC0 | point >> 6
        to[1] = 0x80 | point & 0x3F
        out.used += 2
    elif point < 0x10000:
        to[0] = 0xE0 | point >> 12
        to[1] = 0x80 | point >> 6 & 0x3F
        to[2] = 0x80 | point & 0x3F
        out.used += 3
    else:
        to[0] = 0xF0 | point >> 18
        to[1] = 0x80 | point >> 12 & 0x3F
        to[2] = 0x80 | point >> 6 & 0x3F
        to[3] = 0x80 | point & 0x3F
        out.used += 4


cdef int put_wide(Buffer* out, const character* text, Py_ssize_t length) except -1:
    cdef Py_ssize_t i = 0, end
    cdef uint32_t point, low
    while i < length:
        end = min(i + CHUNK, length)
        reserve(out, (end - i) * LONGEST)
        while i < end:
            point = text[i]
            i += 1
            if point < 0x80:
                if is_special(point):
                    put_special(out, point)
                else:
                    out.data[out.used] = <char>point
                    out.used += 1
            elif point >> 11 != 0x1B:
                put_code_point(out, point)
            else:
                low = text[i] if point < 0xDC00 and i < length else 0
                if low >> 10 == 0x37:
                    put_code_point(out, 0x10000 + ((point & 0x3FF) << 10) + (low & 0x3FF))
                    i += 1
                else:
                    put_escape(out, point)
    return 0


cdef int put_string(Buffer* out, object text) except -1:
    """Append an exact str as a JSON string."""
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    cdef void* data = PyUnicode_DATA(text)
    put(out, '"', 1)
    if PyUnicode_IS_ASCII(text):
        put_ascii(out, <const char*>data, length)
    elif PyUnicode_KIND(text) == 1:
        put_wide(out, <const unsigned char*>data, length)
    elif PyUnicode_KIND(text) == 2:
        put_wide(out, <const Py_UCS2*>data, length)
    else:
        put_wide(out, <const uint32_t*>data, length)
    put(out, '"', 1)
    return 0


cdef int put_integer(Buffer* out, object value) except -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return LEFT_TO_PURE
    reserve(out, 24)
    out.used += snprintf(out.data + out.used, 24, "%lld", number)
    return WRITTEN


cdef int put_float(Buffer* out, double number) except -1:
    cdef char* digits
    if not isfinite(number):
        put(out, "null", 4)
        return WRITTEN
    digits = PyOS_double_to_string(number, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
    try:
        put(out, digits, strlen(digits))
    finally:
        PyMem_Free(digits)
    return WRITTEN


cdef int put_items(Buffer* out, object items, bint is_list, Py_ssize_t size, int depth) except -1:
    cdef Py_ssize_t i
    if depth > DEEPEST:
        return LEFT_TO_PURE
    put(out, "[", 1)
    for i in range(size):
        if i:
            put(out, ", ", 2)
        if put_value(out, <object>(PyList_GET_ITEM(items, i) if is_list else PyTuple_GET_ITEM(items, i)), depth):
            return LEFT_TO_PURE
    put(out, "]", 1)
    return WRITTEN


cdef int put_key(Buffer* out, object key) except -1:
    if PyUnicode_CheckExact(key):
        put_string(out, key)
        return WRITTEN
    if PyLong_CheckExact(key):
        put(out, '"', 1)
        if put_integer(out, key):
            return LEFT_TO_PURE
        put(out, '"', 1)
        return WRITTEN
    return LEFT_TO_PURE


cdef int put_dict(Buffer* out, object items, int depth) except -1:
    cdef Py_ssize_t position = 0
    cdef PyObject* key
    cdef PyObject* value
    cdef bint later = False
    if depth > DEEPEST:
        return LEFT_TO_PURE
    put(out, "{", 1)
    while PyDict_Next(items, &position, &key, &value):
        if later:
            put(out, ", ", 2)
        later = True
        if put_key(out, <object>key):
            return LEFT_TO_PURE
        put(out, ": ", 2)
        if put_value(out, <object>value, depth):
            return LEFT_TO_PURE
    put(out, "}", 1)
    return WRITTEN


cdef int put_value(Buffer* out, object value, int depth) except -1:
    if PyUnicode_CheckExact(value):
        put_string(out, value)
    elif PyDict_CheckExact(value):
        return put_dict(out, value, depth + 1)
    elif PyList_CheckExact(value):
        return put_items(out, value, True, PyList_GET_SIZE(value), depth + 1)
    elif value is None:
        put(out, "null", 4)
    elif value is True:
        put(out, "true", 4)
    elif value is False:
        put(out, "false", 5)
    elif PyLong_CheckExact(value):
        return put_integer(out, value)
    elif PyFloat_CheckExact(value):
        return put_float(out, PyFloat_AS_DOUBLE(value))
    elif PyTuple_CheckExact(value):
        return put_items(out, value, False, PyTuple_GET_SIZE(value), depth + 1)
    else:
        return LEFT_TO_PURE
    return WRITTEN


def dumps(value):
    """See the pure twin."""
    cdef char[FIRST] first
    cdef Buffer out
    out.data = out.first = &first[0]
    out.used = 0
    out.room = FIRST
    try:
        if put_value(&out, value, 0) == WRITTEN:
            return PyUnicode_DecodeUTF8(out.data, out.used, NULL)
    finally:
        if out.data != out.first:
            PyMem_Free(out.data)
    return _pure_dumps(value)


def escape_surrogates(text):
    """See the pure twin, which also does it where there are any."""
    return text if is_clean(text) else _escape(text)
