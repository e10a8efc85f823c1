"""list, show, search, lineage, stats: what they print, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import answer, process, run

from hermes_state import SessionDB


def test_a_list_has_one_entry_for_a_compressed_conversation_under_its_latest_part(home: Path) -> None:
    shown = run("list").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["id", "other", "20260303_tip"]
    found = answer("list")
    assert [row["id"] for row in found] == ["other", "20260303_tip"]
    assert found[1]["_lineage_root_id"] == "20260301_root"


def test_a_list_takes_filters_pages_and_all_sessions(home: Path) -> None:
    assert len(answer("list", "--all")) == 4
    assert [row["id"] for row in answer("list", "--source", "telegram")] == ["other"]
    assert [row["id"] for row in answer("list", "--exclude-source", "telegram")] == ["20260303_tip"]
    assert [row["id"] for row in answer("list", "--limit", "1", "--offset", "1", "--by", "start")] == [
        "20260303_tip"
    ]
    result = run("list", "--source", "nobody")
    assert (result.stdout, result.stderr) == ("", "no sessions\n")


def test_a_piped_list_is_not_cut_coloured_or_padded(home: Path) -> None:
    with SessionDB(home / "state.db") as db:
        db.set_session_title("other", "t" * 100)
    done = process("list", HERMES_HOME=str(home))
    assert done.returncode == 0
    assert "t" * 100 in done.stdout
    assert "\x1b" not in done.stdout
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    assert done.stderr == ""


def test_a_conversation_is_readable_and_long_results_are_cut_unless_all_is_asked_for(home: Path) -> None:
    shown = run("show", "20260301").stdout
    for text in ("Trip to Guilin", "五月想去桂林玩", "calls terminal(", "Docker is healthy.", "--full)"):
        assert text in shown
    assert "look it up" not in shown
    assert shown.count("line one") < 100
    whole = run("show", "Trip to Guilin", "--full").stdout
    assert whole.count("line one") == 200
    assert "look it up" in whole


def test_a_conversation_as_json_is_whole(home: Path) -> None:
    found = answer("show", "20260301_root")
    with SessionDB(home / "state.db") as db:
        assert found["session"] == db.get_session("20260301_root")
        assert found["messages"] == db.get_messages("20260301_root")
    with SessionDB(home / "state.db") as db:
        db.create_session("empty", "cli")
    assert answer("show", "empty")["messages"] == []


def test_parts_of_a_conversation_can_be_asked_for(home: Path) -> None:
    assert [m["role"] for m in answer("show", "20260301", "--last", "2")["messages"]] == ["tool", "assistant"]
    around = answer("show", "20260301", "--around", "3", "--window", "1")["messages"]
    assert [m["id"] for m in around] == [2, 3, 4]
    assert len(answer("show", "20260303_tip", "--ancestors")["messages"]) == 5
    assert "message 99 is not in" in run("show", "20260301", "--around", "99", code=1).stderr
    assert "exclude one another" in run("show", "other", "--last", "1", "--ancestors", code=2).stderr


def test_a_session_is_named_by_its_id_the_beginning_of_one_or_its_title(home: Path) -> None:
    assert answer("show", "oth")["session"]["id"] == "other"
    assert (
        "several sessions begin with '2026030': 20260301_root, 20260302_agent"
        in run("show", "2026030", code=1).stderr
    )
    for name in ("nobody", "", "%", "*"):
        assert "there is no session" in run("show", name, code=1).stderr


def test_a_search_shows_snippets_and_neighbours_and_tells_how_it_was_answered(home: Path) -> None:
    result = run("search", "桂林", "--explain")
    assert ">>>桂林<<<" in result.stdout
    assert "trigram" in result.stdout
    assert "Trip to Guilin" in result.stdout
    assert result.stderr == "2 hits\n"
    assert "assistant: (a tool call)" in result.stdout
    assert "(a tool call)" not in run("search", "桂林", "--no-context").stdout
    assert run("search", "nothing-like-this").stderr == "nothing found\n"


def test_a_search_takes_every_filter(home: Path) -> None:
    found = answer("search", "桂林", "--explain")
    assert {hit["session_id"] for hit in found["hits"]} == {"20260301_root", "20260303_tip"}
    assert {hit["title"] for hit in found["hits"]} == {"Trip to Guilin", None}
    assert found["query"] == "桂林"
    assert isinstance(found["plan"], str)
    only = {
        ("--role", "assistant"): 0,
        ("--source", "cli"): 2,
        ("--exclude-source", "cli"): 0,
        ("--exclude-session", "20260303_tip"): 1,
        ("--limit", "1"): 1,
        ("--offset", "1"): 1,
        ("--per-session", "1"): 2,
        ("--since", "2001-01-01"): 2,
        ("--until", "2001-01-01"): 0,
        ("--time-limit", "60"): 2,
    }
    for (option, value), hits in only.items():
        assert len(answer("search", "桂林", option, value)["hits"]) == hits, option
    assert answer("search", "ello")["hits"] == []
    assert len(answer("search", "ello", "--substring")["hits"]) == 1
    newest = answer("search", "桂林", "--sort", "newest")["hits"]
    assert newest == answer("search", "桂林", "--sort", "oldest")["hits"][::-1]


@pytest.mark.parametrize("query", ['"unbalanced', "NOT", "a AND", "((", "50%", "--", "-x", "\udcff", ""])
def test_no_query_is_an_error(home: Path, query: str) -> None:
    run("search", "--", query)


def test_the_lineage_is_a_tree_with_the_relation_of_each_session(home: Path) -> None:
    found = answer("lineage", "20260303_tip")
    assert (found["root"], found["tip"], found["resume"]) == ("20260301_root", "20260303_tip", "20260303_tip")
    assert {m["id"]: m["relation"] for m in found["members"]} == {
        "20260301_root": "root",
        "20260302_agent": "child",
        "20260303_tip": "continuation",
    }
    lines = run("lineage", "20260302_agent").stdout.splitlines()
    assert [line.lstrip(" └├│─").split()[0] for line in lines] == ["20260301_root", "child", "continued"]
    assert "<- this one" in lines[1]


def test_a_branch_and_a_cycle_of_parents_have_their_lineage(home: Path) -> None:
    with SessionDB(home / "state.db") as db:
        db.end_session("other", "branched")
        db.create_session("twig", "cli", parent_session_id="other")
        db._conn.execute("UPDATE sessions SET parent_session_id = '20260303_tip' WHERE id = '20260301_root'")
    assert {m["id"]: m["relation"] for m in answer("lineage", "twig")["members"]}["twig"] == "branch"
    assert len(answer("lineage", "20260303_tip")["members"]) == 3


def test_a_long_chain_stays_narrow(home: Path) -> None:
    with SessionDB(home / "state.db") as db:
        parent = None
        for number in range(60):
            db.create_session(f"link{number:02}", "cli", parent_session_id=parent)
            parent = f"link{number:02}"
            db.end_session(parent, "compression")
    lines = run("lineage", "link00").stdout.splitlines()
    assert len(lines) == 60
    assert max(map(len, lines)) < 200


def test_stats_add_up_and_name_every_table_and_index(store: Path) -> None:
    found = answer("stats")
    assert found["totals"]["sessions"] == 4
    assert found["totals"]["messages"] == 7
    assert (found["totals"]["input_tokens"], found["totals"]["output_tokens"]) == (1010, 205)
    assert found["totals"]["estimated_cost_usd"] == 0.25
    assert {row["source"] for row in found["by_source"]} == {"cli", "telegram", "subagent"}
    assert {row["model"] for row in found["by_model"]} == {"model-a", "model-b"}
    sizes = {thing["name"]: thing for thing in found["objects"]}
    assert sizes["messages_fts_trigram_data"]["part_of"] == "messages_fts_trigram"
    assert sizes["idx_sessions_title_unique"]["type"] == "index"
    used = sum(thing["pages"] for thing in found["objects"])
    assert used + found["file"]["free_pages"] == found["file"]["page_count"]
    assert answer("stats", "--no-sizes")["objects"] is None


def test_stats_are_readable(home: Path) -> None:
    shown = run("stats").stdout
    for text in ("0.2500", "model-a", "telegram", "messages_fts_trigram", "full-text index", "1,000", "wal"):
        assert text in shown


def test_output_that_cannot_show_a_character_is_still_json(home: Path) -> None:
    done = process("search", "桂林", "--json", HERMES_HOME=str(home), PYTHONIOENCODING="latin-1")
    assert ">>>桂林<<<" in json.loads(done.stdout)["hits"][0]["snippet"]


def test_stored_text_never_steers_the_terminal(home: Path) -> None:
    hostile = "\x1b]0;title\x07 \x1b[2J red[/bold] [link=x]y[/link] \u202eevil \r over \x9b31m winter"
    with SessionDB(home / "state.db") as db:
        db.create_session("h\x1b[1m", "s\x1b[1m", model="m\x9b1m", system_prompt=hostile)
        message = {"role": "r\x1b[1m", "tool_name": "t\x07", "content": hostile, "tool_calls": [hostile]}
        db.append_messages("h\x1b[1m", [message])
        db.create_session("child", "cli", parent_session_id="h\x1b[1m")
    for command in (
        ["list"],
        ["show", "h\x1b[1m", "--full"],
        ["search", "winter"],
        ["lineage", "child"],
        ["stats"],
    ):
        shown = run(*command).output
        assert not {c for c in shown if c in "\x1b\x07\x9b\u202e\r"}, command


def narrow(*arguments: str) -> list[str]:
    """The lines of a command on a terminal of 60 columns."""
    return process(*arguments, COLUMNS="60").stdout.splitlines()


def test_a_search_that_reached_its_limit_says_how_to_go_on(home: Path) -> None:
    assert run("search", "桂林", "--limit", "1").stderr == "1 hit; --offset 1 shows what comes after\n"
    assert run("search", "桂林", "--limit", "1", "--offset", "1").stderr.startswith("1 hit; --offset 2")
    assert run("search", "桂林", "--offset", "2").stderr == "no more hits\n"
    assert run("search", "桂林", "--limit", "-1").stderr == "2 hits\n"


def test_the_head_of_a_hit_is_one_line_with_its_place_however_long_the_title(home: Path) -> None:
    with SessionDB(home / "state.db") as db:
        db.set_session_title("other", "a very long title " * 5)
    head, snippet, *_ = narrow("search", "hello", "--no-context")
    assert head.startswith("other  user, telegram, ")
    assert "#7  a very long t" in head
    assert head.endswith("…")
    assert len(head) <= 60
    assert snippet.strip() == ">>>hello<<< there"


def test_what_check_found_is_never_cut(store: Path) -> None:
    with SessionDB(store) as db:
        db._conn.execute("UPDATE sessions SET message_count = 99")
    told = " ".join(" ".join(narrow("check", "--db", str(store))).split())
    (problem,) = answer("check", "--db", str(store), code=1)["problems"]
    assert "…" not in told
    assert all(word in told for word in problem["detail"].split())


def test_models_that_cost_nothing_come_by_their_tokens_and_sessions(home: Path) -> None:
    with SessionDB(home / "state.db") as db:
        db.create_session("x", "cli", model="aaa")
        for number in range(2):
            db.create_session(f"y{number}", "cli", model="bbb")
        db.update_token_counts("x", 0, 0)
    text = run("stats", "--no-sizes").stdout
    assert text.index("model-a") < text.index("model-b") < text.index("bbb") < text.index("aaa")
