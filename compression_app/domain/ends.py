"""What follows from the end of an attempt: cooldown, streak, breaker. First match wins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .states import AttemptStatus, CooldownKind, Reason, Trigger

LADDER_FACTOR: Final = 3
LADDER_CAP: Final = 3600.0  # seconds
JITTER: Final = 0.15
FLAT_CAP: Final = 120.0  # seconds
INEFFECTIVE_SHARE: Final = 0.95  # a context of at least this share of before did not shrink
BREAKER_AT: Final = 2
PROBE_EVERY: Final = timedelta(seconds=300)


@dataclass(frozen=True)
class End:
    """How an attempt ended, as its locked row says."""

    status: AttemptStatus
    reason: Reason | None = None
    is_deferred: bool = False  # a hold was released while it went on
    is_fenced: bool = True
    streak: int = 0  # failures in a row before this end
    before: int = 0  # tokens
    after: int = 0
    by_person: bool = False


@dataclass(frozen=True)
class Wait:
    """A cooldown to arm; ``seconds`` before jitter."""

    kind: CooldownKind
    seconds: float
    reason: str


@dataclass(frozen=True)
class Consequence:
    """What the end of an attempt changes."""

    wait: Wait | None = None
    clears: bool = False  # every active cooldown of the session
    streak: int | None = None  # the new value; None leaves it
    is_effective: bool | None = None  # None leaves the count of ineffective commits
    grew: bool | None = None  # None leaves the count of summaries that would grow


def ladder(streak: int, first: float) -> float:
    """Seconds before the next try after so many failures in a row.

    >>> [ladder(streak, 300) for streak in (1, 2, 3, 4, 5)]
    [300.0, 900.0, 2700.0, 3600.0, 3600.0]
    >>> ladder(3, 0)
    0.0
    """
    return float(min(first * LADDER_FACTOR ** (max(1, streak) - 1), LADDER_CAP))


def consequence(end: End, *, flat: float, first: float) -> Consequence:
    """What follows; the rows of the table in docs/architecture.md, in order.

    >>> good = End(AttemptStatus.COMMITTED, before=100, after=10, streak=3)
    >>> consequence(good, flat=60, first=300)
    Consequence(wait=None, clears=True, streak=0, is_effective=True, grew=False)
    >>> deferred = End(AttemptStatus.FAILED, Reason.EMPTY, is_deferred=True, streak=2)
    >>> consequence(deferred, flat=60, first=300).wait.reason, consequence(
    ...     deferred, flat=60, first=300
    ... ).streak
    ('turn-hold: empty', None)
    >>> failed = End(AttemptStatus.FAILED, Reason.STALLED, streak=1)
    >>> consequence(failed, flat=60, first=300)  # doctest: +NORMALIZE_WHITESPACE
    Consequence(wait=Wait(kind=<CooldownKind.LADDER: 'ladder'>, seconds=900.0, reason='stalled'),
        clears=False, streak=2, is_effective=None, grew=False)
    """
    reason = end.reason or Reason.INTERNAL
    flat = min(flat, FLAT_CAP)
    if end.status is AttemptStatus.COMMITTED:
        shrank = end.before > 0 and end.after < end.before * INEFFECTIVE_SHARE
        return Consequence(clears=True, streak=0, is_effective=shrank, grew=False)
    is_closed = reason is Reason.SESSION_ENDED
    if is_closed or (end.status is AttemptStatus.SUPERSEDED and not end.is_deferred):
        return Consequence()
    if end.status is AttemptStatus.CANCELLED and end.by_person and not end.is_deferred:
        return Consequence(Wait(CooldownKind.FLAT, flat, "cancelled by a person"))
    if end.is_deferred:
        return Consequence(Wait(CooldownKind.FLAT, flat, f"turn-hold: {reason}"))
    if not end.is_fenced or reason in {Reason.UNFENCED, Reason.HOLD_EXPIRED}:
        return Consequence(Wait(CooldownKind.FLAT, flat, f"turn-hold: {reason}"))
    if end.status is AttemptStatus.LOST:
        return Consequence(Wait(CooldownKind.FLAT, flat, str(reason)))
    if end.status is AttemptStatus.CANCELLED:  # by an operator, or handed over
        return Consequence(Wait(CooldownKind.FLAT, flat, str(reason)))
    streak = end.streak + 1
    return Consequence(
        Wait(CooldownKind.LADDER, ladder(streak, first), str(reason)),
        streak=streak,
        grew=reason is Reason.WOULD_GROW,
    )


def jittered(seconds: float, fraction: float) -> float:
    """A wait moved by at most 15 % either way; ``fraction`` from 0 to 1 is drawn by the caller.

    >>> jittered(100, 0), jittered(100, 0.5), jittered(100, 1)
    (85.0, 100.0, 115.0)
    """
    return round(seconds * (1 - JITTER + 2 * JITTER * fraction), 3)


# --- When an attempt is opened ------------------------------------------------------------------

COMPACTABLE_AT_LEAST: Final = 4
FRESH_SHARE: Final = 0.10  # of the window: growth after which an undo is not fresh any more


@dataclass(frozen=True)
class Facts:
    """What decides whether an attempt is opened, read under the session's lock."""

    trigger: Trigger
    now: datetime
    size: int  # tokens of the context
    mark: int  # tokens from which this trigger acts
    is_over_messages: bool = False  # or, after a turn, some had no room in its request
    compactable: int = 0  # messages that would go into the summary
    is_ended: bool = False
    has_open: bool = False
    cooldown_until: datetime | None = None
    ineffective: int = 0
    grew: int = 0
    probe_at: datetime | None = None  # when the breaker last let one through
    provider_until: datetime | None = None
    is_paused: bool = False
    grown_since_undo: int | None = None  # tokens; None: no undo
    window: int = 0


