"""Any text is a valid query: cases 1 to 12 from the field, and their neighbours."""

from __future__ import annotations

from typing import Any

import pytest

ODD = "fix #123 in src/main.py, 50% of $5, a,b ok? alice@example.com"


def test_punctuation_of_any_kind_is_text_and_the_words_hit(any_db: Any, stored: Any, hits: Any) -> None:
    wanted, _ = stored(ODD, "something else entirely")
    for query in [
        "#123",
        "src/main.py",
        "50%",
        "$5",
        "a,b",
        "ok?",
        "alice@example.com",
        "main.py",
        "(fix)",
        "fix!",
        "[123]",
        "{5}",
        "fix;",
        "src\\main.py",
        "~fix",
        "`fix`",
        "fix|123",
        "fix&123",
        "^fix",
        "+fix",
        "=fix",
        "<fix>",
        "fix:",
        "'fix'",
        "@example",
        "50 %",
        "“fix”",
        "fix—123",
        "fix…",
    ]:
        assert hits(any_db, query) == {wanted}, query


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("TODO: fix the parser", "TODO: fix"),
        ("error:timeout at start", "error:timeout"),
        ("at 9:30 sharp", "9:30"),
        ("the header says content:hello there", "content:hello"),
        ("rowid:7 and rank:3", "rowid:7"),
        ("rowid:7 and rank:3", "rank:3"),
        ("messages_fts:match it", "messages_fts:match"),
        ("{content}:word", "{content}:word"),
        ("-content : hello", "-content : hello"),
    ],
)
def test_a_colon_is_text_and_no_column_filter(
    any_db: Any, stored: Any, hits: Any, text: str, query: str
) -> None:
    wanted, _ = stored(text, "hello, fix timeout 30 match it word and 7 or 3 of them")
    assert wanted in hits(any_db, query)
    assert hits(any_db, query) == {wanted}


def test_operators_without_operands_fall_away_and_the_words_hit(any_db: Any, stored: Any, hits: Any) -> None:
    wanted, other = stored("docker and kubernetes", "neither of the two")
    for query in [
        "docker AND OR kubernetes",
        "docker OR AND kubernetes",
        "docker AND AND kubernetes",
        "AND NOT docker",
        "OR docker",
        "OR OR docker",
        "AND docker",
        "docker NOT",
        "docker AND",
        "docker OR",
        "docker AND NOT",
        "docker OR OR",
        "OR AND docker kubernetes AND OR",
        "docker AND kubernetes OR",
    ]:
        assert wanted in hits(any_db, query)
        assert other not in hits(any_db, query)


def test_operators_alone_find_nothing_and_raise_nothing(any_db: Any, stored: Any, hits: Any) -> None:
    stored("and or not docker")
    for query in ["AND", "OR", "NOT", "AND OR NOT", "NOT NOT", "OR OR OR"]:
        assert hits(any_db, query) == set(), query


@pytest.mark.parametrize("word", ["and", "or", "not", "And", "Or", "Not", "near"])
def test_operators_in_lower_case_are_words(any_db: Any, stored: Any, hits: Any, word: str) -> None:
    with_word, _ = stored(f"docker {word} kubernetes", "docker kubernetes")
    assert hits(any_db, f"docker {word} kubernetes") == {with_word}


def test_a_query_without_a_positive_term_is_empty(any_db: Any, stored: Any, hits: Any) -> None:
    stored("docker", "python", "容器", "none of them")
    for query in ["NOT docker", "NOT docker NOT python", 'NOT "docker"', "NOT dock*", "NOT 容器"]:
        assert hits(any_db, query) == set(), query


def test_dots_and_hyphens_matter_inside_words_only(any_db: Any, stored: Any, hits: Any) -> None:
    ids = stored(
        "edit the .env file", "git push --force or git push -f", "docker python",
        "foo bar", "the chat-send call", "send it to the chat",
    )  # fmt: skip
    for query, wanted in [
        (".env", {0}),
        ("--force", {1}),
        ("git push -f", {1}),
        ("docker -python", {2}),
        ("python-docker", set()),
        ("foo-", {3}),
        ("-foo", {3}),
        ("foo.", {3}),
        ("...foo", {3}),
        ("foo --", {3}),
        ("- foo", {3}),
        ("chat-send", {4}),
        ("chat.send", {4}),
        ("chat_send", {4}),
        ("send-chat", set()),
        ("chat send", {4, 5}),
    ]:
        assert hits(any_db, query) == {ids[i] for i in wanted}, query


def test_near_is_a_word(any_db: Any, stored: Any, hits: Any) -> None:
    wanted, _ = stored("near 2 5 docker kubernetes", "docker kubernetes 2 5")
    for query in [
        "NEAR(docker kubernetes)",
        "docker NEAR kubernetes",
        "NEAR(docker kubernetes, 5)",
        "docker NEAR/2 5",
    ]:
        assert hits(any_db, query) == {wanted}, query


def test_each_alternative_of_an_or_finds_its_rows_whatever_its_script(
    any_db: Any, stored: Any, hits: Any
) -> None:
    book, single, long, _ = stored("the wrong-book notes", "错题在这里", "我的错题本", "nothing of it")
    assert hits(any_db, "错题本 OR 错题 OR wrong-book OR mistakes") == {book, single, long}
    assert hits(any_db, "mistakes OR wrong-book") == {book}
    assert hits(any_db, "错题本 OR notes") == {book, long}


