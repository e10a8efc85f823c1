"""Compiled twin of the ``decode`` kernel.

Rows as SQLite gives them - exact tuples of exact str, int, float, bytes and
None - are done here; rows of any other kind are left to the pure twin, and so
is every text in which there may be something to strip or to mend.
"""

from _unicode cimport (
    PyUnicode_CheckExact, PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND, PyUnicode_READ,
)
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from cpython.list cimport PyList_CheckExact
from cpython.object cimport PyObject_IsTrue
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint32_t

from hermes_state._fastpath import _decode_py as _pure
from hermes_state._fastpath._encode_py import MARKER as _MARKER
from hermes_state._fastpath._json_parse_c import NOT_READ as _NOT_READ
from hermes_state._fastpath._json_parse_c import attempt as _attempt

__all__ = ["rows_to_conversation", "rows_to_messages", "strip_memory"]

cdef extern from "Python.h":
    int Py_UNICODE_ISSPACE(uint32_t character) noexcept
    Py_ssize_t PyUnicode_FindChar(
        object text, uint32_t character, Py_ssize_t start, Py_ssize_t end, int direction
    ) except -2
    uint32_t PyUnicode_READ_CHAR(object text, Py_ssize_t index)

cdef str MARKER = _MARKER
cdef Py_ssize_t MARKER_SIZE = len(_MARKER)
cdef object attempt = _attempt
cdef object NOT_READ = _NOT_READ
cdef object pure_parsed = _pure.parsed
cdef object pure_content = _pure.decode_content
cdef object pure_strip = _pure.strip_memory
cdef object pure_conversation_message = _pure._conversation_message
cdef Py_ssize_t CONVERSATION_WIDTH = len(_pure.CONVERSATION_COLUMNS)


cdef inline object content_of(object stored):
    if not PyUnicode_CheckExact(stored):
        return pure_content(stored)
    if PyUnicode_GET_LENGTH(stored) == 0 or PyUnicode_READ_CHAR(stored, 0) != 0:
        return stored
    return marked_content(stored)


cdef object marked_content(str stored):
    """What a text that begins with NUL stands for."""
    if not stored.startswith(MARKER):
        return stored
    value = attempt(stored, MARKER_SIZE)
    return pure_content(stored) if value is NOT_READ else value


cdef inline bint is_set(object stored) except -1:
    if PyUnicode_CheckExact(stored):
        return PyUnicode_GET_LENGTH(stored) != 0
    return stored is not None and PyObject_IsTrue(stored)


cdef object parsed(object stored, bint is_calls):
    value = attempt(stored, 0)
    return pure_parsed(stored, [] if is_calls else None) if value is NOT_READ else value


cdef bint may_be_tag(object text, Py_ssize_t at) noexcept:
    """Whether the ``<`` at ``at`` may begin a memory tag: ``</  me`` in any case."""
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    at += 1
    if at < length and PyUnicode_READ(kind, data, at) == c"/":
        at += 1
    while at < length and Py_UNICODE_ISSPACE(PyUnicode_READ(kind, data, at)):
        at += 1
    return (
        at + 1 < length
        and PyUnicode_READ(kind, data, at) | 0x20 == c"m"
        and PyUnicode_READ(kind, data, at + 1) | 0x20 == c"e"
    )


cdef bint may_be_note(object text, Py_ssize_t at) noexcept:
    """Whether the ``[`` at ``at`` may begin the system note: its third letter has but two cases."""
    return at + 2 < PyUnicode_GET_LENGTH(text) and PyUnicode_READ_CHAR(text, at + 2) | 0x20 == c"y"


cdef bint may_hold_memory(object text) except -1:
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    cdef Py_ssize_t at = PyUnicode_FindChar(text, c"<", 0, length, 1)
    while at >= 0:
        if may_be_tag(text, at):
            return True
        at = PyUnicode_FindChar(text, c"<", at + 1, length, 1)
    at = PyUnicode_FindChar(text, c"[", 0, length, 1)
    while at >= 0:
        if may_be_note(text, at):
            return True
        at = PyUnicode_FindChar(text, c"[", at + 1, length, 1)
    return False


