"""The table of verdicts, row by row, and which row goes before which."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from processes_app.domain import (
    Consumed,
    Deliver,
    Drop,
    DropReason,
    Facts,
    Held,
    KillBy,
    Line,
    Place,
    Quiet,
    QuietReason,
    Retry,
    judge,
)
from sessions_app.domain import EndClass

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
OPEN, CLOSED = Place("s"), Place("s", EndClass.USER)
IDLE, CONTINUED = Place("s", EndClass.SYSTEM), Place("s", EndClass.CONTINUATION)
STAMPED = Facts("completion", NOW, NOW, stamp="s", hops=(OPEN,), tip=OPEN)
LEGACY = Facts("completion", NOW, NOW, current=Place("c"))
PARENT = Place("parent")


def stamped(**other) -> Facts:
    return replace(STAMPED, **other)


def drop(name: str) -> Drop:
    return Drop(DropReason[name])


ROWS = {
    "1 unknown type": (stamped(kind="watch_match"), drop("UNKNOWN_TYPE")),
    "1 before 2": (stamped(kind="?", is_taken=True), drop("UNKNOWN_TYPE")),
    "2 taken": (stamped(is_taken=True), Consumed()),
    "2 taken although gone": (stamped(is_taken=True, hops=(), tip=None), Consumed()),
    "2 being taken": (
        stamped(is_being_taken=True),
        Retry(NOW + timedelta(seconds=5), Held.TAKING),
    ),
    "3 gone": (stamped(hops=(), tip=None), drop("SESSION_DELETED")),
    "4 broken": (stamped(hops=(OPEN,), line=Line.BROKEN), drop("OWNER_UNPROVEN")),
    "4 cyclic": (stamped(line=Line.CYCLIC), drop("OWNER_UNPROVEN")),
    "4 too long": (stamped(line=Line.TOO_LONG), drop("OWNER_UNPROVEN")),
    "4 the child's own boundary first": (
        stamped(hops=(CLOSED,), line=Line.BROKEN),
        drop("CLOSED_BY_USER"),
    ),
    "5 closed": (stamped(hops=(CLOSED,), tip=CLOSED), drop("CLOSED_BY_USER")),
    "5 closed above": (
        stamped(hops=(OPEN, replace(PARENT, end=EndClass.USER)), tip=PARENT),
        drop("CLOSED_BY_USER"),
    ),
    "5 closed at the tip": (
        stamped(hops=(CONTINUED,), tip=Place("tip", EndClass.USER)),
        drop("CLOSED_BY_USER"),
    ),
    "5 before 6": (
        stamped(hops=(CLOSED,), tip=CLOSED, is_owner_fine=False),
        drop("CLOSED_BY_USER"),
    ),
    "6 owner": (stamped(is_owner_fine=False), drop("OWNER_INACTIVE")),
    "7 no tip": (
        stamped(hops=(CONTINUED,), tip=None),
        Retry(NOW + timedelta(seconds=5), Held.TIP),
    ),
    "7 no tip for a minute": (
        stamped(hops=(CONTINUED,), tip=None, waits_since=NOW - timedelta(minutes=1)),
        Retry(NOW + timedelta(seconds=5), Held.TIP),
    ),
    "7 no tip for long": (
        stamped(hops=(CONTINUED,), tip=None, waits_since=NOW - timedelta(minutes=3)),
        drop("OWNER_UNPROVEN"),
    ),
    "8 old": (
        stamped(happened_at=NOW - 7 * HOUR),
        Quiet("s", QuietReason.TOO_OLD),
    ),
    "8 not yet old": (stamped(happened_at=NOW - 5 * HOUR), Deliver("s")),
    "8 killed by the person": (
        stamped(kill_by=KillBy.PERSON),
        Quiet("s", QuietReason.KILLED),
    ),
    "8 killed by an operator": (
        stamped(kill_by=KillBy.OPERATOR),
        Quiet("s", QuietReason.KILLED),
    ),
    "8 before 9": (
        stamped(kill_by=KillBy.PERSON, budget_from=NOW + HOUR),
        Quiet("s", QuietReason.KILLED),
    ),
    "9 budget": (stamped(budget_from=NOW + HOUR), Retry(NOW + HOUR, Held.BUDGET)),
    "9 streak": (
        stamped(is_streak=True),
        Retry(NOW + 6 * HOUR + timedelta(seconds=5), Held.STREAK),
    ),
    "9 one turn at a time": (
        stamped(has_queued=True, is_streak=True),
        Retry(NOW + timedelta(seconds=5), Held.QUEUED),
    ),
    "10 open": (STAMPED, Deliver("s")),
    "10 ended by the system": (stamped(hops=(IDLE,), tip=IDLE), Deliver("s")),
    "10 at the tip": (stamped(hops=(CONTINUED,), tip=Place("tip")), Deliver("tip")),
    "10 the owner of a delegated child": (
        stamped(hops=(IDLE, PARENT), tip=PARENT),
        Deliver("parent"),
    ),
    "10 the person began another": (
        stamped(hops=(IDLE,), tip=IDLE, began_newer=True),
        Quiet("s", QuietReason.NEWER_SESSION),
    ),
    "11 current": (LEGACY, Deliver("c")),
    "11 reopened": (
        replace(LEGACY, current=Place("c", EndClass.SYSTEM)),
        Deliver("c"),
    ),
    "11 after a boundary": (replace(LEGACY, current=Place("c", EndClass.USER)), Deliver(None)),
    "11 never one": (replace(LEGACY, current=None), Deliver(None)),
    "11 old": (
        replace(LEGACY, happened_at=NOW - 7 * HOUR),
        Quiet("c", QuietReason.TOO_OLD),
    ),
    "11 old, never one": (
        replace(LEGACY, current=None, happened_at=NOW - 7 * HOUR),
        Quiet(None, QuietReason.TOO_OLD),
    ),
    "11 owner": (replace(LEGACY, is_owner_fine=False), drop("OWNER_INACTIVE")),
    "11 budget": (
        replace(LEGACY, budget_from=NOW + HOUR),
        Retry(NOW + HOUR, Held.BUDGET),
    ),
    "12 unknown chat": (replace(LEGACY, is_chat_known=False, current=None), drop("UNKNOWN_CHAT")),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("kind", ["completion", "async_delegation"])
def test_row(row, kind):
    facts, verdict = ROWS[row]
    if facts.kind == "completion":
        facts = replace(facts, kind=kind)
    assert judge(facts) == verdict
