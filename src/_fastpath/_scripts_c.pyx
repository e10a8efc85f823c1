"""Compiled twin of the scripts kernel: one table look-up a character."""

include "_scripts_class.pxd"

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void PyUnicode_WRITE(int kind, void* data, Py_ssize_t index, Py_UCS4 value)

ctypedef fused Units:
    const Py_UCS2
    const uint32_t

cdef enum:
    PLACEHOLDER = 0xE000
    PLACEHOLDER_SIZE = 3  # with the spaces around it


cdef inline bint _wide(object text) except -1:
    """Whether ``text`` can hold unspaced letters at all; TypeError for what is no str."""
    if not isinstance(text, str):
        raise TypeError(f"text must be str, not {type(text).__name__}")
    return PyUnicode_KIND(text) != 1


cdef enum:
    BLOCK = 64


cdef inline bint _any(Units* units, Py_ssize_t size) noexcept nogil:
    """Whether an unspaced letter is there.

    A block is first tried as a whole against the rough ranges in which such letters lie (which leave out
    general punctuation and emoji): that loop has no branch, so the compiler makes vector instructions of it.
    """
    cdef Py_ssize_t start = 0, i, end
    cdef uint32_t unit
    cdef unsigned int rough
    while start < size:
        end = min(start + BLOCK, size)
        rough = 0
        for i in range(start, end):
            unit = units[i]
            rough |= (unit - <uint32_t>0xE00 < <uint32_t>0xD80) | ((unit >= <uint32_t>0x2E80) & (unit - <uint32_t>0x1F300 >= <uint32_t>0xD00))
        if rough:
            for i in range(start, end):
                if CLASS[units[i]] & UNSPACED:
                    return True
        start = end
    return False


cdef inline Py_ssize_t _count(Units* units, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i, found = 0
    for i in range(size):
        found += CLASS[units[i]] & UNSPACED
    return found


cdef inline bint _mixed(Units* units, Py_ssize_t size) noexcept nogil:
    """Remember the last letter since a separator: UNSPACED, TOKEN or 0."""
    cdef Py_ssize_t i
    cdef unsigned char kind, last = 0
    for i in range(size):
        kind = CLASS[units[i]]
        if kind & UNSPACED:
            if last == TOKEN:
                return True
            last = UNSPACED
        elif kind & TOKEN:
            if last == UNSPACED:
                return True
            last = TOKEN
        elif not kind & DIACRITIC:
            last = 0
    return False


def has_unspaced(text):
    """See the pure twin."""
    if not _wide(text):
        return False
    cdef void* data = PyUnicode_DATA(text)
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
    if PyUnicode_KIND(text) == 2:
        return _any(<const Py_UCS2*>data, size)
    return _any(<const uint32_t*>data, size)


def count_cjk(text):
    """See the pure twin."""
    if not _wide(text):
        return 0
    cdef void* data = PyUnicode_DATA(text)
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
    if PyUnicode_KIND(text) == 2:
        return _count(<const Py_UCS2*>data, size)
    return _count(<const uint32_t*>data, size)


def has_mixed(text):
    """See the pure twin."""
    if not _wide(text):
        return False
    cdef void* data = PyUnicode_DATA(text)
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
    if PyUnicode_KIND(text) == 2:
        return _mixed(<const Py_UCS2*>data, size)
    return _mixed(<const uint32_t*>data, size)


def runs(text):
    """See the pure twin."""
    cdef bint wide = _wide(text)
    cdef Py_ssize_t i, start = 0, size = PyUnicode_GET_LENGTH(text)
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef bint inside, here
    cdef list out = []
    if size == 0:
        return out
    if not wide:
        return [(0, size, False)]
    inside = CLASS[PyUnicode_READ(kind, data, 0)] & UNSPACED
    for i in range(1, size):
        here = CLASS[PyUnicode_READ(kind, data, i)] & UNSPACED
        if here != inside:
            out.append((start, i, inside))
            start, inside = i, here
    out.append((start, size, inside))
    return out


def split_mixed(text):
    """See the pure twin."""
    cdef bint wide = _wide(text)
    cdef Py_ssize_t i, size = PyUnicode_GET_LENGTH(text)
    cdef Py_ssize_t length = 0, done = 0
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef uint32_t char, widest = PLACEHOLDER
    cdef bint inside = False
    if not wide or not has_unspaced(text):
        return PyUnicode_Substring(text, 0, size)
    for i in range(size):
        char = PyUnicode_READ(kind, data, i)
        if CLASS[char] & UNSPACED:
            length += 0 if inside else PLACEHOLDER_SIZE
            inside = True
        else:
            length += 1
            inside = False
            if char > widest:
                widest = char
    out = PyUnicode_New(length, widest)
    cdef int out_kind = PyUnicode_KIND(out)
    cdef void* out_data = PyUnicode_DATA(out)
    inside = False
    for i in range(size):
        char = PyUnicode_READ(kind, data, i)
        if not CLASS[char] & UNSPACED:
            PyUnicode_WRITE(out_kind, out_data, done, char)
            done += 1
            inside = False
        elif not inside:
            PyUnicode_WRITE(out_kind, out_data, done, 32)
            PyUnicode_WRITE(out_kind, out_data, done + 1, PLACEHOLDER)
            PyUnicode_WRITE(out_kind, out_data, done + 2, 32)
            done += PLACEHOLDER_SIZE
            inside = True
    return out
