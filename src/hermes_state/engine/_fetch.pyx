# cython: language_level=3
"""All rows of a statement for one hand-over of the GIL.

APSW gives up the GIL for each row and takes it back. Beside other threads each of these is a chance to
wait for all of them, and what SQLite does for the rows could have run beside Python code in one piece.
Here it does: the statement that APSW has prepared and keeps in its cache is found, stepped to its end
without the GIL, the rows are put by as bytes, and made into Python objects afterwards.

It is for a connection that nobody else uses meanwhile, and for statements that only read. What it
cannot do it leaves to APSW, from the beginning: a statement that APSW has not prepared yet, parameters of
other types, text that is not UTF-8, an error of SQLite.

SQLite's functions come from the table that it gives to its extensions; the order of that table is kept
stable (https://www.sqlite.org/loadext.html, sqlite3ext.h).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    #define HS_OK_LOAD_PERMANENTLY 256

    typedef void *hs_value;
    static void **hs_api;
    #define HS_CALL(place, result, ...) ((result (*)(__VA_ARGS__))hs_api[place])
    #define hs_bind_blob HS_CALL(2, int, void *, int, const void *, int, void (*)(void *))
    #define hs_bind_double HS_CALL(3, int, void *, int, double)
    #define hs_bind_int64 HS_CALL(5, int, void *, int, int64_t)
    #define hs_bind_null HS_CALL(6, int, void *, int)
    #define hs_bind_parameter_count HS_CALL(7, int, void *)
    #define hs_bind_text HS_CALL(10, int, void *, int, const char *, int, void (*)(void *))
    #define hs_column_count HS_CALL(22, int, void *)
    #define hs_column_name HS_CALL(30, const char *, void *, int)
    #define hs_column_value HS_CALL(39, hs_value, void *, int)
    #define hs_reset HS_CALL(77, int, void *)
    #define hs_step HS_CALL(94, int, void *)
    #define hs_value_blob HS_CALL(102, const void *, hs_value)
    #define hs_value_bytes HS_CALL(103, int, hs_value)
    #define hs_value_double HS_CALL(105, double, hs_value)
    #define hs_value_int64 HS_CALL(107, int64_t, hs_value)
    #define hs_value_text HS_CALL(109, const unsigned char *, hs_value)
    #define hs_value_type HS_CALL(113, int, hs_value)
    #define hs_clear_bindings HS_CALL(118, int, void *)
    #define hs_next_stmt HS_CALL(152, void *, void *, void *)
    #define hs_sql HS_CALL(153, const char *, void *)
    #define hs_stmt_busy HS_CALL(184, int, void *)
    #define hs_stmt_readonly HS_CALL(185, int, void *)

    /* A handler of the connection (progress, busy, a function) has raised. */
    #define hs_raised() (PyErr_Occurred() ? -1 : 0)

    enum { HS_NOMEM = 7, HS_TOOBIG = 18, HS_ROW = 100 };
    enum { HS_INTEGER = 1, HS_FLOAT = 2, HS_TEXT = 3, HS_BLOB = 4, HS_NULL = 5, HS_ASCII = 6 };

    __attribute__((visibility("default")))
    int sqlite3_hermesfetch_init(void *db, char **message, void **api) {
        (void)db; (void)message;
        hs_api = api;
        return HS_OK_LOAD_PERMANENTLY;
    }

    typedef struct { unsigned char *bytes; size_t used, size; } hs_rows;

    /* Room for so many bytes more; 0 where there is no memory. */
    static int hs_room(hs_rows *rows, size_t more) {
        size_t size = rows->size ? rows->size : 32768;
        unsigned char *bytes;
        if (rows->used + more <= rows->size) return 1;
        while (size < rows->used + more) size *= 2;
        bytes = (unsigned char *)realloc(rows->bytes, size);
        if (!bytes) return 0;
        rows->bytes = bytes;
        rows->size = size;
        return 1;
    }

    static int hs_is_ascii(const unsigned char *text, size_t length) {
        uint64_t eight, all = 0;
        while (length >= 8) {
            memcpy(&eight, text, 8);
            all |= eight;
            text += 8;
            length -= 8;
        }
        while (length--) all |= (uint64_t)*text++;
        return !(all & UINT64_C(0x8080808080808080));
    }

    static int hs_put(hs_rows *rows, hs_value value) {
        int kind = hs_value_type(value);
        const void *from = NULL;
        int64_t number = 0;
        double real;
        size_t length = 0;
        if (kind == HS_TEXT || kind == HS_BLOB) {
            from = kind == HS_TEXT ? (const void *)hs_value_text(value) : hs_value_blob(value);
            number = length = (size_t)hs_value_bytes(value);
            if (!from && (length || kind == HS_TEXT)) return HS_NOMEM;
            if (kind == HS_TEXT && hs_is_ascii((const unsigned char *)from, length)) kind = HS_ASCII;
        } else if (kind == HS_INTEGER) {
            number = hs_value_int64(value);
        } else if (kind == HS_FLOAT) {
            real = hs_value_double(value);
            memcpy(&number, &real, sizeof number);
        }
        if (!hs_room(rows, 1 + sizeof number + length)) return HS_NOMEM;
        rows->bytes[rows->used++] = (unsigned char)kind;
        if (kind == HS_NULL) return 0;
        memcpy(rows->bytes + rows->used, &number, sizeof number);
        rows->used += sizeof number;
        if (length) memcpy(rows->bytes + rows->used, from, length);
        rows->used += length;
        return 0;
    }

    /* Step until the end, an error, or about so many bytes; SQLite's code of the last step. */
    static int hs_collect(void *statement, int width, hs_rows *rows, size_t most, long *count) {
        int column, code;
        while ((code = hs_step(statement)) == HS_ROW) {
            for (column = 0; column < width; column++)
                if ((code = hs_put(rows, hs_column_value(statement, column)))) return code;
            ++*count;
            if (rows->used >= most) return HS_ROW;
        }
        return code;
    }

    /* The idle statement of this text, that only reads, among those of the connection; or NULL. */
    static void *hs_find(void *db, const char *sql) {
        void *statement = NULL;
        const char *text;
        while ((statement = hs_next_stmt(db, statement)))
            if ((text = hs_sql(statement)) && !strcmp(text, sql))
                return !hs_stmt_busy(statement) && hs_stmt_readonly(statement) ? statement : NULL;
        return NULL;
    }
    """
    ctypedef struct hs_rows:
        unsigned char* bytes
        size_t used
        size_t size
    void** hs_api
    int HS_ROW, HS_INTEGER, HS_FLOAT, HS_TEXT, HS_BLOB, HS_NULL, HS_ASCII
    int sqlite3_hermesfetch_init(void* db, char** message, void** api)
    int hs_bind_blob(void*, int, const void*, int, void*) noexcept
    int hs_bind_double(void*, int, double) noexcept
    int hs_bind_int64(void*, int, int64_t) noexcept
    int hs_bind_null(void*, int) noexcept
    int hs_bind_text(void*, int, const char*, int, void*) noexcept
    int hs_bind_parameter_count(void*) noexcept
    int hs_column_count(void*) noexcept
    const char* hs_column_name(void*, int) noexcept
    int hs_reset(void*) noexcept nogil
    int hs_clear_bindings(void*) noexcept nogil
    int hs_collect(void*, int, hs_rows*, size_t, long*) noexcept nogil
    void* hs_find(void*, const char*) noexcept
    int hs_raised() except -1

