"""Compiled twin of the ``json_parse`` kernel.

A parser of what the store writes: an exact str of valid JSON whose integers
have at most 18 digits, nested at most 200 levels deep. Whatever is not that -
broken text, NaN, long numbers, other types - is left to the pure twin as a
whole, so the values and the errors are those of ``json.loads``.
"""

from _unicode cimport (
    Py_UCS2, PyUnicode_CheckExact, PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND, has_special,
)
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_Append
from cpython.long cimport PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from hermes_state._fastpath._json_parse_py import loads as _pure_loads
from hermes_state._fastpath._json_text_py import MAX_DEPTH as _MAX_DEPTH

__all__ = ["NOT_READ", "attempt", "loads"]

cdef extern from "Python.h":
    object PyUnicode_FromKindAndData(int kind, const void* text, Py_ssize_t size)
    double PyOS_string_to_double(const char* text, char** end, void* overflow) except? -1.0

ctypedef unsigned char uchar

ctypedef fused character:
    uchar
    Py_UCS2
    uint32_t

cdef enum:
    FIRST = 1024  # code points on the stack before the heap is asked
    KEYS = 256  # slots for keys met before
    KEY_LENGTH = 32  # characters of the longest key that is kept
    DIGITS = 18  # of an integer that fits in 64 bits whatever they are
    FLOAT_LENGTH = 40  # characters of the longest float that is read here

cdef int DEEPEST = _MAX_DEPTH
cdef object LEFT = object()
NOT_READ = LEFT  # what ``attempt`` returns for text that is left to the pure twin
cdef list known_keys = [None] * KEYS


cdef struct Cursor:
    Py_ssize_t at
    Py_ssize_t size
    uint32_t* scratch  # code points of a string with escapes
    Py_ssize_t room
    uint32_t* first  # where the scratch begins, on the stack; never freed


cdef int grow(Cursor* cursor) except -1:
    cdef Py_ssize_t room = cursor.room * 2
    cdef uint32_t* scratch
    if cursor.scratch == cursor.first:
        scratch = <uint32_t*>PyMem_Malloc(room * sizeof(uint32_t))
        if scratch != NULL:
            memcpy(scratch, cursor.scratch, cursor.room * sizeof(uint32_t))
    else:
        scratch = <uint32_t*>PyMem_Realloc(cursor.scratch, room * sizeof(uint32_t))
    if scratch == NULL:
        raise MemoryError
    cursor.scratch = scratch
    cursor.room = room
    return 0


cdef inline void skip_space(const character* text, Cursor* cursor) noexcept:
    while cursor.at < cursor.size and (
        text[cursor.at] == 0x20 or text[cursor.at] == 0x0A or text[cursor.at] == 0x0D or text[cursor.at] == 0x09
    ):
        cursor.at += 1


cdef inline Py_ssize_t plain_end(const character* text, Py_ssize_t at, Py_ssize_t size) noexcept:
    """Where the run of characters that stand for themselves ends."""
    if character is uchar:
        while at + 8 <= size and not has_special(<const char*>text + at):
            at += 8
    while at < size and text[at] >= 0x20 and text[at] != 0x22 and text[at] != 0x5C:
        at += 1
    return at


cdef object key_of(const character* text, Py_ssize_t size):
    """A key as a str; short ones of ASCII come from a table, with their hash."""
    cdef uint32_t slot = <uint32_t>size
    cdef Py_ssize_t i
    cdef void* data
    if size > KEY_LENGTH:
        return PyUnicode_FromKindAndData(sizeof(character), text, size)
    for i in range(size):
        if text[i] > 0x7F:
            return PyUnicode_FromKindAndData(sizeof(character), text, size)
        slot = slot * 31 + text[i]
    slot = (slot ^ slot >> 8) % KEYS
    known = known_keys[slot]
    if known is not None and PyUnicode_GET_LENGTH(known) == size:
        data = PyUnicode_DATA(known)
        for i in range(size):
            if (<unsigned char*>data)[i] != text[i]:
                break
        else:
            return known
    known = PyUnicode_FromKindAndData(sizeof(character), text, size)
    known_keys[slot] = known
    return known


cdef object string_at(const character* text, Cursor* cursor, bint is_key):
    """The string whose opening quote is just before the cursor."""
    cdef Py_ssize_t start = cursor.at
    cdef Py_ssize_t end = plain_end(text, start, cursor.size)
    if end >= cursor.size or text[end] < 0x20:
        return LEFT
    if text[end] == 0x5C:
        return escaped_string(text, cursor, end)
    cursor.at = end + 1
    if is_key:
        return key_of(text + start, end - start)
    return PyUnicode_FromKindAndData(sizeof(character), text + start, end - start)


