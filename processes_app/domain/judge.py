"""What becomes of news: one table, tried from the top, over facts that were gathered under locks.

It is asked when events are settled and again before their turn starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from sessions_app.domain import EndClass

from .states import DropReason, EventKind, Held, KillBy, QuietReason

MOST_HOPS: Final = 16
AGE_GATE: Final = timedelta(hours=6)
TIP_PATIENCE: Final = timedelta(minutes=2)
TIP_RETRY: Final = timedelta(seconds=5)


@dataclass(frozen=True)
class Place:
    """A session as the table sees it."""

    key: str
    end: EndClass | None = None  # None: it is open


class Line(StrEnum):
    """Whether the way from the stamped session to the one that owns it could be walked."""

    WHOLE = "whole"
    BROKEN = "broken"  # a session on the way is gone
    CYCLIC = "cyclic"
    TOO_LONG = "too_long"


@dataclass(frozen=True)
class Facts:
    """What is known about one event and the sessions that it concerns."""

    kind: str
    now: datetime
    happened_at: datetime
    stamp: str | None = None
    is_taken: bool = False  # the agent has had the result
    is_being_taken: bool = False  # … or will have, when its running call is committed
    kill_by: KillBy | None = None  # who ended the process, if anybody of ours did
    hops: tuple[Place, ...] = ()  # the stamped session, then whoever delegated it; () if gone
    line: Line = Line.WHOLE
    tip: Place | None = None  # where the last hop goes on: itself, or what continues it
    began_newer: bool = False  # a person began a session behind it
    is_chat_known: bool = True
    current: Place | None = None  # without a stamp: the chat's open or last session
    is_owner_fine: bool = True  # active, and still allowed
    waits_since: datetime | None = None  # for the tip
    budget_from: datetime | None = None  # the wake budget is used up until then
    is_streak: bool = False  # too many automatic turns in a row
    has_queued: bool = False  # a turn with earlier news is queued there


@dataclass(frozen=True)
class Deliver:
    """Into a turn of this session; None is a new session of the chat."""

    session: str | None


@dataclass(frozen=True)
class Quiet:
    """Shown in this session, without a turn."""

    session: str | None
    reason: QuietReason


@dataclass(frozen=True)
class Retry:
    """Asked again at this time, or earlier if something happens; no attempt is counted."""

    at: datetime
    held: Held


@dataclass(frozen=True)
class Drop:
    """Not delivered; the output stays readable."""

    reason: DropReason


@dataclass(frozen=True)
class Consumed:
    """The agent knows already."""


Verdict: TypeAlias = Deliver | Quiet | Retry | Drop | Consumed


def in_words(verdict: Verdict) -> str:
    """A verdict as operators read it, the same for all events that fare alike.

    >>> in_words(Drop(DropReason.CLOSED_BY_USER)), in_words(Deliver("a"))
    ('dropped: closed_by_user', 'delivered in a turn')
    """
    match verdict:
        case Deliver(session):
            return "delivered in a turn" if session else "delivered in a new session of its chat"
        case Quiet(_, reason):
            return f"shown quietly: {reason}"
        case Retry(_, held):
            return f"waits: {held}"
        case Drop(dropped_for):
            return f"dropped: {dropped_for}"
        case Consumed():
            return "consumed: the agent has the result"
        case unreachable:
            assert_never(unreachable)


def judge(facts: Facts) -> Verdict:
    """What becomes of an event.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> closed, idle = Place("a", EndClass.USER), Place("a", EndClass.SYSTEM)
    >>> judge(Facts("completion", now, now, stamp="a", hops=(closed,), tip=closed)).reason
    <DropReason.CLOSED_BY_USER: 'closed_by_user'>
    >>> judge(Facts("completion", now, now, stamp="a", hops=(idle,), tip=idle))
    Deliver(session='a')
    >>> judge(Facts("completion", now, now, stamp="a")).reason
    <DropReason.SESSION_DELETED: 'session_deleted'>
    """
    # 1: a kind that this version does not know.
    if facts.kind not in set(EventKind):
        return Drop(DropReason.UNKNOWN_TYPE)
    # 2: the agent has the result.
    if facts.is_taken:
        return Consumed()
    if facts.is_being_taken:
        return Retry(facts.now + TIP_RETRY, Held.TAKING)
    verdict = _unowned(facts) if facts.stamp is None else _owned(facts)
    if isinstance(verdict, Deliver):
        return _paced(facts, verdict)
    return verdict


def _owned(facts: Facts) -> Verdict:
    """Rows 3 to 8 and 10, for an event that carries its session."""
    # 3: the stamped session is gone.
    if not facts.hops:
        return Drop(DropReason.SESSION_DELETED)
    # A boundary on the way stops the walk: what lies behind it does not matter any more.
    is_closed = any(hop.end is EndClass.USER for hop in facts.hops)
    # 4: nobody can be shown to own it.
    if facts.line is not Line.WHOLE and not is_closed:
        return Drop(DropReason.OWNER_UNPROVEN)
    # 5: a person has closed it, here, above, or where it went on.
    if is_closed or (facts.tip is not None and facts.tip.end is EndClass.USER):
        return Drop(DropReason.CLOSED_BY_USER)
    # 6: its owner may not have it any more.
    if not facts.is_owner_fine:
        return Drop(DropReason.OWNER_INACTIVE)
    # 7: it continues in a session that is not there yet.
    if facts.tip is None or facts.tip.end is EndClass.CONTINUATION:
        if facts.waits_since is not None and facts.now - facts.waits_since > TIP_PATIENCE:
            return Drop(DropReason.OWNER_UNPROVEN)
        return Retry(facts.now + TIP_RETRY, Held.TIP)
    # 8: too old, or ended by whoever would be told.
    if (quiet := _quiet(facts)) is not None:
        return Quiet(facts.hops[-1].key, quiet)
    # 10: a person went on elsewhere; else it is open, or ended by the system and reopened.
    if facts.began_newer:
        return Quiet(facts.hops[-1].key, QuietReason.NEWER_SESSION)
    return Deliver(facts.tip.key)


def _unowned(facts: Facts) -> Verdict:
    """Rows 6, 8, 11 and 12, for an event from before there were stamps."""
    # 12: nobody to tell.
    if not facts.is_chat_known:
        return Drop(DropReason.UNKNOWN_CHAT)
    # 6: its owner may not have it any more.
    if not facts.is_owner_fine:
        return Drop(DropReason.OWNER_INACTIVE)
    # 8: too old, or ended by whoever would be told.
    if (quiet := _quiet(facts)) is not None:
        return Quiet(None if facts.current is None else facts.current.key, quiet)
    # 11: the chat's session; a new one where a person closed the last, or there never was one.
    if facts.current is None or facts.current.end not in {None, EndClass.SYSTEM}:
        return Deliver(None)
    return Deliver(facts.current.key)


def _quiet(facts: Facts) -> QuietReason | None:
    if facts.kill_by in {KillBy.PERSON, KillBy.OPERATOR}:
        return QuietReason.KILLED
    return QuietReason.TOO_OLD if facts.now - facts.happened_at > AGE_GATE else None


def _paced(facts: Facts, verdict: Deliver) -> Verdict:
    """Row 9, and one queued turn at a time: what could be delivered may have to wait."""
    if facts.has_queued:
        return Retry(facts.now + TIP_RETRY, Held.QUEUED)
    if facts.is_streak:
        return Retry(facts.happened_at + AGE_GATE + TIP_RETRY, Held.STREAK)
    if facts.budget_from is not None:
        return Retry(facts.budget_from, Held.BUDGET)
    return verdict