def is_breaker_open(facts: Facts) -> bool:
    """Whether automatic attempts are stopped, apart from one probe every five minutes."""
    is_tripped = max(facts.ineffective, facts.grew) >= BREAKER_AT
    may_probe = facts.probe_at is None or facts.probe_at + PROBE_EVERY <= facts.now
    return is_tripped and not may_probe


def refusal(facts: Facts) -> Reason | None:
    """Why no attempt is opened, or None.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> refusal(Facts(Trigger.SOFT, now, size=10, mark=20, compactable=9))
    <Reason.BELOW_MARK: 'below_mark'>
    >>> refusal(Facts(Trigger.SOFT, now, size=30, mark=20, compactable=9)) is None
    True
    >>> refusal(Facts(Trigger.MANUAL, now, size=30, mark=0, compactable=3))
    <Reason.TOO_SHORT: 'too_short'>
    """
    if facts.is_ended:
        return Reason.ENDED
    if facts.has_open:
        return Reason.ATTEMPT_OPEN
    is_asked = facts.trigger in {Trigger.MANUAL, Trigger.OPERATOR, Trigger.OVERFLOW}
    # A pause stops what would run by itself; a person who asks has been told and decides.
    if facts.is_paused and facts.trigger not in {Trigger.MANUAL, Trigger.OPERATOR}:
        return Reason.PAUSED
    if not is_asked and facts.size < facts.mark and not facts.is_over_messages:
        return Reason.BELOW_MARK
    if facts.compactable < COMPACTABLE_AT_LEAST:
        return Reason.TOO_SHORT
    if is_asked:
        return None
    if facts.grown_since_undo is not None and facts.grown_since_undo < facts.window * FRESH_SHARE:
        return Reason.UNDO_FRESH
    if facts.provider_until is not None and facts.provider_until > facts.now:
        return Reason.PROVIDER_BREAKER
    if is_breaker_open(facts):
        return Reason.BREAKER
    if facts.cooldown_until is not None and facts.cooldown_until > facts.now:
        return Reason.COOLDOWN
    return None


# --- The fence ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What the fence compares: the attempt and its session, both locked, and the summary."""

    status: AttemptStatus
    token: int
    held_token: int
    is_fenced: bool
    generation: int
    session_generation: int
    is_session_closed: bool  # ended, and not by the system
    deadline_at: datetime | None
    now: datetime
    rejection: Reason | None  # of the summary itself
    before: int  # tokens of what it replaces
    after: int  # tokens of the summary


@dataclass(frozen=True)
class Fenced:
    """Nothing may be written: the row is not in these hands any more."""


@dataclass(frozen=True)
class Commit:
    """The summary becomes the session's."""


@dataclass(frozen=True)
class Refuse:
    """The attempt ends with this status and reason instead."""

    status: AttemptStatus
    reason: Reason


def may_commit(claim: Claim) -> Fenced | Commit | Refuse:
    """The verdict of the fence; its checks in order.

    An expired lease that nobody took still commits: refusing it would burn what was paid for.
    """
    if claim.status is not AttemptStatus.RUNNING or claim.token != claim.held_token:
        return Fenced()
    if not claim.is_fenced:
        return Refuse(AttemptStatus.FAILED, Reason.UNFENCED)
    if claim.deadline_at is not None and claim.deadline_at < claim.now:
        return Refuse(AttemptStatus.FAILED, Reason.DEADLINE)
    if claim.is_session_closed:
        return Refuse(AttemptStatus.SUPERSEDED, Reason.SESSION_ENDED)
    if claim.generation != claim.session_generation:
        return Refuse(AttemptStatus.SUPERSEDED, Reason.GENERATION)
    if claim.rejection is not None:
        return Refuse(AttemptStatus.FAILED, claim.rejection)
    if claim.after >= claim.before:
        return Refuse(AttemptStatus.FAILED, Reason.WOULD_GROW)
    return Commit()
