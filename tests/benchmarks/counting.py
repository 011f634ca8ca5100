"""Counting instead of timing: statements by who sent them, and rows that the server touched."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

from hermes import env

OURS = ("sessions_app", "compression_app", "processes_app", "hermes")
TABLE = re.compile(r'(?:FROM|INTO|UPDATE) "(\w+)"')
PASSED_OVER = ("/hermes/lib/", "/models/", "/models.py")


@dataclass
class Queries:
    """Statements in the order in which they were sent, each named."""

    names: list[str] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self.names)

    def log(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        """An execute wrapper that notes the statement."""
        with self._guard:
            self.names.append(f"{_sender()}: {_said(str(sql))}")
        return execute(sql, params, many, context)

    def told(self) -> list[str]:
        """The names with how often each came."""
        return [f"{count} × {name}" for name, count in Counter(self.names).items()]


def _sender() -> str:
    """The function of ours from which a statement comes."""
    frame = sys._getframe(2)
    found = "django"
    while frame is not None:
        path = frame.f_code.co_filename
        is_ours = path.startswith(str(env.BASE)) and "/.venv/" not in path
        if is_ours and "/tests/" not in path:
            short = path[len(str(env.BASE)) + 1 : -3].replace("/", ".")
            found = f"{short}.{frame.f_code.co_name}"
            if not any(each in path for each in PASSED_OVER):
                return found
        frame = frame.f_back
    return found


def _said(sql: str) -> str:
    verb = sql.split(None, 1)[0].upper()
    table = TABLE.search(sql)
    lock = " for update" if "FOR NO KEY UPDATE" in sql else ""
    return f"{verb} {table[1] if table else ''}{lock}".strip()


@contextmanager
def counted() -> Iterator[Queries]:
    """Count the statements of every thread of this process while inside."""
    queries = Queries()

    def hook(connection: Any, **_: Any) -> None:
        if queries.log not in connection.execute_wrappers:
            connection.execute_wrappers.append(queries.log)
            threads.append(connection)

    threads: list[Any] = []
    hook(connection)
    connection_created.connect(hook)
    try:
        yield queries
    finally:
        connection_created.disconnect(hook)
        for each in threads:
            each.execute_wrappers.remove(queries.log)


@dataclass
class Touched:
    """What SELECTs made the server read."""

    rows: int = 0  # read by scans, what a filter threw away included
    scanned: set[str] = field(default_factory=set)  # tables that were read from end to end
    statements: int = 0


@contextmanager
def touching() -> Iterator[Touched]:
    """Explain every SELECT of this thread while inside, before it runs.

    Pages cost here what they cost in memory: some thousand rows are else quicker read from end to
    end than by an index, which says nothing of a million.
    """
    touched = Touched()

    def explain(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        if str(sql).startswith("SELECT"):
            with connection.connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
                plan = cursor.fetchone()[0]
            plan = json.loads(plan) if isinstance(plan, str) else plan
            _walk(plan[0]["Plan"], touched)
            touched.statements += 1
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("SET random_page_cost = 1.1")
    try:
        with connection.execute_wrapper(explain):
            yield touched
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET random_page_cost")


def _walk(node: dict[str, Any], touched: Touched) -> None:
    if "Relation Name" in node or "Index Name" in node:
        loops = node.get("Actual Loops", 1)
        removed = node.get("Rows Removed by Filter", 0)
        touched.rows += round((node.get("Actual Rows", 0) + removed) * loops)
        if node["Node Type"] == "Seq Scan":
            touched.scanned.add(node["Relation Name"])
    for child in node.get("Plans", ()):
        _walk(child, touched)


def rows_touched(call: Callable[[], object]) -> Touched:
    """What the server reads for a call."""
    with touching() as touched:
        call()
    return touched
