"""What the sweep does: finds what hints have lost, in small batches, each write guarded.

Everything here is harmless twice and at the same time; still only one sweep runs at a time, so
that slow sweeps do not pile up (``periodic.due``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Final

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Exists, OuterRef
from django.utils.module_loading import import_string

from hermes.lib.db import DbNow
from hermes.lib.leases import Owner

from . import intake, periodic, runner, tasks, transcript
from .domain import TurnStatus
from .models import Chat, Session, Turn, TurnChunk

logger = logging.getLogger(__name__)

BATCH: Final = 50  # rows a kind a sweep
STALE: Final = timedelta(seconds=5)  # a queued turn this old may have lost its hint
STOP_GRACE: Final = timedelta(seconds=2)  # after which a stop is carried out for the worker
CHUNKS_KEPT: Final = timedelta(hours=1)
PURGE_AFTER: Final = timedelta(days=30)


@shared_task(name="sessions_app.sweep", acks_late=True)
def sweep_when_due() -> None:
    """Find what hints have lost, if it is due; beat asks for it, and every worker by itself."""
    sweep()


def sweep(*, force: bool = False) -> list[int]:
    """Sweep if it is due; return the sessions that have something to run, which were hinted."""
    with periodic.due("sweep", settings.HERMES_SWEEP_SECONDS, force=force) as is_due:
        found = list(dict.fromkeys(_sweep())) if is_due else []
    for session_id in found:
        tasks.hint_turns(session_id)
    if found:
        logger.info("sweep found work", extra={"sessions": len(found)})
    return found


def _sweep() -> Iterator[int]:
    steps: list[Callable[[], Iterable[int] | None]] = [
        end_abandoned,
        end_stopped,
        wake_waiting,
        find_queued,
        _clean,
        _end_idle,
    ]
    for step in steps:
        try:
            yield from step() or ()
        except DatabaseError as error:
            logger.warning("sweep step failed", extra={"step": step.__name__, "cause": str(error)})
            connection.close()  # a broken one would fail the next steps too


def end_abandoned() -> Iterator[int]:
    """End running turns whose lease ran out, or whose owner is provably gone."""
    running = Turn.objects.filter(status=TurnStatus.RUNNING)
    expired = list(
        Turn.objects.expired()
        .order_by("lease_expires_at")
        .values_list("pk", "fence_token", "session_id")[:BATCH]
    )
    owners = running.order_by().values_list("lease_owner", flat=True).distinct()
    gone = [text for text in owners if (owner := Owner.parse(text)) and owner.is_gone()]
    orphaned = running.filter(lease_owner__in=gone).values_list("pk", "fence_token", "session_id")
    for pk, token, session_id in {*expired, *orphaned[:BATCH]}:
        if transcript.end_unheld(
            pk, TurnStatus.INTERRUPTED, session_id=session_id, reason="worker_lost", token=token
        ):
            yield session_id


def end_stopped() -> Iterator[int]:
    """Carry out a stop that the worker did not."""
    asked = Turn.objects.filter(status=TurnStatus.RUNNING, stop_asked_at__lt=DbNow() - STOP_GRACE)
    for pk, token, session_id in asked.values_list("pk", "fence_token", "session_id")[:BATCH]:
        if transcript.end_unheld(
            pk, TurnStatus.CANCELLED, session_id=session_id, reason="stopped", token=token
        ):
            yield session_id


def wake_waiting() -> Iterator[int]:
    """Let waiting turns go on whose time is up, or whose tool has its result."""
    for pk, key, session_id in transcript.waiting_until_passed(BATCH):
        if intake.resume(turn_id=pk, session_id=session_id, key=key):
            yield session_id
    waiting = Turn.objects.filter(status=TurnStatus.WAITING).exclude(wait_key=runner.PROVIDER_KEY)
    for pk, key, session_id in waiting.order_by("pk").values_list("pk", "wait_key", "session_id")[
        :BATCH
    ]:
        if runner.is_ready(pk) and intake.resume(turn_id=pk, session_id=session_id, key=key):
            yield session_id


def find_queued() -> Iterator[int]:
    """Sessions with a queued turn that nobody has begun, and nothing running or waiting."""
    busy = Turn.objects.busy().filter(session=OuterRef("session"))
    stale = (
        Turn.objects.filter(status=TurnStatus.QUEUED, created_at__lt=DbNow() - STALE)
        .filter(~Exists(busy))
        .order_by("created_at")
    )
    yield from stale.values_list("session_id", flat=True)[:BATCH]


def _clean() -> None:
    """Delete chunks that a message holds by now, and purge what was deleted long ago."""
    old = TurnChunk.objects.filter(created_at__lt=DbNow() - CHUNKS_KEPT).exclude(
        turn__status=TurnStatus.RUNNING
    )
    TurnChunk.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:1000])).delete()
    chats = Chat.objects.filter(deleted_at__lt=DbNow() - PURGE_AFTER)
    for pk in chats.order_by("deleted_at").values_list("pk", flat=True)[:BATCH]:
        try:
            intake.purge(pk)
        except DatabaseError as error:  # another application has not purged its rows yet
            logger.info("chat not purged yet", extra={"chat": pk, "cause": str(error)})


def _end_idle() -> None:
    """End sessions in which nothing has happened for as long as operators allow; 0 is never."""
    hours = settings.HERMES_SESSION_IDLE_HOURS
    if not hours:
        return
    idle = Session.objects.open().filter(touched_at__lt=DbNow() - timedelta(hours=hours))
    keepers = [import_string(name) for name in settings.HERMES_KEEP_OPEN]
    found = idle.order_by("touched_at").values_list("pk", "chat_id", "key")[:BATCH]
    for pk, chat_id, key in found:
        if any(keeps(key) for keeps in keepers):
            continue
        intake.end_idle(session_id=pk, chat_id=chat_id, hours=hours)
