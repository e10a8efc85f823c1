"""Compiled twin of the ``encode`` kernel.

It does the common kinds of value itself - exact str that is clean, list, dict,
int, float, None - and hands every other value to the pure twin's function.
"""

from _unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH, is_clean
from cpython.dict cimport PyDict_CheckExact, PyDict_Size
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.math cimport isfinite
from libc.stdint cimport uint32_t

from hermes_state._fastpath import _encode_py as _pure
from hermes_state._fastpath._json_parse_c import NOT_READ as _NOT_READ
from hermes_state._fastpath._json_parse_c import attempt as _attempt
from hermes_state._fastpath._json_text_c import dumps as _dumps

__all__ = [
    "count_tool_calls",
    "decode_content",
    "encode_content",
    "encode_json_column",
    "encode_message",
    "encode_messages",
]

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL
    uint32_t PyUnicode_READ_CHAR(object text, Py_ssize_t index)

cdef str MARKER = _pure.MARKER
cdef object pure_content = _pure.encode_content
cdef object pure_text_column = _pure.text_column
cdef object pure_json_column = _pure._json_column
cdef object pure_name = _pure._name
cdef object pure_epoch = _pure.epoch
cdef object pure_whole_number = _pure.whole_number
cdef object pure_bindable = _pure.bindable
cdef object pure_encode_one = _pure.encode_one
cdef object encode_batch = _pure.encode_batch
cdef double MICROSECOND = _pure.MICROSECOND


cdef inline bint starts_with_nul(object text) noexcept:
    """Whether an exact str may begin with MARKER."""
    return PyUnicode_GET_LENGTH(text) != 0 and PyUnicode_READ_CHAR(text, 0) == 0


cdef object content_of(object value):
    if value is None:
        return None
    if is_clean(value) and not starts_with_nul(value):
        return value
    if PyList_CheckExact(value) or PyDict_CheckExact(value):
        return MARKER + <str>_dumps(value)
    return pure_content(value)


cdef object json_column(object value, Py_ssize_t* calls):
    """The text of a JSON column; ``calls`` becomes the number of tool calls it would be."""
    calls[0] = 0
    if value is None:
        return None
    if PyList_CheckExact(value):
        calls[0] = PyList_GET_SIZE(value)
        return _dumps(value) if calls[0] else None
    if PyDict_CheckExact(value):
        calls[0] = 1 if PyDict_Size(value) else 0
        return _dumps(value) if calls[0] else None
    text, calls[0] = pure_json_column(value)
    return text


cdef inline object text_of(object value):
    return value if value is None or is_clean(value) else pure_text_column(value)


cdef inline object name_of(str argument, object value):
    return value if is_clean(value) else pure_name(argument, value)


cdef inline object epoch_of(object value):
    if PyFloat_CheckExact(value) and isfinite(PyFloat_AS_DOUBLE(value)):
        return value
    return pure_epoch(value)


cdef object whole_number_of(object value):
    cdef int overflow = 0
    if value is None:
        return None
    if PyLong_CheckExact(value):
        PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow:
            return value
    return pure_whole_number(value)


cdef object row_of(
    object session_id, object role, object content, object tool_name, object tool_calls, object tool_call_id,
    object token_count, object finish_reason, object reasoning, object reasoning_content,
    object reasoning_details, object codex_reasoning_items, object codex_message_items, object timestamp,
    object content_encoder,
):
    """The row of one message; errors come in the order in which the pure twin meets them."""
    cdef Py_ssize_t number, unused
    calls = json_column(tool_calls, &number)
    return (
        name_of("session_id", session_id),
        name_of("role", role),
        content_of(content) if content_encoder is None else pure_bindable(content_encoder(content)),
        text_of(tool_call_id),
        calls,
        text_of(tool_name),
        epoch_of(timestamp),
        whole_number_of(token_count),
        text_of(finish_reason),
        text_of(reasoning),
        text_of(reasoning_content),
        json_column(reasoning_details, &unused),
        json_column(codex_reasoning_items, &unused),
        json_column(codex_message_items, &unused),
        number,
    )


cdef inline object item(object message, object key, object default):
    """``message.get(key, default)`` of an exact dict."""
    cdef PyObject* found = PyDict_GetItemWithError(message, key)
    return default if found == NULL else <object>found


cdef object row_of_dict(object session_id, object message, Py_ssize_t index, object first, object encoder):
    timestamp = item(message, "timestamp", None)
    if timestamp is None and first is not None:
        timestamp = first + index * MICROSECOND
    return row_of(
        session_id,
        item(message, "role", "unknown"),
        item(message, "content", None),
        item(message, "tool_name", None),
        item(message, "tool_calls", None),
        item(message, "tool_call_id", None),
        item(message, "token_count", None),
        item(message, "finish_reason", None),
        item(message, "reasoning", None),
        item(message, "reasoning_content", None),
        item(message, "reasoning_details", None),
        item(message, "codex_reasoning_items", None),
        item(message, "codex_message_items", None),
        timestamp,
        encoder,
    )


def encode_content(value):
    """See the pure twin."""
    return content_of(value)


def decode_content(stored):
    """See the pure twin, which also takes what is not text."""
    if not PyUnicode_CheckExact(stored):
        return _pure.decode_content(stored)
    if not starts_with_nul(stored) or not (<str>stored).startswith(MARKER):
        return stored
    value = _attempt(stored, len(MARKER))
    return _pure.decode_content(stored) if value is _NOT_READ else value


def encode_json_column(value):
    """See the pure twin."""
    cdef Py_ssize_t unused
    return json_column(value, &unused)


def count_tool_calls(value):
    """See the pure twin."""
    if value is None:
        return 0
    if PyList_CheckExact(value):
        return PyList_GET_SIZE(value)
    return _pure.count_tool_calls(value)


def encode_message(
    session_id, role, content, tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning,
    reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, timestamp,
    content_encoder=None,
):
    """See the pure twin."""
    return row_of(
        session_id, role, content, tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning,
        reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, timestamp,
        content_encoder,
    )


def encode_messages(session_id, messages, first_timestamp, content_encoder=None):
    """See the pure twin, which also puts the index before an error."""
    return encode_batch(add_rows, session_id, messages, first_timestamp, content_encoder)


def _add_rows(list rows, session_id, list messages, first_timestamp, content_encoder):
    """Append the row of each of ``messages``."""
    cdef Py_ssize_t index
    for index in range(len(messages)):
        message = messages[index]
        if PyDict_CheckExact(message):
            rows.append(row_of_dict(session_id, message, index, first_timestamp, content_encoder))
        else:
            rows.append(pure_encode_one(session_id, message, index, first_timestamp, content_encoder))


cdef object add_rows = _add_rows
