"""SQL is constant text with bound values; nothing of a caller, a file or a message becomes code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state import SessionDB
from hermes_state.engine import opening
from hermes_state.engine.identity import Place

SRC = Path(__file__).resolve().parents[2] / "src"
FILES = sorted(SRC.rglob("*.py"))
CALLS = {"execute", "executemany"}
SQL_ARGUMENT = {"rows": 1, "dicts": 1, "one": 1, "scalar": 1, "column": 1}

# The places where SQL is put together at run time, and why what goes in is ours alone. A new one fails
# the test until it stands here.
BUILT = {
    "engine/face.py": "the statement of the program that calls _conn",
    "schema/columns.py": "names and declarations of SCHEMA_SQL; a parameter of a private in-memory database",
    "schema/migrate.py": "names and scripts of schema/ddl.py",
    "schema/renew.py": "names of schema/ddl.py, and an index name from the schema, quoted",
    "search/compile.py": "parts that are constants of that file",
    "search/forgetting.py": "names of search/tables.py, and constants of search/",
    "search/health.py": "names of search/tables.py",
    "search/indexing.py": "names of search/tables.py",
    "search/recent.py": "parts that are constants of search/",
    "search/run.py": "parts that are constants of search/",
    "search/scan.py": "parts that are constants of search/filters.py",
    "search/filters.py": "constants",
    "store/imports.py": "columns that the live table has, quoted",
    "store/messages.py": "columns of _fastpath/encode.py",
    "store/telegram_schema.py": "constants of that file, one after the other",
    "store/rows.py": "the caller's constant, wrapped",
    "transfer/backup.py": "constants of that file, one after the other",
    "transfer/salvage.py": "column names of the damaged file that our schema has too, quoted",
}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in FILES:
        name = path.relative_to(SRC).as_posix().removeprefix("hermes_state/")
        yield name, ast.parse(path.read_text("utf-8"))


def bound_here(function: ast.AST) -> dict[str, list[ast.expr]]:
    """Name -> what the function assigns to it, where that is all that gives it a value."""
    out: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    out.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            out.setdefault(node.target.id, []).append(node.value)
    arguments = getattr(function, "args", None)
    if arguments is not None:
        for argument in [*arguments.args, *arguments.kwonlyargs, *arguments.posonlyargs]:
            out.pop(argument.arg, None)
    return out


def is_constant(node: ast.expr, local: dict[str, list[ast.expr]]) -> bool:
    """Whether the SQL is a literal, a constant by its name, a local of such, or made of such."""

    def also(part: ast.expr) -> bool:
        return is_constant(part, local)

    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name):
        return node.id.lstrip("_").isupper() or (node.id in local and all(map(also, local[node.id])))
    if isinstance(node, ast.Attribute):
        return node.attr.lstrip("_").isupper()
    if isinstance(node, ast.Subscript):
        return also(node.value)
    if isinstance(node, ast.BinOp):
        return also(node.left) and also(node.right)
    if isinstance(node, ast.IfExp):
        return also(node.body) and also(node.orelse)
    if isinstance(node, ast.JoinedStr):
        return all(also(v.value) for v in node.values if isinstance(v, ast.FormattedValue))
    if isinstance(node, ast.Call):
        # A function whose name ends in _sql chooses among constants.
        return isinstance(node.func, ast.Name) and node.func.id.endswith("_sql")
    return False


def statements(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.expr, dict[str, list[ast.expr]]]]:
    """Every call that runs SQL, the SQL, and the local names of the function around it."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside: dict[int, dict[str, list[ast.expr]]] = {}
    for function in functions:
        inside.update(dict.fromkeys(map(id, ast.walk(function)), bound_here(function)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        local = inside.get(id(node), {})
        if isinstance(called, ast.Attribute) and called.attr in CALLS:
            yield node, node.args[0], local
        elif isinstance(called, ast.Name) and called.id in SQL_ARGUMENT and len(node.args) > 1:
            yield node, node.args[1], local


def test_every_statement_is_constant_or_its_parts_are_ours() -> None:
    checked = 0
    built: dict[str, list[str]] = {}
    for name, tree in trees():
        for node, sql, local in statements(tree):
            checked += 1
            if not is_constant(sql, local):
                built.setdefault(name, []).append(f"line {node.lineno}: {ast.unparse(sql)}")
    assert checked > 150
    new = {name: where for name, where in built.items() if name not in BUILT}
    assert not new, "SQL is put together at run time in new places"


@pytest.mark.parametrize(
    "value", ["'; DROP TABLE sessions; --", "a' OR '1'='1", '"', "%", "_", "*", "x\x00y", "NULL", "?1"]
)
def test_no_text_of_a_caller_is_ever_sql(tmp_path: Path, value: str) -> None:
    with SessionDB(tmp_path / "state.db") as db:
        db.create_session(value, value, model=value, user_id=value)
        db.create_session("other", "cli")
        db.append_message(value, value, value, tool_name=value, tool_call_id=value)
        db.set_meta(value, value)
        assert db.get_meta(value) == value
        db.search_messages(value, [value], [value], [value], sort=value)
        db.search_sessions(value)
        db.list_sessions_rich(source=value, exclude_sources=[value])
        db.prune_sessions(1, source=value)
        db.request_handoff(value, value)
        db.resolve_session_id(value)
        db.get_session_by_title(value)
        assert db.session_count() == 2
        assert db.message_count(value) == 1
        assert db.delete_session(value)
        assert db.get_session("other") is not None


def test_no_module_evaluates_or_unpickles() -> None:
    forbidden = {"pickle", "marshal", "shelve", "dill"}
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not forbidden & {alias.name.split(".")[0] for alias in node.names}, name
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, name
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile", "__import__"}, f"{name}:{node.lineno}"
            elif isinstance(node, ast.Attribute):
                assert node.attr not in {"system", "popen"}, f"{name}:{node.lineno}"


def connections(path: Path) -> dict[str, apsw.Connection]:
    place = Place(path)
    place.note()
    return {
        "writer": opening.connect_writer(path, durability="full", triggers=False),
        "face": opening.connect_writer(path, durability="full", triggers=True),
        "reader": opening.connect_reader(place, readonly=False),
        "appender": opening.connect_appender(place, durability="full"),
    }


def test_every_connection_is_guarded(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SessionDB(path).close()
    for role, conn in connections(path).items():
        assert conn.execute("PRAGMA trusted_schema").fetchone() == (0,), role
        assert conn.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, -1) == 0, role
        with pytest.raises(apsw.SQLError, match="not authorized"):
            conn.execute("SELECT load_extension('x')")
        assert conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == int(role != "face"), role
        assert conn.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, -1) == int(role == "face"), role
        if role != "face":
            with pytest.raises(apsw.SQLError, match="may not be modified"):
                conn.execute("DELETE FROM messages_fts_data")
        conn.close()


def test_the_index_is_kept_rebuilt_and_merged_in_defensive_mode(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        for i in range(20):
            db.append_message("s", "user", f"word{i} 中文 修改youer服务端")
        db.rebuild_index()
        db.set_trigram_mode("unspaced")
        db.replace_messages("s", [{"role": "user", "content": "only this 桂林"}])
        db.optimize()
        assert len(db.search_messages("桂林")) == 1
        assert db.check()["ok"]


def test_what_a_message_says_stays_text(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    text = "'); DELETE FROM messages; -- {x} %s $(rm) `id` <script> \\"
    any_db.append_message("s", "user", text)
    assert any_db.get_messages("s")[0]["content"] == text
    assert any_db.message_count() == 1