cdef object escaped_string(const character* text, Cursor* cursor, Py_ssize_t at):
    """The same for a string with an escape, the first at ``at``."""
    cdef Py_ssize_t i, used = 0
    cdef int point
    for i in range(cursor.at, at):
        if used == cursor.room:
            grow(cursor)
        cursor.scratch[used] = text[i]
        used += 1
    cursor.at = at
    while cursor.at < cursor.size:
        if used == cursor.room:
            grow(cursor)
        point = text[cursor.at]
        cursor.at += 1
        if point == 0x22:
            return PyUnicode_FromKindAndData(4, cursor.scratch, used)
        if point < 0x20:
            return LEFT
        if point == 0x5C:
            point = escape_at(text, cursor)
            if point < 0:
                return LEFT
        cursor.scratch[used] = point
        used += 1
    return LEFT


cdef int escape_at(const character* text, Cursor* cursor) noexcept:
    """The code point of the escape whose backslash is just before the cursor, or -1."""
    cdef uint32_t letter
    cdef int point, low
    if cursor.at >= cursor.size:
        return -1
    letter = text[cursor.at]
    cursor.at += 1
    if letter == 0x22 or letter == 0x5C or letter == 0x2F:
        return letter
    if letter == c"n":
        return 0x0A
    if letter == c"t":
        return 0x09
    if letter == c"r":
        return 0x0D
    if letter == c"b":
        return 0x08
    if letter == c"f":
        return 0x0C
    if letter != c"u":
        return -1
    point = four_digits(text, cursor.at, cursor.size)
    cursor.at += 4
    if point >> 10 == 0x36 and cursor.at + 6 <= cursor.size and text[cursor.at] == 0x5C:
        if text[cursor.at + 1] == c"u":
            low = four_digits(text, cursor.at + 2, cursor.size)
            if low >> 10 == 0x37:
                cursor.at += 6
                return 0x10000 + ((point & 0x3FF) << 10) + (low & 0x3FF)
    return point


cdef int four_digits(const character* text, Py_ssize_t at, Py_ssize_t size) noexcept:
    """The value of four hexadecimal digits, or -1."""
    cdef int value = 0
    cdef Py_ssize_t i
    if at + 4 > size:
        return -1
    for i in range(at, at + 4):
        if c"0" <= text[i] <= c"9":
            value = value << 4 | <int>text[i] - c"0"
        elif c"a" <= text[i] <= c"f":
            value = value << 4 | <int>text[i] - c"a" + 10
        elif c"A" <= text[i] <= c"F":
            value = value << 4 | <int>text[i] - c"A" + 10
        else:
            return -1
    return value


cdef inline bint is_digit(uint32_t unit) noexcept:
    return 0x30 <= unit <= 0x39


cdef object number_at(const character* text, Cursor* cursor):
    cdef Py_ssize_t start = cursor.at, at = start
    cdef bint negative = text[at] == 0x2D
    cdef long long value = 0
    if negative:
        at += 1
        start += 1
    while at < cursor.size and is_digit(text[at]):
        if at - start == DIGITS:
            return LEFT
        value = value * 10 + (text[at] - 0x30)
        at += 1
    if at == start or (text[start] == 0x30 and at - start > 1):
        return LEFT
    if at < cursor.size and (text[at] == 0x2E or text[at] == 0x65 or text[at] == 0x45):
        return float_at(text, cursor, at)
    cursor.at = at
    return PyLong_FromLongLong(-value if negative else value)


cdef object float_at(const character* text, Cursor* cursor, Py_ssize_t at):
    """The float at the cursor, whose fraction or exponent begins at ``at``."""
    cdef char[FLOAT_LENGTH + 1] digits
    cdef Py_ssize_t i, start
    if text[at] == 0x2E:
        start = at + 1
        at = start
        while at < cursor.size and is_digit(text[at]):
            at += 1
        if at == start:
            return LEFT
    if at < cursor.size and (text[at] == 0x65 or text[at] == 0x45):
        at += 1
        if at < cursor.size and (text[at] == 0x2B or text[at] == 0x2D):
            at += 1
        start = at
        while at < cursor.size and is_digit(text[at]):
            at += 1
        if at == start:
            return LEFT
    if at - cursor.at > FLOAT_LENGTH:
        return LEFT
    for i in range(cursor.at, at):
        digits[i - cursor.at] = <char>text[i]
    digits[at - cursor.at] = 0
    cursor.at = at
    return PyOS_string_to_double(digits, NULL, NULL)


