"""What the desk does periodically; beat asks for it, and every worker by itself."""

from __future__ import annotations

import logging
from typing import Final

from celery import shared_task
from django.conf import settings
from django.utils.module_loading import import_string

from hermes.lib.db import DbNow
from sessions_app import periodic

from . import alerts, heartbeats, logins, rollups
from .models import CheckResult

logger = logging.getLogger(__name__)

EVERY: Final = 15.0  # seconds between two rollups
CHECKED: Final = 3_600.0  # seconds between two checks of all rows


@shared_task(name="hermes.dashboard.sweep", acks_late=True)
def sweep_when_due() -> None:
    """Roll up what happened, if it is due."""
    sweep()


def sweep(*, force: bool = False) -> bool:
    """Roll up what happened and forget what is old, if it is due; whether it was."""
    return periodic.run_due("desk.sweep", EVERY, STEPS, force=force) is not None


@shared_task(name="hermes.dashboard.check", acks_late=True)
def check_when_due() -> None:
    """Hold all rows against their invariants, if it is due."""
    check()


def check(*, force: bool = False) -> int | None:
    """Hold all rows against their invariants; how many are broken, None if it was not due."""
    with periodic.due("desk.check", CHECKED, force=force) as is_due:
        if not is_due:
            return None
        found = [line for name in settings.HERMES_INVARIANTS for line in import_string(name)(None)]
        CheckResult.objects.update_or_create(
            name="invariants",
            defaults={
                "at": DbNow(),
                "violations": len(found),
                "detail": "\n".join(found[:50]),
            },
        )
        if found:
            logger.error("invariants broken", extra={"count": len(found)})
        return len(found)


def _roll_up() -> int:
    rollups.catch_up()
    return 1


STEPS: Final = (
    _roll_up,
    heartbeats.forget_old,
    logins.forget_old,
    alerts.evaluate,
    alerts.deliver,
)
