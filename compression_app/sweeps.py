"""What the sweep does for attempts: finds what hints have lost, ends what nobody holds."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from celery import shared_task
from django.conf import settings
from django.db.models import F, Q, QuerySet

from hermes.lib.db import DbNow
from hermes.lib.hints import enqueue
from hermes.lib.leases import Owner
from sessions_app import periodic
from sessions_app.domain import END_CLASS, EndClass
from sessions_app.models import Chat
from sessions_app.sweeps import PURGE_AFTER

from . import domain, fence, intake, tasks
from .domain import AttemptStatus, Reason
from .models import CompactionAttempt

logger = logging.getLogger(__name__)

BATCH: Final = 50
STALE: Final = timedelta(seconds=5)
GRACE: Final = timedelta(seconds=10)  # past its deadline, before somebody else says so


@shared_task(name="compression_app.sweep", acks_late=True)
def sweep_when_due() -> None:
    """Sweep if it is due; beat asks for it, and every worker by itself."""
    sweep()


def sweep(*, force: bool = False) -> int:
    """Sweep if it is due; how many attempts it had to do with."""
    every = settings.HERMES_SWEEP_SECONDS
    return periodic.run_due("compression.sweep", every, STEPS, force=force) or 0


def end_abandoned() -> int:
    """Running attempts whose lease ran out, or whose owner is provably gone, are lost."""
    running = CompactionAttempt.objects.filter(status=AttemptStatus.RUNNING)
    owners = running.order_by().values_list("lease_owner", flat=True).distinct()
    gone = [text for text in owners if (owner := Owner.parse(text)) and owner.is_gone()]
    lost = running.filter(Q(lease_expires_at__lt=DbNow()) | Q(lease_owner__in=gone))
    return _end(lost, AttemptStatus.LOST, Reason.LEASE_EXPIRED)


def release_overheld() -> int:
    """Holds past their budget whose gate is gone are released all the same."""
    budget = timedelta(seconds=settings.HERMES_TURN_HOLD_SECONDS + 2)
    held = CompactionAttempt.objects.open().filter(
        hold_released_at=None, hold_started_at__lt=DbNow() - budget
    )
    found = list(held.values_list("pk", "session_id")[:BATCH])
    for pk, session_id in found:
        fence.release(pk, session_id)
    return len(found)


def end_overdue() -> int:
    """Attempts that were never claimed are lost; those past their deadline have failed."""
    queued = CompactionAttempt.objects.filter(
        status=AttemptStatus.QUEUED,
        opened_at__lt=DbNow() - timedelta(seconds=settings.HERMES_COMPACTION_QUEUED_SECONDS),
    )
    running = CompactionAttempt.objects.filter(
        status=AttemptStatus.RUNNING, deadline_at__lt=DbNow() - GRACE
    )
    return _end(queued, AttemptStatus.LOST, Reason.NOT_CLAIMED) + _end(
        running, AttemptStatus.FAILED, Reason.DEADLINE
    )


def end_void() -> int:
    """Attempts of sessions that were ended or changed under them are superseded."""
    system = [reason for reason, kind in END_CLASS.items() if kind is EndClass.SYSTEM]
    void = CompactionAttempt.objects.filter(status__in=sorted(domain.UNFINISHED)).filter(
        ~Q(generation=F("session__generation"))
        | (Q(session__ended_at__isnull=False) & ~Q(session__end_reason__in=system))
    )
    sessions = list(void.values_list("session_id", flat=True)[:BATCH])
    return sum(intake.supersede(session_id=session_id) for session_id in sessions)


def hint_queued() -> int:
    """Queued attempts may have lost their hint, or found their endpoint busy."""
    queued = CompactionAttempt.objects.filter(
        status=AttemptStatus.QUEUED, opened_at__lt=DbNow() - STALE
    )
    found = list(queued.order_by("opened_at").values_list("pk", flat=True)[:BATCH])
    for pk in found:
        enqueue(tasks.run_attempt, pk)
    return len(found)


def purge_deleted() -> int:
    """Chats that were deleted long ago lose what compaction keeps of them, before their own rows.

    Only sessions that compaction has a state of can have any such row.
    """
    old = Chat.objects.filter(deleted_at__lt=DbNow() - PURGE_AFTER)
    kept = old.filter(sessions__compression__isnull=False).order_by("deleted_at").distinct()
    return sum(fence.purge(pk) for pk in list(kept.values_list("pk", flat=True)[:BATCH]))


STEPS: Final = (
    end_abandoned,
    release_overheld,
    end_overdue,
    end_void,
    hint_queued,
    purge_deleted,
)


def _end(attempts: QuerySet[CompactionAttempt], status: AttemptStatus, reason: Reason) -> int:
    found = list(attempts.values_list("pk", "session_id", "fence_token")[:BATCH])
    return sum(
        fence.end(pk, session_id, status, reason, token=token) for pk, session_id, token in found
    )
