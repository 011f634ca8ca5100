"""What happens when a worker comes, works, and goes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from celery import signals
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils.module_loading import import_string

from hermes.lib.db import DbNow
from hermes.lib.leases import renewer

from . import endpoints
from .domain import TurnStatus
from .models import Turn

logger = logging.getLogger(__name__)

DEAF: Final = 60.0  # seconds without a task, while turns wait, after which a worker gives up

_last_task_at = time.monotonic()


@signals.worker_init.connect
def load_adapter(**_: Any) -> None:
    """What asks a model is loaded before the first turn has to wait for it."""
    endpoints.load()


@signals.worker_ready.connect
def begin_sweeping(sender: Any, **_: Any) -> None:
    """Recover at once, then sweep from this process too: no beat has to be there."""
    renewer.stay()
    takes_turns = "turns" in sender.app.amqp.queues.consume_from
    threading.Thread(
        target=_sweep_for_ever, args=(takes_turns,), name="sweeper", daemon=True
    ).start()


@signals.worker_shutting_down.connect
def hand_back(**_: Any) -> None:
    """Wake every turn of this process: save, hand back, leave."""
    renewer.leave()


@signals.task_prerun.connect
def note_task(**_: Any) -> None:
    """Remember that this process still hears."""
    global _last_task_at
    _last_task_at = time.monotonic()


def _sweep_for_ever(takes_turns: bool) -> None:
    forced = set(settings.HERMES_SWEEPS)  # at the start each runs, whenever it ran last
    while True:
        for name in settings.HERMES_SWEEPS:
            with _told(name):
                import_string(name)(force=name in forced)
                forced.discard(name)
        with _told("is_deaf"):
            if takes_turns and is_deaf():
                # A worker can be connected and hear nothing; what starts it again is outside.
                logger.critical("worker hears nothing, leaving")
                os._exit(1)
        connection.close()
        time.sleep(settings.HERMES_SWEEP_SECONDS)


@contextmanager
def _told(sweep: str) -> Iterator[None]:
    """Let a fault cost what is within, and be told; a broken connection costs nothing else."""
    try:
        yield
    except DatabaseError as error:
        logger.warning("sweep failed", extra={"sweep": sweep, "cause": str(error)})
        connection.close()
    except Exception:
        logger.exception("sweep failed", extra={"sweep": sweep})
        connection.close()


def is_deaf() -> bool:
    """Whether turns have waited long, while this process has no task and has heard of none."""
    if renewer.is_busy() or time.monotonic() - _last_task_at < DEAF:
        return False
    overdue = Turn.objects.filter(
        status=TurnStatus.QUEUED, created_at__lt=DbNow() - timedelta(seconds=DEAF)
    )
    busy = Turn.objects.busy().values("session")
    return overdue.exclude(session__in=busy).exists()
