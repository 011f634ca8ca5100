"""The hold of a turn: begun, and let go at the end of its budget."""

from __future__ import annotations

import logging
from enum import StrEnum

from django.conf import settings

from compression_app import domain
from compression_app.domain import (
    AttemptStatus,
    Reason,
)
from compression_app.models import CompactionAttempt
from hermes.lib.db import DbNow, db_now, transacted
from sessions_app import transcript
from sessions_app.models import Session

from .consequences import close
from .rows import record

logger = logging.getLogger(__name__)


@transacted
def hold(attempt_id: int, turn_id: int, session_id: int) -> float:
    """Hold a turn for an attempt; seconds of the attempt's one budget that are left, or 0."""
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=attempt_id)
    if attempt.status not in domain.OPEN or attempt.hold_released_at is not None:
        return 0.0
    budget = settings.HERMES_TURN_HOLD_SECONDS
    if attempt.hold_started_at is not None:
        return max(0.0, budget - (db_now() - attempt.hold_started_at).total_seconds())
    CompactionAttempt.objects.amend(
        attempt_id, attempt.status, held_turn_id=turn_id, hold_started_at=DbNow()
    )
    record(session, attempt, "", "", kind="hold", reason=f"turn {turn_id}")
    transcript.publish(session)
    return float(budget)


class Released(StrEnum):
    """What a hold found at its end."""

    ENDED = "ended"  # committed or not: there is nothing to wait for
    DEFERRED = "deferred"  # it goes on, and keeps the right to commit
    CANCELLED = "cancelled"  # it was not fenced


@transacted
def release(attempt_id: int, session_id: int) -> Released:
    """End the hold of an attempt whose budget is used up; a commit in flight is waited for.

    A fenced attempt goes on, deferred; one that is not is cancelled here and its retry armed.
    """
    session = Session.objects.lock(session_id)
    attempt = CompactionAttempt.objects.get(pk=attempt_id)
    if attempt.status not in domain.OPEN:
        return Released.ENDED
    if attempt.watermark is None:
        close(session, attempt, AttemptStatus.CANCELLED, Reason.HOLD_EXPIRED)
        transcript.publish(session)
        return Released.CANCELLED
    if attempt.hold_released_at is None and attempt.hold_started_at is not None:
        CompactionAttempt.objects.amend(attempt_id, attempt.status, hold_released_at=DbNow())
        record(session, attempt, "", "", kind="hold", reason="deferred")
        transcript.publish(session)
    return Released.DEFERRED
