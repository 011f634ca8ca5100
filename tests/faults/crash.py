"""Crash at every statement: a forked child dies before or after its n-th statement or COMMIT.

The parent then looks at what was committed, lets the product recover, and looks again. The loop
ends where the child comes through. No code of the product takes part in it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from hermes.lib import hints
from tests.states import State, violations

T = TypeVar("T")

DIED = 137
# The small size takes each third point, in turn one before a statement and one behind another.
EVERY = 1 if os.environ.get("HERMES_TEST_SIZE") == "full" else 3


@dataclass
class Count:
    """What a run of crash points came to."""

    points: int = 0


total = Count()


def _fresh_connections() -> None:
    """Forget the parent's connections without ending them: the sockets are shared."""
    DatabaseWrapper._connection_pools = {}
    for alias in connections:
        connections[alias].connection = None
        connections[alias].close_if_unusable_or_obsolete()


def _without_hints() -> None:
    """A child has no broker: whatever it would have sent is lost, which must not matter."""
    hints.enqueue = lambda *_: False  # type: ignore[assignment]
    hints.push = lambda *_: None  # type: ignore[assignment]


def _arm(die_at: int) -> Callable[[], int]:
    """Die before statement k for die_at = 2k, after it for 2k + 1; commits count as statements."""
    seen = 0

    def around(call: Callable[[], T]) -> T:
        nonlocal seen
        if die_at == 2 * seen:
            os._exit(DIED)
        result = call()
        if die_at == 2 * seen + 1:
            os._exit(DIED)
        seen += 1
        return result

    def wrapper(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        return around(lambda: execute(sql, params, many, context))

    connection.execute_wrappers.append(wrapper)
    commit = connection._commit
    connection._commit = lambda: around(commit)
    return lambda: seen


def in_child(act: Callable[[], object], die_at: int) -> int:
    """Run ``act`` in a forked child that dies at a point; return its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _fresh_connections()
            _without_hints()
            _arm(die_at)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def crash_everywhere(
    setup: Callable[[], State],
    act: Callable[[State], object],
    *,
    recover: Callable[[State], object],
    check: Callable[[State, bool], object],
) -> int:
    """Crash ``act`` at every point; after each, invariants hold, and after recovery ``check`` does.

    ``check`` is told whether the child came through. Return up to which point it was crashed.
    """
    points = 0
    while True:
        state = setup()
        code = in_child(lambda: act(state), points)  # noqa: B023 - forked at once
        assert code in {0, DIED}, f"the child failed by itself at point {points}"
        assert violations(state) == []
        recover(state)
        assert violations(state) == []
        check(state, code == 0)
        if code == 0:
            return points
        total.points += 1
        points += EVERY
