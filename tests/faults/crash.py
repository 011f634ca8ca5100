"""Crash at every statement: a forked child dies before or after its n-th statement or COMMIT.

The parent then looks at what was committed, lets the product recover, and looks again. The loop
ends where the child comes through. No code of the product takes part in it.

After that the connection is lost at each COMMIT in turn, before it arrives and instead of its
answer: the child lives, and has to come through as if nothing had happened.
"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from django.db import OperationalError, connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from hermes.lib import hints
from tests.states import State, violations

T = TypeVar("T")

DIED = 137
CAME_THROUGH = 0
EMPTY = 10  # came through, and returned nothing or False
UNTOUCHED = 20
# The small size takes each third point, in turn one before a statement and one behind another.
EVERY = 1 if os.environ.get("HERMES_TEST_SIZE") == "full" else 3


@dataclass
class Count:
    """What a run of crash points came to."""

    points: int = 0
    answers: int = 0  # connections that were lost at a COMMIT


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


@contextmanager
def losing(*, number: int = 0, arrives: bool = True) -> Iterator[Callable[[], bool]]:
    """Lose the connection at the COMMIT with this number, instead of its answer or before it.

    Yields whether it came.
    """
    seen = 0
    commit = connection._commit

    def lossy() -> None:
        nonlocal seen
        seen += 1
        if arrives or seen != number + 1:
            commit()
        if seen == number + 1:
            connection.connection.close()
            try:
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            except psycopg.OperationalError as cause:
                raise OperationalError(str(cause)) from cause

    connection._commit = lossy
    try:
        yield lambda: seen > number
    finally:
        del connection._commit


def in_child(
    act: Callable[[], object], die_at: int | None = None, *, lost: tuple[int, bool] | None = None
) -> int:
    """Run ``act`` in a forked child that dies at a point, or loses one COMMIT; its exit code.

    That is CAME_THROUGH or EMPTY by what ``act`` returned, and UNTOUCHED more if the COMMIT that
    was to be lost did not come.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _fresh_connections()
            _without_hints()
            if die_at is not None:
                _arm(die_at)
            if lost is None:
                code = CAME_THROUGH if act() else EMPTY
            else:
                number, arrives = lost
                with losing(number=number, arrives=arrives) as is_lost:
                    code = CAME_THROUGH if act() else EMPTY
                    code += 0 if is_lost() else UNTOUCHED
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
        assert code in {CAME_THROUGH, EMPTY, DIED}, f"the child failed by itself at point {points}"
        came_through = code != DIED
        assert violations(state) == []
        recover(state)
        assert violations(state) == []
        check(state, came_through)
        if came_through:
            break
        total.points += 1
        points += EVERY
    for arrives in (True, False):
        _lose_each(arrives, setup, act, recover=recover, check=check, expected=code)
    return points


def _lose_each(
    arrives: bool,
    setup: Callable[[], State],
    act: Callable[[State], object],
    *,
    recover: Callable[[State], object],
    check: Callable[[State, bool], object],
    expected: int,
) -> None:
    """Lose the connection at each COMMIT of ``act``, one a run: it comes through all the same."""
    for number in itertools.count():
        state = setup()
        code = in_child(lambda: act(state), lost=(number, arrives))  # noqa: B023 - forked at once
        if code == expected + UNTOUCHED:
            return
        assert code == expected, f"COMMIT {number}, {arrives=}"
        total.answers += 1
        assert violations(state) == []
        recover(state)
        assert violations(state) == []
        check(state, True)