def test_phrases_keep_their_order_and_unbalanced_quotes_fall_away(
    any_db: Any, stored: Any, hits: Any
) -> None:
    ids = stored("the docker networking", "networking docker", "say fix issue")
    for query, wanted in [
        ('"docker networking"', {0}),
        ('"networking docker"', {1}),
        ('"Docker  Networking"', {0}),
        ('say "fix issue', {2}),
        ('say fix issue"', {2}),
        ('"', set()),
        ('""', set()),
        ('" "', set()),
        ('"" say', {2}),
        ('"say" "issue"', {2}),
        ('"say issue"', set()),
        ('"fix iss"*', {2}),
    ]:
        assert hits(any_db, query) == {ids[i] for i in wanted}, query


def test_a_star_behind_a_word_is_a_prefix_and_nothing_elsewhere(any_db: Any, stored: Any, hits: Any) -> None:
    ids = stored("the deployment", "to deploy it")
    for query, wanted in [
        ("deploy*", {0, 1}),
        ("deploy.*", {0, 1}),
        ("deploy", {1}),
        ("DEPLOY*", {0, 1}),
        ("deploy**", {0, 1}),
        ("*", set()),
        ("***", set()),
        ("* *", set()),
        ("*deploy", {1}),
        ("dep* the", {0}),
        ("xyz*", set()),
    ]:
        assert hits(any_db, query) == {ids[i] for i in wanted}, query


def test_control_characters_and_broken_text_are_harmless(any_db: Any, stored: Any, hits: Any) -> None:
    ids = stored("hello docker world")
    for query, wanted in [
        ('"a b" \x00Q0\x00', set()),
        ("docker\x00", {0}),
        ("\x00", set()),
        ("doc\x00ker", set()),
        ("docker \ud83d", {0}),
        ("dock\ud83der", {0}),
        ("\udc00\ud800", set()),
        ("docker\r\n\tworld", {0}),
        ("\u200bdocker", {0}),
        ("\ufeffdocker", {0}),
        ("docker \x1b[31m world", set()),
        ("docker\u2028world", {0}),
        ("'; DROP TABLE messages; --", set()),
        ("docker' OR '1'='1", {0}),
    ]:
        assert hits(any_db, query) == {ids[i] for i in wanted}, query


def test_huge_queries_are_answered_and_leave_the_store_usable(any_db: Any, stored: Any, hits: Any) -> None:
    (first,) = stored("docker runs")
    for query in [
        "docker " * 4000,
        "docker OR " * 4000,
        "x" * 1_000_000,
        "docker " + "y " * 500_000,
        '"' * 10_000,
        '"a" ' * 5_000,
        "(" * 10_000,
        "NOT " * 10_000,
        "*" * 10_000,
        "容器" * 100_000,
        "容 " * 5_000,
        "a-" * 10_000,
        "'" * 100_000,
        "\\" * 100_000,
        "a OR b AND " * 3_000,
        " ".join(f"w{i}" for i in range(5_000)),
        " OR ".join(f"词{i}" for i in range(3_000)),
        "\x00" * 100_000,
        "🎉" * 50_000,
    ]:
        assert hits(any_db, query) <= {first}, query[:20]
        assert hits(any_db, "docker") == {first}
        assert any_db.append_message("s", "user", "after") > first


def test_many_equal_words_are_one_word(any_db: Any, stored: Any, hits: Any) -> None:
    wanted, _ = stored("docker runs", "no such thing")
    assert hits(any_db, "docker " * 1000) == {wanted}
    assert hits(any_db, " OR ".join(["docker"] * 1000)) == {wanted}


@pytest.mark.parametrize(
    "query",
    [
        "\\",
        "%",
        "_",
        "'",
        "🎉",
        "...",
        "%%",
        "__",
        "-",
        "—",
        "()",
        "  ",
        "",
        "\n",
        "{}",
        "^",
        "❤️",
        "\u0301",
        "،",
    ],
)
def test_queries_of_no_letter_find_nothing_but_what_holds_them(
    any_db: Any, stored: Any, hits: Any, query: str
) -> None:
    with_it, plain = stored(f"before {query} after 中{query}文", "plain words only")
    assert hits(any_db, query) <= {with_it}
    assert plain not in hits(any_db, query)


def test_a_query_that_is_no_text_is_a_type_error(any_db: Any, stored: Any) -> None:
    stored("docker 5")
    for query in [5, b"docker", ["docker"], object()]:
        with pytest.raises(TypeError):
            any_db.search_messages(query)


def test_no_query_is_an_empty_list(any_db: Any, stored: Any) -> None:
    stored("docker")
    assert any_db.search_messages(None) == []
    assert any_db.search_messages("") == []


def test_not_binds_tighter_than_and_and_and_tighter_than_or(any_db: Any, stored: Any, hits: Any) -> None:
    a, ab, abc, c, bc = stored("alpha", "alpha beta", "alpha beta gamma", "gamma", "beta gamma")
    assert hits(any_db, "alpha AND beta OR gamma") == {ab, abc, c, bc}
    assert hits(any_db, "gamma OR alpha AND beta") == {ab, abc, c, bc}
    assert hits(any_db, "alpha NOT beta OR gamma") == {a, abc, c, bc}
    assert hits(any_db, "alpha beta NOT gamma") == {ab}
    assert hits(any_db, "alpha NOT gamma beta") == {ab}
    assert hits(any_db, "alpha AND NOT gamma") == {a, ab}
    assert hits(any_db, "alpha OR NOT gamma") in ({a, ab, abc}, {a, ab})


def test_words_match_whole_with_case_and_marks_folded(any_db: Any, stored: Any, hits: Any) -> None:
    plain, marked, _ = stored("the cafe", "the Café", "the cafeteria")
    for query in ["café", "CAFE", "Cafe\u0301", "cafe"]:
        assert hits(any_db, query) == {plain, marked}, query
