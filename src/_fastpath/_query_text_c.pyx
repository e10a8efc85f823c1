"""Compiled twin of the query_text kernel: one pass over the characters."""

include "_scripts_class.pxd"

from cpython.list cimport PyList_CheckExact
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE

from hermes_state._fastpath._query_text_py import MAX_QUERY_CHARS, MAX_TERMS, _whole_words
from hermes_state._fastpath._query_text_py import match_string as _pure_match_string

cdef Py_ssize_t _MAX_CHARS = MAX_QUERY_CHARS
cdef Py_ssize_t _MAX_TERMS = MAX_TERMS

cdef extern from "Python.h":
    bint Py_UNICODE_ISSPACE(Py_UCS4 char)

cdef enum:
    END = 0
    WORD = 1
    PHRASE = 2
    OPERATOR = 3


cdef struct Text:
    int kind
    void* data
    Py_ssize_t size


cdef struct Token:
    int kind
    Py_ssize_t start
    Py_ssize_t end
    bint star


cdef inline uint32_t _at(Text* text, Py_ssize_t i) noexcept:
    return PyUnicode_READ(text.kind, text.data, i)


cdef inline bint _is(Text* text, Py_ssize_t i, int classes) noexcept:
    return CLASS[_at(text, i)] & classes


cdef inline bint _space(Text* text, Py_ssize_t i) noexcept:
    return Py_UNICODE_ISSPACE(_at(text, i))


cdef inline Text _view(str text) noexcept:
    cdef Text view
    view.kind = PyUnicode_KIND(text)
    view.data = PyUnicode_DATA(text)
    view.size = PyUnicode_GET_LENGTH(text)
    return view


cdef inline bint _any(Text* text, Py_ssize_t start, Py_ssize_t end, int classes) noexcept:
    cdef Py_ssize_t i
    for i in range(start, end):
        if _is(text, i, classes):
            return True
    return False


cdef str _readable(object text):
    cdef str head
    if text is None:
        return ""
    if not isinstance(text, str):
        raise TypeError(f"query must be a str, not {type(text).__name__}")
    head = PyUnicode_Substring(text, 0, min(PyUnicode_GET_LENGTH(text), _MAX_CHARS))
    if PyUnicode_GET_LENGTH(text) > _MAX_CHARS:
        head = _whole_words(head)
    if has_surrogate(head):
        head = head.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    if PyUnicode_FindChar(head, 0, 0, PyUnicode_GET_LENGTH(head), 1) >= 0:
        head = head.replace("\x00", " ")
    return head


