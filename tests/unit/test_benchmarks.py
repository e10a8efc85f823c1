"""The benchmark runner: rows cover the goals, sides run in turn, bounds judge ratios."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from benchmark_modules import (
    OURS,
    REFERENCE,
    ROOT,
    bench_corpus,
    command,
    report,
    result,
    rows_read,
    rows_stalls,
    runner,
)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    return runner.Bench(tmp_path, writes=40, reads=100)


# -- rows --


def test_every_table_of_the_goals_has_rows_and_each_row_belongs_to_one() -> None:
    tables = {row.table for row in runner.ROWS}
    assert tables <= set(runner.TABLES)
    assert tables >= {"write", "read", "stalls, size, memory"}


def test_every_row_has_a_goal_and_measures_of_different_names() -> None:
    for row in runner.ROWS:
        assert any(measure.goal for measure in row.measures), row.name
        assert len({measure.name for measure in row.measures}) == len(row.measures), row.name


def test_two_rows_may_not_share_a_name() -> None:
    taken = runner.ROWS[0].name
    with pytest.raises(ValueError, match="two rows"):
        runner.row(taken, "write", runner.Measure("total", "s"))(lambda bench, side: {})


# -- running in turn --


def test_the_sides_run_in_turn_and_each_pair_gives_one_ratio(bench: Any) -> None:
    order = []

    def run(_: Any, side: Any) -> dict[str, float]:
        order.append(side.name)
        return {"total": 3.0 if side.ours else 6.0}

    row = runner.Row("turns", "write", run, (runner.Measure("total", "s"),))
    (found,) = runner.measure(bench, row, (OURS, REFERENCE), 3, "S")
    assert order == ["ours", "other"] * 3
    assert found.ratios == (0.5, 0.5, 0.5)
    assert (found.ours, found.other, found.ratio) == (3.0, 6.0, 0.5)


def test_a_row_against_nothing_runs_on_our_side_alone(bench: Any) -> None:
    sides = []
    row = runner.Row(
        "alone", "write", lambda _, side: sides.append(side.name) or {"growth": 1.0},
        (runner.Measure("growth", "MB", runner.Goal(own=64)),), against="",
    )  # fmt: skip
    (found,) = runner.measure(bench, row, (OURS, REFERENCE), 2, "")
    assert sides == ["ours", "ours"]
    assert found.ratio is None
    assert found.reached is True


def test_a_baseline_runs_in_the_place_of_the_other_store(bench: Any) -> None:
    row = runner.Row(
        "beside", "write", lambda *_: {"total": 2.0}, (runner.Measure("total", "s"),),
        against="bare APSW", baseline=lambda *_: {"total": 8.0},
    )  # fmt: skip
    (found,) = runner.measure(bench, row, (OURS, REFERENCE), 1, "")
    assert found.ratio == 0.25


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_the_nearest_rank(share: float, value: float) -> None:
    assert runner.percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        runner.percentile([], 0.5)


@pytest.mark.parametrize(
    ("goal", "ours", "ratio", "reached"),
    [
        ({"most": 0.3}, 1.0, 0.3, True),
        ({"most": 0.3}, 1.0, 0.31, False),
        ({"most": 0.3}, 1.0, None, False),
        ({"least": 4.0}, 1.0, 4.0, True),
        ({"least": 4.0}, 1.0, 3.9, False),
        ({"own": 250.0}, 250.0, None, True),
        ({"most": 0.2, "own": 1000.0}, 1001.0, 0.1, False),
    ],
)
def test_a_goal_is_reached_when_all_its_parts_are(
    goal: dict[str, float], ours: float, ratio: float | None, reached: bool
) -> None:
    assert runner.Goal(**goal).reached(ours, ratio) is reached


def test_no_further_pair_begins_when_the_time_of_a_row_is_over(bench: Any) -> None:
    order = []
    row = runner.Row(
        "slow",
        "write",
        lambda _, side: order.append(side.name) or {"total": 1.0},
        (runner.Measure("total", "s"),),
    )
    (found,) = runner.measure(bench, row, (OURS, REFERENCE), 3, "S", seconds=-1.0)
    assert order == ["ours", "other"]
    assert found.ratios == (1.0,)


def test_a_result_has_the_best_runs_and_the_least_of_repeated_calls(bench: Any) -> None:
    values = iter([(9.0, 2.0), (10.0, 8.0), (3.0, 3.0), (10.0, 4.0)])

    def run(*_: Any) -> dict[str, float]:
        time, least = next(values)
        return {"time": time, "time.least": least}

    row = runner.Row("calls", "read", run, (runner.Measure("time", "ms"),))
    (found,) = runner.measure(bench, row, (OURS, REFERENCE), 2, "S")
    assert found.best == (2.0, 4.0)
    assert found.two_ratios == (0.5, pytest.approx(0.6))


def test_rows_of_latencies_keep_the_percentiles_of_both_sides(bench: Any) -> None:
    def run(_: Any, side: Any) -> dict[str, float]:
        return runner.percentiles([0.001 if side.ours else 0.002] * 9 + [1.0])

    row = runner.Row("tail", "write", run, (runner.Measure("p99", "ms", latencies=True),))
    (found,) = runner.measure(bench, row, (OURS, REFERENCE), 1, "S")
    assert found.percentiles == {
        "ours": {"p50": 1.0, "p90": 1.0, "p99": 1000.0, "max": 1000.0},
        "other": {"p50": 2.0, "p90": 2.0, "p99": 1000.0, "max": 1000.0},
    }


def test_processor_time_is_of_the_chosen_clock() -> None:
    clock = iter([2.0, 5.5])
    with runner.Cpu(lambda: next(clock)) as cpu:
        pass
    assert cpu.seconds == 3.5


# -- data and files --


def test_both_sides_read_the_same_file_and_ours_has_indexed_it(bench: Any) -> None:
    found = [rows_read.read_file(bench, side) for side in (OURS, REFERENCE)]
    rows = []
    for path in found:
        with closing(sqlite3.connect(path)) as conn:
            rows.append(conn.execute("SELECT id, session_id, content FROM messages ORDER BY id").fetchall())
            assert conn.execute("SELECT count(*) FROM messages_fts").fetchone()[0] == 100
    assert found[0] != found[1]
    assert rows[0] == rows[1]
    assert rows_read.read_file(bench, OURS) == found[0]


def test_the_read_data_have_their_size_and_their_two_long_sessions() -> None:
    made = list(rows_read.sessions(1_000))
    lengths = {session["id"]: len(session["messages"]) for session in made}
    assert sum(lengths.values()) == 1_000
    assert (lengths["bench-middle"], lengths["bench-long"]) == (100, 400)


def test_a_run_on_a_copy_leaves_the_prepared_file_alone(bench: Any) -> None:
    path = rows_read.read_file(bench, OURS)
    before = path.read_bytes()
    with bench.copied(path) as copy, OURS.open(copy) as store:
        store.create_session("new", "cli")
    assert path.read_bytes() == before
    assert not copy.exists()


def test_a_file_that_is_moved_into_the_past_has_old_ended_sessions_and_v11s_triggers(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    bench_corpus.bulk_load(path, bench_corpus.build(60))
    with closing(sqlite3.connect(path)) as conn:
        triggers = set(conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        sessions = conn.execute("SELECT count(*) FROM sessions").fetchone()[0]
    runner.shift_into_past(path, 200)
    with closing(sqlite3.connect(path)) as conn:
        assert set(conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")) == triggers
        conn.execute("INSERT INTO messages_fts(messages_fts) VALUES ('integrity-check')")
    with OURS.open(path) as store:
        assert store.prune_sessions(90) == sessions


def test_a_version_10_file_is_upgraded_by_both_sides(tmp_path: Path) -> None:
    for side in (OURS, REFERENCE):
        path = tmp_path / f"{side.name}.db"
        bench_corpus.bulk_load(path, bench_corpus.build(60))
        rows_stalls.to_version_10(path)
        side.open(path).close()
        with closing(sqlite3.connect(path)) as conn:
            assert conn.execute("SELECT version FROM schema_version").fetchone() == (11,)
            assert conn.execute("SELECT count(*) FROM messages_fts_content").fetchone() == (60,)


# -- bounds --


def test_a_ratio_is_behind_its_bound_only_when_worse_by_more_than_a_third() -> None:
    bounds = {"a row: total": 0.3}
    assert not report.behind(result((0.1, 0.39, 0.9)), bounds)
    assert report.behind(result((0.1, 0.41, 0.9)), bounds)
    assert not report.behind(result((5.0,)), {})
    rates = {"a row: total": 4.0}
    assert not report.behind(result((3.1,), unit="reads/s"), rates)
    assert report.behind(result((2.9,), unit="reads/s"), rates)


def test_a_ratio_is_not_behind_when_the_best_runs_are_not() -> None:
    disturbed = runner.Result(
        "a row",
        "write",
        "S",
        "reference",
        runner.Measure("total", "s"),
        1.0,
        2.0,
        (0.5, 0.9),
        best=(0.3, 1.0),
    )
    assert not report.behind(disturbed, {"a row: total": 0.3})
    assert report.behind(disturbed, {"a row: total": 0.2})


def test_written_bounds_are_the_worse_ratio_and_keep_the_rows_that_did_not_run(tmp_path: Path) -> None:
    path = tmp_path / "bounds.json"
    path.write_text('{"another: total": 0.5}', encoding="utf-8")
    report.write_bounds([result((0.2, 0.3, 0.25))], path)
    assert report.read_bounds(path) == {"another: total": 0.5, "a row: total": 0.25}
    report.write_bounds([result((5.0, 4.0), unit="reads/s")], path)
    assert report.read_bounds(path)["a row: total"] == 4.5


def test_written_bounds_are_no_stricter_than_a_quarter_of_the_goal(tmp_path: Path) -> None:
    path = tmp_path / "bounds.json"
    report.write_bounds([result((0.01,), most=0.2)], path)
    assert report.read_bounds(path) == {"a row: total": 0.05}
    report.write_bounds([result((99.0,), unit="reads/s", least=4.0)], path)
    assert report.read_bounds(path) == {"a row: total": 16.0}


def test_nothing_that_waits_for_the_disk_is_bounded() -> None:
    waits = [row for row in runner.ROWS if row.table in ("write", "stalls, size, memory") and row.short]
    bounded = {measure.name for row in waits for measure in row.measures if measure.bound}
    assert bounded == {"cpu", "file"}


def test_the_stored_bounds_are_of_rows_of_the_short_form() -> None:
    short = {
        f"{row.name}: {what.name}" for row in runner.ROWS if row.short for what in row.measures if what.bound
    }
    stored = {key for key in report.read_bounds() if "pure twin" not in key and "json.dumps" not in key}
    assert stored
    assert stored <= short


# -- the report --


def test_a_line_tells_ours_theirs_ratio_goal_and_whether_it_is_reached() -> None:
    line = report.text_line(result((0.25,), most=0.28))
    assert line.split() == [
        "a", "row:", "total", "[S]", "1", "s", "4", "s", "(reference)", "0.25", "≤", "0.28", "yes",
    ]  # fmt: skip
    assert report.text_line(result((0.5,), most=0.28)).endswith("NO")


def test_the_markdown_has_one_table_for_each_table_of_the_goals() -> None:
    text = report.markdown([result((0.25,), most=0.28)], {"cpus": 2})
    assert "## Write" in text
    assert "| a row: total [S] | 1 s | 4 s (reference) | 0.25 | ≤ 0.28 | yes |" in text


def test_a_run_is_read_back_from_its_json(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    latency = runner.Result(
        "append", "write", "S", "reference",
        runner.Measure("p99", "ms", runner.Goal(most=0.1), latencies=True), 1.0, 2.0, (0.5,), (1.0, 2.0),
        {"ours": dict.fromkeys(runner.PERCENTILES, 1.0), "other": dict.fromkeys(runner.PERCENTILES, 2.0)},
    )  # fmt: skip
    alone = runner.Result("alone", "write", "", "", runner.Measure("growth", "MB"), 1.0, None, ())
    path.write_text(report.as_json([latency, alone], {"cpus": 2}), encoding="utf-8")
    assert report.from_json(path) == ([latency, alone], {"cpus": 2})


def test_the_page_names_every_row_and_every_option() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for row in runner.ROWS:
        for part in row.name.removeprefix("query: ").rsplit(": ", 1):
            assert part in text, row.name
    for action in command.parser()._actions:
        assert all(f"`{name}" in text for name in action.option_strings if name not in ("-h", "--help"))


# -- the command --


def test_listing_names_rows_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "^1 MB"]) == 0
    assert capsys.readouterr().out.split(maxsplit=2) == ["write", "short", "1 MB message, acknowledged\n"]


def test_a_run_against_a_peer_is_written_as_json_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = tmp_path / "another_store.py"
    peer.write_text("from benchmarks.reference import SessionDB as SessionDB\n", encoding="utf-8")
    as_json, as_markdown = tmp_path / "run.json", tmp_path / "run.md"
    code = command.main(
        ["--only", "acknowledged$", "--size", "32", "--pairs", "1", "--peer", str(peer), "--short",
         "--workspace", str(tmp_path), "--json", str(as_json), "--markdown", str(as_markdown),
         "--charts", str(tmp_path / "charts")]
    )  # fmt: skip
    run = json.loads(as_json.read_text(encoding="utf-8"))
    assert code == 0
    assert run["compared with"] == str(peer)
    assert {"python", "apsw", "sqlite (apsw)", "hermes-state", "commit", "cpus"} <= run.keys()
    measured = {(row["row"], row["measure"]) for row in run["results"]}
    assert ("append_message, 1 thread, acknowledged", "p99") in measured
    assert all(row["ours"] > 0 and row["other"] > 0 and len(row["ratios"]) == 1 for row in run["results"])
    assert "## Write" in as_markdown.read_text(encoding="utf-8")
    assert "append_message, 16 threads, acknowledged: total [32]" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["charts"]
    written = sorted(path.name for path in (tmp_path / "charts").iterdir())
    assert written == ["latency.svg", "ratios-write.svg"]
    assert command.main(["--from", str(as_json), "--charts", str(tmp_path / "again")]) == 0
    for name in written:
        first, again = ((tmp_path / folder / name).read_text("utf-8") for folder in ("charts", "again"))
        assert first == again


def test_the_exit_code_is_1_when_a_ratio_fell_behind_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    fallen = result((0.5,), most=0.28)
    assert command._judge([fallen], {"a row: total": 0.3}) == 1
    assert "behind its bound 0.3: a row: total is at 0.5" in capsys.readouterr().out
    assert command._judge([fallen], {"a row: total": 0.4}) == 0


@pytest.mark.parametrize(("slow", "looks"), [(2, 1), (6, 2), (10, 3), (100, 3)])
def test_a_row_behind_its_bound_is_looked_at_again_with_twice_the_pairs(
    bench: Any, slow: int, looks: int
) -> None:
    """``slow`` runs, of both sides, pass before ours is quick."""
    runs = []

    def run(_: Any, side: Any) -> dict[str, float]:
        runs.append(side.name)
        return {"total": 1.0 if side.ours and len(runs) > slow else 2.0}

    row = runner.Row("a row", "write", run, (runner.Measure("total", "s"),))
    (found,) = command._measured(bench, row, (OURS, REFERENCE), 1, "S", {"a row: total": 0.5})
    assert len(runs) == 2 + looks * 4
    assert found.ratio == (0.5 if slow <= 10 else 1.0)


@pytest.mark.parametrize("wrong", [["--only", "no such row"], ["--pairs", "0"], ["--write-bounds"]])
def test_wrong_arguments_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(wrong)


def test_an_unknown_size_is_refused(bench: Any) -> None:
    with pytest.raises(SystemExit, match="--size"):
        list(command.planned(runner.ROWS, "XL", bench))


def test_read_rows_run_at_m_and_l_in_the_long_form_and_all_at_a_given_size(bench: Any) -> None:
    rows = [row for row in runner.ROWS if row.name in ("search_sessions()", "1 MB message, acknowledged")]
    assert [size for _, size in command.planned(rows, "250", bench)] == ["250", "250"]
    assert [size for _, size in command.planned(rows, "S,M,700", bench)] == ["S", "S", "M", "700"]
    assert bench.writes == 10_000
    bench.short = False
    assert [size for _, size in command.planned(rows, None, bench)] == ["S", "M", "L"]