cdef object stripped(object text):
    return pure_strip(text) if may_hold_memory(text) else (<str>text).strip()


def strip_memory(text):
    """See the pure twin, which also strips what is found."""
    return stripped(text) if PyUnicode_CheckExact(text) else pure_strip(text)


def rows_to_messages(names, rows):
    """See the pure twin."""
    cdef Py_ssize_t width, i, content_at, calls_at
    if not (PyTuple_CheckExact(names) and PyList_CheckExact(rows)):
        return _pure.rows_to_messages(names, rows)
    for name in names:
        if not PyUnicode_CheckExact(name):
            return _pure.rows_to_messages(names, rows)
    width = len(names)
    # A copy of a dict that has all the keys costs less than one that grows.
    empty = dict.fromkeys(names)
    if len(empty) != width:
        return _pure.rows_to_messages(names, rows)
    content_at = names.index("content") if "content" in empty else -1
    calls_at = names.index("tool_calls") if "tool_calls" in empty else -1
    cdef list messages = []
    for row in rows:
        if not (PyTuple_CheckExact(row) and PyTuple_GET_SIZE(row) == width):
            messages += <list>_pure.rows_to_messages(names, [row])
            continue
        message = PyDict_Copy(empty)
        for i in range(width):
            value = <object>PyTuple_GET_ITEM(row, i)
            if value is None:
                continue
            if i == content_at:
                value = content_of(value)
            elif i == calls_at and is_set(value):
                value = parsed(value, True)
            PyDict_SetItem(message, <object>PyTuple_GET_ITEM(names, i), value)
        messages.append(message)
    return messages


cdef inline object cell(object row, Py_ssize_t index):
    return <object>PyTuple_GET_ITEM(row, index)


cdef object conversation_message(object row):
    cdef bint is_assistant
    role = cell(row, 0)
    if not PyUnicode_CheckExact(role):
        return pure_conversation_message(*row)
    is_assistant = <str>role == "assistant"
    content = content_of(cell(row, 1))
    if PyUnicode_CheckExact(content) and (is_assistant or <str>role == "user"):
        content = stripped(content)
    cdef dict message = {"role": role, "content": content}
    if is_set(cell(row, 2)):
        message["tool_call_id"] = cell(row, 2)
    if is_set(cell(row, 3)):
        message["tool_name"] = cell(row, 3)
    if is_set(cell(row, 4)):
        message["tool_calls"] = parsed(cell(row, 4), True)
    if is_assistant:
        add_assistant_fields(message, row)
    return message


cdef int add_assistant_fields(dict message, object row) except -1:
    if is_set(cell(row, 5)):
        message["finish_reason"] = cell(row, 5)
    if is_set(cell(row, 6)):
        message["reasoning"] = cell(row, 6)
    if cell(row, 7) is not None:
        message["reasoning_content"] = cell(row, 7)
    if is_set(cell(row, 8)):
        message["reasoning_details"] = parsed(cell(row, 8), False)
    if is_set(cell(row, 9)):
        message["codex_reasoning_items"] = parsed(cell(row, 9), False)
    if is_set(cell(row, 10)):
        message["codex_message_items"] = parsed(cell(row, 10), False)
    return 0


def rows_to_conversation(rows):
    """See the pure twin."""
    if not PyList_CheckExact(rows):
        return _pure.rows_to_conversation(rows)
    cdef list messages = []
    for row in rows:
        if not (PyTuple_CheckExact(row) and PyTuple_GET_SIZE(row) == CONVERSATION_WIDTH):
            messages += <list>_pure.rows_to_conversation([row])
        else:
            messages.append(conversation_message(row))
    return messages
