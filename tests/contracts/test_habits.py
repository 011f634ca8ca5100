"""Habits that a reader of docs/architecture.md may rely on, held by the syntax of the code."""

from __future__ import annotations

import ast
import re

from .sources import called, modules, page, section

# SQL that the ORM cannot say; each entry with why.
RAW_SQL = {
    "hermes/checks.py": "asks the server for its version and limits",
    "hermes/dashboard/health.py": "what the server tells of itself, timed",
    "hermes/lib/db.py": "the database's clock",
    "hermes/lib/lists.py": "the planner's estimate of a table's rows; its values, one by one",
    "hermes/lib/migrations.py": "removes what is left of an index",
    "hermes/lib/viewers.py": "the logins of all open sockets in one query",
    "hermes/management/commands/doctor.py": "asks the server for its version",
    "hermes/management/servers/postgres.py": "makes role and database",
    "hermes/pool.py": "the check of a connection, as its library does it",
    "hermes/web/numbers.py": "the numbers of all open sockets in one query",
    "hermes/web/probes.py": "a sign of life",
    "hermes/web/reading.py": "one snapshot for several reads",
    "sessions_app/intake/chats.py": "a branch copies its rows in one statement",
    "sessions_app/intake/turns.py": "what is asked before every message, in one query",
    "sessions_app/transcript/rows.py": "lifts the guard of the history, for sample data",
    "sessions_app/transcript/turns.py": "a chunk is inserted only while its run is held",
}
# ``transaction.atomic`` outside intake and the single writers.
ATOMIC = {
    "sessions_app/records.py": "what a form writes and the line about it are one",
    "sessions_app/admin.py": "a new password and the line about it are one",
    "hermes/dashboard/admin.py": "what is done to rows of the desk and the line about it are one",
    "hermes/dashboard/factors.py": "a second factor and the line about it are one",
    "hermes/lib/db.py": "names it in words only",
    "hermes/management/commands/demo.py": "the sample chats come whole, or not at all",
    "hermes/web/reading.py": "a snapshot that only reads",
    "sessions_app/periodic.py": "a savepoint round the first insert of a periodic row",
}
WRITERS = (
    "sessions_app/intake/",
    "sessions_app/transcript/",
    "compression_app/intake",
    "compression_app/fence",
    "processes_app/intake/",
    "processes_app/verdicts",
)


def test_async_stays_at_the_edge() -> None:
    text = section(page("docs/architecture.md"), "The async line")
    allowed = set(re.findall(r"`(hermes/[\w/]+\.py)`", text))
    found = {
        path
        for path, tree in modules().items()
        if any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree))
    }
    assert found == allowed


def test_every_lock_leaves_foreign_keys_free() -> None:
    locks = [
        (path, node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if called(node) == "select_for_update"
    ]
    plain = [
        f"{path}:{node.lineno}"
        for path, node in locks
        if not any(
            keyword.arg == "no_key" and getattr(keyword.value, "value", False) is True
            for keyword in node.keywords
        )
    ]
    assert locks
    assert plain == []


def test_sql_is_written_by_hand_only_where_it_is_known() -> None:
    found = {
        path
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if called(node) in {"execute", "executemany", "RawSQL", "raw", "extra", "copy"}
        and (called(node) not in {"copy", "extra", "raw"} or _on_objects(node))
    }
    assert found - set(RAW_SQL) == set()


def _on_objects(node: ast.Call) -> bool:
    """Whether this is called on a manager or a QuerySet, as far as can be seen."""
    return "objects" in ast.unparse(node.func)


def test_transactions_are_opened_only_by_intake_and_the_single_writers() -> None:
    found = {
        path
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "transaction.atomic"
    }
    assert {path for path in found if not path.startswith(WRITERS)} - set(ATOMIC) == set()


def test_no_status_is_set_by_hand() -> None:
    """``row.status = …`` writes without looking; ``advance`` is the only way."""
    by_hand = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path.startswith("sessions_app/") and path != "sessions_app/transcript/turns.py"
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Attribute) and name.attr == "status"
    ]
    assert by_hand == []


def test_rows_are_saved_with_the_columns_that_are_meant() -> None:
    bare = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path.startswith("sessions_app/") and path != "sessions_app/admin.py"
        for node in ast.walk(tree)
        if called(node) == "save"
        and not {"update_fields", "force_insert"} & {keyword.arg for keyword in node.keywords}
    ]
    # A new row, or a row that is either new or brought to given values.
    known = {"sessions_app/intake/chats.py", "sessions_app/intake/endpoints.py"}
    assert {line.split(":")[0] for line in bare} - known == set()


def test_what_others_call_says_what_is_true_afterwards() -> None:
    silent = []
    for path, tree in modules().items():
        if not path.startswith((*WRITERS, "hermes/lib/", "sessions_app/domain/")):
            continue
        assert ast.get_docstring(tree) or not tree.body, path
        for node in tree.body:
            named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            if named and not node.name.startswith("_") and not ast.get_docstring(node):
                silent.append(f"{path}: {node.name}")
    assert silent == []