cdef extern from "Python.h":
    int PyUnicode_CheckExact(object)
    int PyLong_CheckExact(object)
    int PyFloat_CheckExact(object)
    int PyBytes_CheckExact(object)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size)
    object PyUnicode_New(Py_ssize_t size, uint32_t largest)
    void* PyUnicode_DATA(object)
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

ENTRY_POINT = "sqlite3_hermesfetch_init"

cdef int DONE = 101
# Bytes of rows put by at a time, so that a long result is not in memory twice.
cdef size_t MOST = 1 << 20
# Characters of a text that is bound here: its UTF-8 stays with it for as long as it lives.
cdef Py_ssize_t LONGEST = 1 << 20


cdef bint bind(void* statement, tuple params) except -1:
    """Bind all parameters; False where one is of a kind that is left to APSW."""
    cdef int place = 0, overflow = 0
    cdef Py_ssize_t size = 0
    cdef long long number
    cdef const char* text
    if hs_bind_parameter_count(statement) != len(params):
        return False
    for value in params:
        place += 1
        if PyUnicode_CheckExact(value):
            if len(<str>value) > LONGEST:
                return False
            text = PyUnicode_AsUTF8AndSize(value, &size)
            if text == NULL:
                PyErr_Clear()
                return False
            code = hs_bind_text(statement, place, text, <int>size, NULL)
        elif value is None:
            code = hs_bind_null(statement, place)
        elif PyLong_CheckExact(value):
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow:
                return False
            code = hs_bind_int64(statement, place, number)
        elif PyFloat_CheckExact(value):
            code = hs_bind_double(statement, place, <double>value)
        else:
            return False
        if code:
            return False
    return True


