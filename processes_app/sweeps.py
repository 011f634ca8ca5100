"""What the sweep does for processes: finds what hints have lost, ends what belongs to nobody."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from celery import shared_task
from django.conf import settings
from django.db.models import DurationField, Exists, ExpressionWrapper, F, OuterRef, Q, Value
from django.db.models.functions import Substr

from hermes.lib.db import DbNow
from sessions_app import periodic
from sessions_app.domain import OPEN_TURN, TurnStatus
from sessions_app.models import Chat, Turn

from . import domain, intake, runner
from .domain import ApprovalStatus, EventStatus, Held, KillBy, ProcessStatus
from .models import Approval, CompletionEvent, ProcessRecord

logger = logging.getLogger(__name__)

BATCH: Final = 50  # rows a kind a sweep
PURGE_AFTER: Final = timedelta(days=29)  # before sessions_app forgets which these were
OLD: Final = timedelta(minutes=5)  # due news this old is told to operators
ABANDONED: Final = timedelta(days=1)  # a process past its limit of which nothing was heard
UNTAKEN: Final = timedelta(minutes=10)  # a process that no supervisor has taken


@shared_task(name="processes_app.sweep", acks_late=True)
def sweep_when_due() -> None:
    """Sweep if it is due; beat asks for it, and every worker by itself."""
    sweep()


def sweep(*, force: bool = False) -> int:
    """Sweep if it is due; how many rows it had to do with."""
    every = settings.HERMES_SWEEP_SECONDS
    return periodic.run_due("processes.sweep", every, STEPS, force=force) or 0


def settle_due() -> int:
    """Settle the addresses that have due news, or news in a turn that has moved on."""
    turn = Turn.objects.filter(pk=OuterRef("turn_id_meant"))
    waits = turn.filter(started_at=None, status__in=sorted(OPEN_TURN))
    # What stands behind a turn that has not started cannot move, however long that is.
    ahead = CompletionEvent.objects.filter(
        Exists(waits), status=EventStatus.ACCEPTED, origin_session=OuterRef("origin_session")
    )
    due = CompletionEvent.objects.filter(
        (Q(status=EventStatus.PENDING, due_at__lte=DbNow()) & ~Exists(ahead))
        | (Q(status=EventStatus.ACCEPTED) & ~Exists(waits))
    )
    oldest = list(due.order_by("due_at").values_list("origin_chat", "due_at")[: BATCH * 10])
    addresses = list(dict.fromkeys(address for address, _ in oldest))[:BATCH]
    for address in addresses:
        runner.deliver(address)
    behind = CompletionEvent.objects.filter(
        status=EventStatus.ACCEPTED, origin_session=OuterRef("origin_session")
    )
    late = CompletionEvent.objects.filter(
        ~Exists(behind), status=EventStatus.PENDING, due_at__lt=DbNow() - OLD
    ).exclude(held__in=[Held.QUEUED, Held.TAKING])
    if late.exists():
        logger.error("due completions are old", extra={"count": late.count()})
    return len(addresses)


def end_orphans() -> int:
    """End what belongs to nobody: foreground commands of ended turns, all of deleted chats."""
    active = ProcessRecord.objects.active().filter(kill_asked_at=None)
    open_turns = Turn.objects.filter(status__in=sorted(OPEN_TURN))
    orphans = active.filter(is_foreground=True, turn_id_meant__isnull=False).exclude(
        turn_id_meant__in=open_turns.values("pk")
    )
    ended = [intake.ask_kill(pk, by=KillBy.TURN) for pk in _first(orphans)]
    deleted = Chat.objects.filter(deleted_at__isnull=False).values("key")
    gone = active.filter(origin_chat__in=deleted)
    ended += [intake.ask_kill(pk, by=KillBy.BOUNDARY) for pk in _first(gone)]
    return sum(ended) + intake.end_left_behind(BATCH)


def _first(rows: object) -> list[int]:
    return list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH])  # type: ignore[attr-defined]


def end_untaken() -> int:
    """Commands that no supervisor has taken for long could not be started, and that is told."""
    rows = ProcessRecord.objects.filter(
        status=ProcessStatus.STARTING, host="", created_at__lt=DbNow() - UNTAKEN
    )
    end = intake.End(
        ProcessStatus.FAILED_START,
        domain.ProcessReason.NOT_STARTED,
        detail="no supervisor has taken it",
    )
    return sum(intake.record_end(pk, end) for pk in _first(rows))


def end_abandoned() -> int:
    """Processes whose host does not come back are lost: long past their limit nobody told an end.

    Their own supervisor would have: it ends them at their limit, and knows how they ended.
    """
    limit = ExpressionWrapper(
        F("limit_seconds") * Value(timedelta(seconds=1)), output_field=DurationField()
    )
    rows = ProcessRecord.objects.active().exclude(host="").filter(turn_id_meant__isnull=False)
    gone = rows.filter(created_at__lt=DbNow() - limit - Value(ABANDONED))
    end = intake.End(
        ProcessStatus.LOST,
        domain.ProcessReason.VANISHED,
        detail="its host has not been heard of since its time limit",
    )
    found = _first(gone)
    if found:
        logger.error("processes lost", extra={"count": len(found)})
    return sum(intake.record_end(pk, end) for pk in found)


def wake_for_ended() -> int:
    """Turns that wait for a process that has ended go on."""
    prefix = domain.process_key("")
    ended = ProcessRecord.objects.filter(uid=OuterRef("uid")).exclude(
        status__in=sorted(domain.ACTIVE)
    )
    waiting = Turn.objects.filter(status=TurnStatus.WAITING, wait_key__startswith=prefix)
    ready = waiting.annotate(uid=Substr("wait_key", len(prefix) + 1)).filter(Exists(ended))
    found = list(ready.order_by("pk").values_list("pk", "wait_key")[:BATCH])
    return sum(runner.resume(pk, key) for pk, key in found)


def expire_old() -> int:
    """Approvals whose time is up are closed; their turns go on and are told."""
    rows = Approval.objects.filter(status=ApprovalStatus.PENDING, until__lt=DbNow())
    return sum(intake.expire(approval_id=pk) for pk in _first(rows))


def purge_deleted() -> int:
    """Delete the rows of chats that were deleted long ago; ``sessions_app`` deletes the chats."""
    old = Chat.objects.filter(deleted_at__lt=DbNow() - PURGE_AFTER).values("key")
    rows = ProcessRecord.objects.filter(origin_chat__in=old).order_by().values_list("origin_chat")
    addresses = list(rows.distinct().values_list("origin_chat", flat=True)[:BATCH])
    return sum(intake.purge(address) for address in addresses)


def tell_delegated() -> int:
    """Delegated agents that have finished are told of."""
    return intake.follow_delegations(BATCH)


STEPS: Final = (
    settle_due,
    end_orphans,
    end_untaken,
    end_abandoned,
    wake_for_ended,
    expire_old,
    tell_delegated,
    purge_deleted,
)
