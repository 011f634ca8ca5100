"""Interleavings of two actors, statement by statement, on two real connections.

An actor runs in a thread whose every statement (and COMMIT) waits until the schedule lets it go.
All schedules with at most two preemptions are run: actor ``a`` takes i steps, ``b`` takes j, ``a``
goes on to its end, then ``b``. A step that waits for the other's lock is noticed in the database,
and the other goes on instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.db import connection

from tests.states import State, violations

T = TypeVar("T")

PATIENCE = 10.0  # seconds after which a schedule that does not end is a failure


@dataclass
class Count:
    """What all explorations of this run came to."""

    schedules: int = 0
    by_pair: dict[str, int] = field(default_factory=dict)


total = Count()


class Actor:
    """One side, held at each of its statements."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._turn = threading.Condition()
        self._allowed = 0  # statements that may begin
        self.reached = 0  # statements that were reached
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self.backend = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self._settle(1)

    def _run(self) -> None:
        try:
            connection.ensure_connection()
            self.backend = connection.connection.info.backend_pid
            connection.execute_wrappers.append(self._statement)
            commit = connection._commit
            connection._commit = lambda: self._gate(commit)
            try:
                self.result = self._call()
            finally:
                del connection._commit
                connection.execute_wrappers.remove(self._statement)
        except BaseException as error:
            self.error = error
        finally:
            connection.close()
            with self._turn:
                self.done = True
                self._turn.notify_all()

    def _statement(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        return self._gate(lambda: execute(sql, params, many, context))

    def _gate(self, call: Callable[[], T]) -> T:
        with self._turn:
            self.reached += 1
            self._turn.notify_all()
            mine = self.reached
            self._turn.wait_for(lambda: self._allowed >= mine, timeout=PATIENCE)
        return call()

    def _settle(self, until: int) -> bool:
        """Wait until the actor stands at its next statement or is done; False while it does not."""
        with self._turn:
            return self._turn.wait_for(lambda: self.done or self.reached >= until, timeout=0.004)

    def step(self) -> bool:
        """Let one statement go; False if it came to stand at a lock of the other."""
        with self._turn:
            if self.done:
                return True
            self._allowed = max(self._allowed, self.reached)
            wanted = self.reached + 1
            self._turn.notify_all()
        return self.settled(wanted)

    def settled(self, wanted: int | None = None) -> bool:
        """Whether the last step is over; False if it waits for a lock."""
        wanted = wanted if wanted is not None else self._allowed + 1
        deadline = time.monotonic() + PATIENCE
        while not self._settle(wanted):
            if self._is_blocked() and not self._settle(wanted):
                return False
            assert time.monotonic() < deadline, "a step neither ended nor waited for a lock"
        return True

    def _is_blocked(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [self.backend])
            return bool(cursor.fetchone()[0])


def _play(first: Actor, second: Actor, i: int, j: int) -> tuple[int, int]:
    """Run one schedule: ``first`` i steps, ``second`` j steps, then each to its end."""
    first.begin()
    second.begin()
    blocked: set[Actor] = set()
    plan: list[tuple[Actor, int]] = [(first, i), (second, j), (first, 10**6), (second, 10**6)]
    for actor, steps in plan:
        other = second if actor is first else first
        taken = 0
        while taken < steps and not actor.done:
            if actor in blocked:
                if actor.settled():
                    blocked.discard(actor)
                    continue
            elif actor.step():
                taken += 1
                continue
            else:
                blocked.add(actor)
            if other.done or other in blocked:
                assert not other.done or actor.settled(), "an actor waits for nobody"
                if other in blocked:  # a deadlock: the database ends it
                    time.sleep(0.01)
                    blocked -= {each for each in list(blocked) if each.settled()}
                continue
            if not other.step():
                blocked.add(other)
    for actor in (first, second):
        actor._thread.join(PATIENCE)
        assert actor.done
    return first.reached, second.reached


def schedules(a: int, b: int, preemptions: int) -> Iterator[tuple[bool, int, int]]:
    """(who is first, steps of the first, steps of the second) with at most so many preemptions."""
    for swapped, mine, theirs in ((False, a, b), (True, b, a)):
        yield swapped, 0, 0
        if preemptions >= 1:
            for i in range(1, mine):
                yield swapped, i, 10**6
        if preemptions >= 2:
            for i in range(1, mine):
                for j in range(1, theirs):
                    yield swapped, i, j


FEW: Final = 100  # orders of a pair, of which none is left out


def explore(
    name: str,
    setup: Callable[[], State],
    a: Callable[[State], object],
    b: Callable[[State], object],
    check: Callable[[State, Actor, Actor], object],
    *,
    preemptions: int = 2,
    every: int = 1,
) -> int:
    """Run every schedule of ``a`` and ``b``; after each the invariants hold, and ``check`` does.

    ``every`` takes each n-th of the schedules with two preemptions, and each fifth of those with
    one, of pairs that have many (smoke sizes). Return how many were run.
    """
    state = setup()
    lengths = _play(Actor(lambda: a(state)), Actor(lambda: b(state)), 10**6, 10**6)
    count = 0
    orders = list(schedules(*lengths, preemptions))
    if len(orders) < FEW:
        every = 1
    for number, (swapped, i, j) in enumerate(orders):
        has_two = j not in {0, 10**6}
        if every > 1 and i and number % (every if has_two else 5):
            continue
        state = setup()
        one, two = Actor(lambda: a(state)), Actor(lambda: b(state))  # noqa: B023 - run at once
        _play(*((two, one) if swapped else (one, two)), i, j)
        for actor in (one, two):
            if actor.error is not None:
                raise AssertionError(f"{name} at {(swapped, i, j)}") from actor.error
        found = violations(state)
        assert found == [], f"{name} at {(swapped, i, j)}: {found}"
        check(state, one, two)
        count += 1
    total.schedules += count
    total.by_pair[name] = count
    return count


def started(call: Callable[[], object]) -> threading.Thread:
    """A thread that runs something of the product and gives its connection back."""

    def run() -> None:
        try:
            call()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def race(count: int, call: Callable[[], T]) -> list[T]:
    """Call something from many threads that start together; return what each got."""
    barrier = threading.Barrier(count)
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            barrier.wait(10)
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if errors:
        raise errors[0]
    return results
