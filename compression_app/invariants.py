"""What must hold of attempts, cooldowns and summaries at every committed state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from sessions_app.models import Message, Session, Summary

from .domain import UNFINISHED, AttemptStatus
from .models import CompactionAttempt, Cooldown

MOST: Final = 20  # offenders named a check


def check_invariants(session_id: int | None = None) -> list[str]:
    """Violations found in one session, or in all, in words; none is as it must be."""
    sessions = Session.objects.all()
    if session_id is not None:
        sessions = sessions.filter(pk=session_id)
    return [line for check in CHECKS for line in check(sessions)]


def coverage_rises(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-1: along ``previous`` coverage rises, and what is current has not been undone."""
    falling = Summary.objects.filter(
        session__in=sessions, previous__covers_through__gte=F("covers_through")
    )
    for found in falling[:MOST]:
        yield f"I-1 summary {found.pk} covers no more than the one before it"
    undone = sessions.filter(summary__reverted_at__isnull=False)
    for session in undone[:MOST]:
        yield f"I-1 session {session.pk} stands on a summary that was undone"
    beyond = sessions.filter(summary__covers_through__gt=F("last_seq"))
    for session in beyond[:MOST]:
        yield f"I-1 session {session.pk}: its summary covers rows that do not exist"


def covered_rows_were_seen(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-2: a summary covers nothing beyond its attempt's cut, which lies below the watermark."""
    committed = CompactionAttempt.objects.filter(
        session__in=sessions, status=AttemptStatus.COMMITTED
    )
    attempts = dict(committed.values_list("pk", "cut"))
    made = Summary.objects.filter(session__in=sessions, attempt_id__in=attempts)
    for pk, attempt_id, through in made.values_list("pk", "attempt_id", "covers_through"):
        if attempt_id is not None and through > attempts[attempt_id]:
            yield f"I-2 summary {pk} covers {through}, its attempt read to {attempts[attempt_id]}"


def commits_happen_once(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-6: a committed attempt has made exactly one summary; no other attempt has made one."""
    made = Summary.objects.filter(session=OuterRef("session"), attempt_id=OuterRef("pk"))
    attempts = CompactionAttempt.objects.filter(session__in=sessions)
    wrong = attempts.filter(
        Q(Exists(made), ~Q(status=AttemptStatus.COMMITTED))
        | Q(~Exists(made), status=AttemptStatus.COMMITTED)
    )
    for found in wrong[:MOST]:
        yield f"I-6 attempt {found.pk} is {found.status} and its summaries say otherwise"
    twice = Summary.objects.filter(session__in=sessions, attempt_id__isnull=False)
    other = Summary.objects.filter(attempt_id=OuterRef("attempt_id"), pk__gt=OuterRef("pk"))
    for summary in twice.filter(Exists(other))[:MOST]:
        yield f"I-6 attempt {summary.attempt_id} has made two summaries"


def cooldowns_follow_the_table(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-9: no cooldown while its attempt lives; a deferred one arms a flat turn-hold retry."""
    cooldowns = Cooldown.objects.filter(session__in=sessions)
    for found in cooldowns.filter(attempt__status__in=sorted(UNFINISHED))[:MOST]:
        yield f"I-9 cooldown {found.pk} was armed while attempt {found.attempt_id} is alive"
    deferred = cooldowns.filter(attempt__hold_released_at__isnull=False)
    wrong = deferred.exclude(kind="flat", reason__startswith="turn-hold")
    for found in wrong[:MOST]:
        yield f"I-9 cooldown {found.pk} of a deferred attempt: {found.kind}, {found.reason}"


def closed_attempts_are_closed(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-10: an attempt without a watermark has committed nothing."""
    unfenced = CompactionAttempt.objects.filter(
        session__in=sessions, watermark=None, status=AttemptStatus.COMMITTED
    )
    for found in unfenced[:MOST]:
        yield f"I-10 attempt {found.pk} committed without a watermark"


def tails_stay(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-3: the rows above the current summary are all there, as the live numbers say."""
    for session in sessions.exclude(summary=None).select_related("summary")[:200]:
        through = session.summary.covers_through if session.summary else 0
        live = Message.objects.filter(session=session, seq__gt=through).live().count()
        if live != session.live_count:
            yield f"I-3 session {session.pk}: {live} rows above the summary, {session.live_count}"


CHECKS: Final[list[Callable[[QuerySet[Session]], Iterator[str]]]] = [
    coverage_rises,
    covered_rows_were_seen,
    commits_happen_once,
    cooldowns_follow_the_table,
    closed_attempts_are_closed,
    tails_stay,
]