cdef object word_at(const character* text, Cursor* cursor, const char* word, Py_ssize_t size, object value):
    cdef Py_ssize_t i
    if cursor.at + size > cursor.size:
        return LEFT
    for i in range(size):
        if text[cursor.at + i] != <unsigned char>word[i]:
            return LEFT
    cursor.at += size
    return value


cdef object list_at(const character* text, Cursor* cursor, int depth):
    cdef list items = []
    skip_space(text, cursor)
    if cursor.at < cursor.size and text[cursor.at] == 0x5D:
        cursor.at += 1
        return items
    while True:
        value = value_at(text, cursor, depth)
        if value is LEFT:
            return LEFT
        PyList_Append(items, value)
        skip_space(text, cursor)
        if cursor.at >= cursor.size:
            return LEFT
        cursor.at += 1
        if text[cursor.at - 1] == 0x5D:
            return items
        if text[cursor.at - 1] != 0x2C:
            return LEFT


cdef object object_at(const character* text, Cursor* cursor, int depth):
    cdef dict items = {}
    skip_space(text, cursor)
    if cursor.at < cursor.size and text[cursor.at] == 0x7D:
        cursor.at += 1
        return items
    while True:
        skip_space(text, cursor)
        if cursor.at >= cursor.size or text[cursor.at] != 0x22:
            return LEFT
        cursor.at += 1
        key = string_at(text, cursor, True)
        if key is LEFT:
            return LEFT
        skip_space(text, cursor)
        if cursor.at >= cursor.size or text[cursor.at] != 0x3A:
            return LEFT
        cursor.at += 1
        value = value_at(text, cursor, depth)
        if value is LEFT:
            return LEFT
        PyDict_SetItem(items, key, value)
        skip_space(text, cursor)
        if cursor.at >= cursor.size:
            return LEFT
        cursor.at += 1
        if text[cursor.at - 1] == 0x7D:
            return items
        if text[cursor.at - 1] != 0x2C:
            return LEFT


cdef object value_at(const character* text, Cursor* cursor, int depth):
    """The value at the cursor, which then stands after it; or LEFT, and the cursor anywhere."""
    cdef uint32_t unit
    skip_space(text, cursor)
    if cursor.at >= cursor.size or depth >= DEEPEST:
        return LEFT
    unit = text[cursor.at]
    if unit == 0x22:
        cursor.at += 1
        return string_at(text, cursor, False)
    if unit == 0x7B:
        cursor.at += 1
        return object_at(text, cursor, depth + 1)
    if unit == 0x5B:
        cursor.at += 1
        return list_at(text, cursor, depth + 1)
    if unit == c"n":
        return word_at(text, cursor, "null", 4, None)
    if unit == c"t":
        return word_at(text, cursor, "true", 4, True)
    if unit == c"f":
        return word_at(text, cursor, "false", 5, False)
    if unit == 0x2D or is_digit(unit):
        return number_at(text, cursor)
    return LEFT


cdef object whole(const character* text, Cursor* cursor):
    value = value_at(text, cursor, 0)
    if value is not LEFT:
        skip_space(text, cursor)
        if cursor.at != cursor.size:
            return LEFT
    return value


cdef object parse(object text, Py_ssize_t start):
    cdef uint32_t[FIRST] first
    cdef Cursor cursor
    cdef void* data = PyUnicode_DATA(text)
    cdef int kind = PyUnicode_KIND(text)
    cursor.at = start
    cursor.size = PyUnicode_GET_LENGTH(text)
    cursor.scratch = cursor.first = &first[0]
    cursor.room = FIRST
    try:
        if kind == 1:
            return whole(<const uchar*>data, &cursor)
        if kind == 2:
            return whole(<const Py_UCS2*>data, &cursor)
        return whole(<const uint32_t*>data, &cursor)
    finally:
        if cursor.scratch != cursor.first:
            PyMem_Free(cursor.scratch)


def attempt(text, Py_ssize_t start=0):
    """For the other kernels: what ``loads`` returns, or NOT_READ where only the pure twin can tell.

    Runs no Python code and raises nothing but MemoryError. So its callers need no ``except``, of which
    Cython makes code that does not bear an exception that the interpreter has lost for want of memory.
    """
    return parse(text, start) if PyUnicode_CheckExact(text) and start >= 0 else LEFT


def loads(text, Py_ssize_t start=0):
    """See the pure twin."""
    if PyUnicode_CheckExact(text) and start >= 0:
        value = parse(text, start)
        if value is not LEFT:
            return value
    return _pure_loads(text, start)
