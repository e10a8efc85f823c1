# The classes of every code point as one byte each, filled from scripts_tables at import. Included
# as text by the modules that need it (a table cannot be shared between extension modules without
# a call for each character); untouched pages of it cost no memory.

from libc.string cimport memset

from _unicode cimport (
    PyUnicode_CheckExact, PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_IS_ASCII, PyUnicode_KIND,
    PyUnicode_READ, Py_UCS2, has_surrogate,
)
from libc.stdint cimport uint32_t

from hermes_state._fastpath import scripts_tables as _tables

cdef extern from "Python.h":
    str PyUnicode_Substring(object text, Py_ssize_t start, Py_ssize_t end)
    Py_ssize_t PyUnicode_FindChar(object text, Py_UCS4 char, Py_ssize_t start, Py_ssize_t end, int direction)

cdef enum:
    UNSPACED = 1
    TOKEN = 2
    DIACRITIC = 4
    SENTENCE = 8

cdef enum:
    CODE_POINTS = 0x110000

cdef unsigned char CLASS[CODE_POINTS]


cdef int _classify(object ranges, int bit) except -1:
    cdef Py_ssize_t code, first, last
    for first, last in ranges:
        for code in range(first, last + 1):
            CLASS[code] |= bit
    return 0


memset(CLASS, 0, sizeof(CLASS))
_classify(_tables.UNSPACED, UNSPACED)
_classify(_tables.TOKEN, TOKEN)
_classify(_tables.DIACRITIC, DIACRITIC)
_classify(_tables.SENTENCE, SENTENCE)
