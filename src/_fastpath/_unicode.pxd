# What every kernel includes: looking at the characters of an exact str without a copy. Inline only: no
# module of this name exists.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    /* Python code that raises while there is no memory for its frame may return without an exception
       (CPython 3.11 and 3.12 lose it). Cython then adds a traceback to an exception that is not there, which
       crashes; it was a MemoryError. */
    static int hs_traceback_here(PyFrameObject *frame) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return PyTraceBack_Here(frame);
    }
    #define PyTraceBack_Here hs_traceback_here
    """

cdef extern from "Python.h":
    ctypedef unsigned short Py_UCS2
    int PyUnicode_CheckExact(object)
    int PyUnicode_IS_ASCII(object)
    int PyUnicode_KIND(object)
    void* PyUnicode_DATA(object)
    uint32_t PyUnicode_READ(int kind, void* data, Py_ssize_t index)
    Py_ssize_t PyUnicode_GET_LENGTH(object)


cdef inline bint has_surrogate(str text) noexcept:
    """Whether a code unit of ``text`` cannot be UTF-8: one of U+D800 to U+DFFF, whose high bits are 0x1B.

    Texts of one byte a character have none.
    """
    cdef Py_ssize_t i, length = PyUnicode_GET_LENGTH(text)
    cdef const Py_UCS2* two
    cdef const uint32_t* four
    cdef int kind = PyUnicode_KIND(text)
    if kind == 2:
        two = <const Py_UCS2*>PyUnicode_DATA(text)
        for i in range(length):
            if two[i] >> 11 == 0x1B:
                return True
    elif kind == 4:
        four = <const uint32_t*>PyUnicode_DATA(text)
        for i in range(length):
            if four[i] >> 11 == 0x1B:
                return True
    return False


cdef inline bint is_clean(object value) noexcept:
    """Whether ``value`` is an exact str that SQLite can hold as it is."""
    return PyUnicode_CheckExact(value) and not has_surrogate(<str>value)


cdef inline bint has_special(const char* text) noexcept:
    """Whether one of eight bytes may be below 0x20, a quote or a backslash.

    x - n borrows into the high bit of every byte that is below n. Bytes above
    0x7F, and those after a borrow, may look special as well: where this says
    yes, each byte must be looked at singly.
    """
    cdef uint64_t word, quote, backslash
    memcpy(&word, text, 8)
    quote = word ^ 0x2222222222222222ULL
    backslash = word ^ 0x5C5C5C5C5C5C5C5CULL
    return (
        (
            (word - 0x2020202020202020ULL)
            | (quote - 0x0101010101010101ULL)
            | (backslash - 0x0101010101010101ULL)
        )
        & 0x8080808080808080ULL
    ) != 0