cdef inline int _word_kind(Text* text, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef uint32_t first = _at(text, start)
    if end - start == 2:
        return OPERATOR if first == 79 and _at(text, start + 1) == 82 else WORD
    if end - start != 3:
        return WORD
    if first == 65:
        return OPERATOR if _at(text, start + 1) == 78 and _at(text, start + 2) == 68 else WORD
    if first == 78:
        return OPERATOR if _at(text, start + 1) == 79 and _at(text, start + 2) == 84 else WORD
    return WORD


cdef Py_ssize_t _next(Text* text, Py_ssize_t at, Token* token) noexcept:
    """Read the token at or behind ``at``; where to go on. ``token.kind`` is END behind the last."""
    cdef Py_ssize_t i
    token.star = False
    while at < text.size:
        if _space(text, at):
            at += 1
        elif _at(text, at) == 34:
            i = at + 1
            while i < text.size and _at(text, i) != 34:
                i += 1
            if i == text.size:  # no partner: it falls away, and no other follows
                at += 1
                continue
            token.kind, token.start, token.end = PHRASE, at + 1, i
            i += 1
            if i < text.size and _at(text, i) == 42:
                token.star = True
                i += 1
            return i
        else:
            i = at + 1
            while i < text.size and _at(text, i) != 34 and not _space(text, i):
                i += 1
            token.kind, token.start, token.end = _word_kind(text, at, i), at, i
            return i
    token.kind = END
    return at


cdef _phrase(str source, Text* text, Token* token, list out):
    cdef Py_ssize_t start = token.start, end = token.end
    while start < end and _space(text, start):
        start += 1
    while end > start and _space(text, end - 1):
        end -= 1
    if _any(text, start, end, UNSPACED):
        out.append(("substring", PyUnicode_Substring(source, start, end)))
    elif _any(text, start, end, TOKEN):
        out.append(("prefix" if token.star else "phrase", PyUnicode_Substring(source, start, end)))


cdef _spaced(str source, Text* text, Py_ssize_t start, Py_ssize_t end, list out):
    """See ``_spaced`` of the pure twin; no unspaced letter stands between ``start`` and ``end``."""
    cdef Py_ssize_t i = start, begin = 0, last = 0, behind
    cdef uint32_t char
    cdef str kind, piece = None
    cdef str held = None
    while i < end:
        if not _is(text, i, TOKEN):
            i += 1
            continue
        if held is not None:
            out.append((held, piece))
        begin, held = i, "word"
        while True:
            while i < end and _is(text, i, TOKEN | DIACRITIC):
                i += 1
            last = behind = i
            while behind < end:
                char = _at(text, behind)
                if char != 45 and char != 46 and char != 95:
                    break
                behind += 1
            if behind == last or behind == end or not _is(text, behind, TOKEN):
                break
            i, held = behind, "phrase"
        piece = PyUnicode_Substring(source, begin, last)
    if held is None:
        return
    for i in range(last, end):
        if _at(text, i) == 42:
            held = "prefix"
            break
    out.append((held, piece))


cdef _word(str source, Text* text, Py_ssize_t start, Py_ssize_t end, list out):
    cdef Py_ssize_t at = start, stop, first, last
    if not _any(text, start, end, UNSPACED):
        _spaced(source, text, start, end, out)
        return
    while at < end:
        stop = at
        while stop < end and not _is(text, stop, SENTENCE):
            stop += 1
        if _any(text, at, stop, UNSPACED):
            first, last = at, stop - 1
            while not _is(text, first, TOKEN | UNSPACED):
                first += 1
            while not _is(text, last, TOKEN | UNSPACED | DIACRITIC):
                last -= 1
            out.append(("substring", PyUnicode_Substring(source, first, last + 1)))
        else:
            _spaced(source, text, at, stop, out)
        at = stop + 1


def tokenize(text):
    """See the pure twin."""
    cdef str source = _readable(text)
    cdef Text view = _view(source)
    cdef Token token
    cdef Py_ssize_t at = 0
    cdef list out = []
    while True:
        at = _next(&view, at, &token)
        if token.kind == END:
            return out
        value = PyUnicode_Substring(source, token.start, token.end)
        if token.kind == PHRASE:
            out.append(("phrase", value, token.star))
        else:
            out.append(("operator" if token.kind == OPERATOR else "word", value, False))


cdef Py_ssize_t _close(list out, list group) except -1:
    cdef Py_ssize_t freed = 0
    if not group:
        return 0
    if group in out:
        for operand in group:
            freed += len(<tuple>(<tuple>operand)[1])
        return freed
    out.append(group)
    return 0


cdef inline Py_ssize_t _add(list group, tuple operand, Py_ssize_t kept) except -1:
    """Add ``operand`` if it is new and there is room; the number of terms kept."""
    cdef Py_ssize_t size = len(<tuple>operand[1])
    if kept + size <= _MAX_TERMS and operand not in group:
        group.append(operand)
        return kept + size
    return kept


cdef list _groups(object text):
    cdef str source = _readable(text)
    cdef Text view = _view(source)
    cdef Token token
    cdef Py_ssize_t at = 0, kept = 0
    cdef int operators = 0
    cdef bint first = True, any_or = False, last_not = False, negated
    cdef list out = [], group = [], terms
    while True:
        at = _next(&view, at, &token)
        if token.kind == END:
            _close(out, group)
            return out
        if token.kind == OPERATOR:
            operators += 1
            any_or = any_or or _at(&view, token.start) == 79
            last_not = _at(&view, token.start) == 78
            continue
        terms = []
        if token.kind == PHRASE:
            _phrase(source, &view, &token, terms)
        else:
            _word(source, &view, token.start, token.end, terms)
        if not terms:
            continue
        negated = last_not and (not first or operators == 1)
        if not first and not negated and any_or:
            kept -= _close(out, group)
            group = []
        operators, first, any_or, last_not = 0, False, False, False
        if negated:
            kept = _add(group, (True, tuple(terms)), kept)
        else:
            for term in terms:
                kept = _add(group, (False, (term,)), kept)


def groups(text):
    """See the pure twin."""
    return _groups(text)


cdef bint _bare(str text) except -1:
    """Whether FTS5 reads ``text`` as one bare word: one token and none of its keywords."""
    if text is None:  # a collection of garbage may run code that changes a list after it was looked at
        raise TypeError("a term of a query must be a str")
    cdef Text view = _view(text)
    cdef Py_ssize_t i
    if view.size == 0 or not _is(&view, 0, TOKEN) or _is(&view, 0, UNSPACED):
        return False
    for i in range(1, view.size):
        if not _is(&view, i, TOKEN | DIACRITIC) or _is(&view, i, UNSPACED):
            return False
    return text not in ("AND", "OR", "NOT", "NEAR")


cdef str _leaf(str kind, str text):
    cdef str quoted
    if (kind == "word" or kind == "prefix") and _bare(text):
        quoted = text
    else:
        quoted = '"' + text.replace('"', '""') + '"'
    return quoted + "*" if kind == "prefix" else quoted


cdef str _operand(tuple terms):
    # No comprehension: where its list cannot grow, Cython's code for one drops a reference too many.
    cdef list written = []
    for kind, text in terms:
        written.append(_leaf(kind, text))
    return written[0] if len(written) == 1 else f"({' AND '.join(written)})"


cdef str _match_string(list alternatives):
    cdef list out = [], wanted, unwanted
    for group in alternatives:
        wanted, unwanted = [], []
        for negated, terms in group:
            (unwanted if negated else wanted).append(_operand(terms))
        if wanted:
            joined = (" AND " if unwanted else " ").join(wanted)
            out.append(" NOT ".join([joined, *unwanted]) if unwanted else joined)
    return out[0] if len(out) == 1 else " OR ".join(out)


cdef bint _is_term(object term) noexcept:
    if not PyTuple_CheckExact(term) or PyTuple_GET_SIZE(term) != 2:
        return False
    return PyUnicode_CheckExact((<tuple>term)[0]) and PyUnicode_CheckExact((<tuple>term)[1])


cdef bint _is_operand(object operand) noexcept:
    if not PyTuple_CheckExact(operand) or PyTuple_GET_SIZE(operand) != 2:
        return False
    negated, terms = (<tuple>operand)[0], (<tuple>operand)[1]
    if not (negated is True or negated is False) or not PyTuple_CheckExact(terms):
        return False
    for term in <tuple>terms:
        if not _is_term(term):
            return False
    return True


cdef bint _is_groups(object alternatives) noexcept:
    """Whether ``alternatives`` is what ``groups`` makes, down to exact types."""
    if not PyList_CheckExact(alternatives):
        return False
    for group in <list>alternatives:
        if not PyList_CheckExact(group):
            return False
        for operand in <list>group:
            if not _is_operand(operand):
                return False
    return True


def match_string(alternatives):
    """See the pure twin, which also takes what ``groups`` never makes."""
    return _match_string(alternatives) if _is_groups(alternatives) else _pure_match_string(alternatives)


def sanitize(text):
    """See the pure twin."""
    return _match_string(_groups(text))
