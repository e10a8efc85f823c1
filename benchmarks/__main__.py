"""The benchmark command: ``python -m benchmarks [--short]``. See docs/benchmarks.md."""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import charts, corpus, report, rows_kernels, rows_read, rows_stalls, rows_write
from .runner import ROWS, SHORT_READS, SHORT_SECONDS, SHORT_WRITES, TABLES, Bench, Result, Row, Side, measure

MODULES = (rows_write, rows_read, rows_stalls, rows_kernels)
"""The modules whose import registers the rows."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument(
        "--short", action="store_true", help="small sizes, a subset of the rows, about a minute"
    )
    made.add_argument("--only", metavar="PATTERN", help="rows whose name has this regular expression")
    made.add_argument(
        "--size", metavar="SIZE[,SIZE...]",
        help="S, M, L or a number of messages: write rows run at the first, read rows at each",
    )  # fmt: skip
    made.add_argument("--pairs", type=int, help="runs of each side, in turn (3 in the short form, else 5)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the run as JSON")
    made.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown")
    made.add_argument("--charts", type=Path, metavar="DIR", help="draw the run as SVG files")
    made.add_argument(
        "--from", type=Path, metavar="FILE", action="append", dest="stored",
        help="run nothing, report what an earlier --json holds; again for more (a later file's rows count)",
    )  # fmt: skip
    made.add_argument(
        "--peer", metavar="PATH", help="a module file with a SessionDB, in the reference's place"
    )
    made.add_argument("--list", action="store_true", help="name the rows and goals, run nothing")
    made.add_argument("--bounds", type=Path, default=report.BOUNDS, help="the file of stored ratios")
    made.add_argument("--write-bounds", action="store_true", help="store this run's ratios (short form)")
    made.add_argument("--workspace", type=Path, metavar="DIR", help="a folder on the disk to measure")
    return made


def main(given: Sequence[str] | None = None) -> int:
    """Run the rows; 0 unless a ratio fell behind its stored bound by more than a third."""
    options = parser().parse_args(given)
    if options.stored:
        return _again(options)
    if options.pairs is not None and options.pairs < 1:
        parser().error("--pairs must be 1 or more")
    chosen = [row for row in in_order(ROWS) if not options.only or re.search(options.only, row.name)]
    if options.short:
        chosen = [row for row in chosen if row.short]
    if options.list:
        for row in chosen:
            print(f"{row.table:<22} {'short' if row.short else '     '} {row.name}")
        return 0
    if not chosen:
        parser().error("no row has that name")
    if options.write_bounds and (not options.short or options.peer or options.size):
        parser().error("bounds are ratios of the plain short form against the reference")
    return _run(options, chosen)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows by table, in the order in which they were registered."""
    return sorted(rows, key=lambda row: TABLES.index(row.table))


def _run(options: argparse.Namespace, chosen: list[Row]) -> int:
    sides = (Side("ours", "hermes_state"), Side("other", options.peer or "benchmarks.reference"))
    for side in sides:
        side.store_class()
    pairs = options.pairs or (3 if options.short else 5)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=options.workspace) as folder:
        about = report.facts("short" if options.short else "long", pairs, sides[1].module, Path(folder))
        for name, value in about.items():
            print(f"{name}: {value}")
        print(f"\n{report.text_heading()}")
        bench = Bench(Path(folder), short=options.short)
        bounds = report.read_bounds(options.bounds) if _bounded(options) else {}
        results: list[Result] = []
        for row, size in planned(chosen, options.size, bench):
            results += _measured(bench, row, sides, pairs, size, bounds)
    print(f"\n{len(results)} measures in {time.monotonic() - started:.0f} s; ratios are ours / compared with")
    _write(options, results, about)
    return _judge(results, bounds)


def _bounded(options: argparse.Namespace) -> bool:
    """Whether stored bounds are of this run's kind: the plain short form."""
    return bool(options.short and not options.peer and not options.size and not options.write_bounds)


def planned(chosen: list[Row], size: str | None, bench: Bench) -> Iterator[tuple[Row, str]]:
    """Each row with the label of its size, the bench set to it: read rows at M and L in the long form."""
    given = [int(part) if part.isdigit() else part for part in size.split(",")] if size else []
    for part in given:
        if isinstance(part, str) and part not in corpus.SIZES:
            raise SystemExit(f"--size must be S, M, L or a number, not {part!r}")
    write: str | int = given[0] if given else (SHORT_WRITES if bench.short else "S")
    bench.writes = corpus.SIZES[write] if isinstance(write, str) else write
    read_sizes: list[str | int] = given or ([SHORT_READS] if bench.short else ["M", "L"])
    for row in chosen:
        if row.table == "read":
            continue
        if row.table == "write":
            yield row, str(write)
    for read in read_sizes:
        bench.reads = read
        for row in chosen:
            if row.table == "read":
                yield row, str(read)
    for row in chosen:
        if row.table not in ("write", "read"):
            yield row, ""


@contextmanager
def _named(row: Row) -> Iterator[None]:
    """Say which row it was when one fails."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the row {row.name!r}")
        raise


MORE_LOOKS = 3
"""How often a row that is behind a bound is measured again; one that has grown slow is behind each time."""


def _measured(
    bench: Bench, row: Row, sides: tuple[Side, Side], pairs: int, size: str, bounds: dict[str, float]
) -> list[Result]:
    """The row's results, printed; a row behind a bound is looked at again, with twice the pairs."""
    with _named(row):
        results = measure(bench, row, sides, pairs, size, SHORT_SECONDS if bench.short else math.inf)
        for _ in range(MORE_LOOKS):
            if not any(report.behind(result, bounds) for result in results):
                break
            results = measure(bench, row, sides, 2 * pairs, size)
    for result in results:
        print(report.text_line(result), flush=True)
    return results


def _again(options: argparse.Namespace) -> int:
    """Report stored runs in one; the facts are those of the last."""
    found: dict[tuple[str, str], Result] = {}
    about: dict[str, object] = {}
    for path in options.stored:
        results, about = report.from_json(path)
        found |= {(result.key, result.size): result for result in results}
    print(report.text_heading())
    for result in found.values():
        print(report.text_line(result))
    _write(options, list(found.values()), about)
    return 0


def _write(options: argparse.Namespace, results: list[Result], about: dict[str, object]) -> None:
    if options.json:
        options.json.write_text(report.as_json(results, about), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(report.markdown(results, about), encoding="utf-8")
    if options.charts:
        for path in charts.write(results, options.charts):
            print(f"drawn: {path}")
    if options.write_bounds:
        report.write_bounds(results, options.bounds)


def _judge(results: list[Result], bounds: dict[str, float]) -> int:
    missed = [result for result in results if result.reached is False]
    if missed:
        print(f"{len(missed)} goals not reached (goals are for sizes S, M and L)")
    fallen = [result for result in results if report.behind(result, bounds)]
    for result in fallen:
        ratio = report.number(result.two_ratios[0])
        print(f"behind its bound {bounds[result.key]:g}: {result.key} is at {ratio}")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