cdef object cell(const unsigned char** at):
    """The value at ``at``, which moves behind it."""
    cdef int kind = at[0][0]
    cdef int64_t number
    cdef double real
    at[0] += 1
    if kind == HS_NULL:
        return None
    memcpy(&number, at[0], sizeof(number))
    at[0] += sizeof(number)
    if kind == HS_INTEGER:
        return number
    if kind == HS_FLOAT:
        memcpy(&real, &number, sizeof(real))
        return real
    cdef const char* start = <const char*>at[0]
    at[0] += number
    if kind == HS_ASCII:
        text = PyUnicode_New(number, 127)
        if number:
            memcpy(PyUnicode_DATA(text), start, number)
        return text
    if kind == HS_TEXT:
        return PyUnicode_DecodeUTF8(start, number, NULL)
    return PyBytes_FromStringAndSize(start, number)


cdef int make(hs_rows* rows, int width, long count, list found) except -1:
    """Append ``count`` rows to ``found``, each a tuple of ``width`` values."""
    cdef const unsigned char* at = rows.bytes
    cdef long number
    cdef int column
    for number in range(count):
        row = PyTuple_New(width)
        for column in range(width):
            value = cell(&at)
            Py_INCREF(value)
            PyTuple_SET_ITEM(row, column, value)
        found.append(row)
    rows.used = 0
    return 0


cdef tuple names_of(void* statement, int width):
    return tuple([hs_column_name(statement, column).decode("utf-8", "replace") for column in range(width)])


def rows(size_t handle, str sql, tuple params):
    """The names of the columns and all rows; or None where APSW must do it; or SQLite's code of an error.

    Args:
        handle: ``sqlite3_pointer()`` of an open connection, which nobody else uses meanwhile.
        sql: one statement.
        params: its parameters.
    """
    cdef hs_rows put_by
    cdef long count = 0
    cdef int code, width
    cdef list found = []
    cdef void* statement
    cdef const char* text = PyUnicode_AsUTF8AndSize(sql, NULL)
    if text == NULL:
        PyErr_Clear()
        return None
    if hs_api == NULL:
        return None
    statement = hs_find(<void*>handle, text)
    if statement == NULL:
        return None
    put_by.bytes = NULL
    put_by.used = put_by.size = 0
    try:
        if not bind(statement, params):
            return None
        code = HS_ROW
        width = 0
        names = None
        while code == HS_ROW:
            count = 0
            width = hs_column_count(statement)
            with nogil:
                code = hs_collect(statement, width, &put_by, MOST, &count)
            hs_raised()
            if code != HS_ROW and code != DONE:
                return code
            if count and names is None:
                if width != hs_column_count(statement):
                    return None
                names = names_of(statement, width)
            try:
                make(&put_by, width, count, found)
            except UnicodeDecodeError:
                return None
        return names or (), found
    finally:
        hs_reset(statement)
        hs_clear_bindings(statement)
        free(put_by.bytes)


def _keep() -> bool:
    # So that no linker drops the entry point as unused.
    return &sqlite3_hermesfetch_init != NULL
