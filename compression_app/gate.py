"""The turn hold: a turn waits for a summary within one small budget, and runs in any case."""

from __future__ import annotations

import time
from typing import Final

from django.conf import settings

from hermes.lib.db import released
from hermes.lib.leases import renewer
from sessions_app.domain import Pass, TurnFacts, TurnStatus
from sessions_app.models import Turn

from . import domain, fence, intake
from .domain import Trigger
from .models import CompactionAttempt

POLL: Final = 0.1  # seconds between two looks at the attempt


def hold(turn: TurnFacts) -> Pass:
    """Hold a turn above the hard mark while its session is summarised, at most for the budget.

    Progress never extends it. Whatever the summary does, the turn passes.
    """
    if not turn.window or turn.has_started or not is_above(turn):
        return Pass()
    opened = intake.request_compaction(
        session_id=turn.session_id,
        trigger=Trigger.HARD,
        incoming_tokens=turn.input_tokens,
    )
    attempt = opened if isinstance(opened, CompactionAttempt) else opened.attempt
    if attempt is None:
        return Pass()
    budget = fence.hold(attempt.pk, turn.turn_id, turn.session_id)
    if budget > 0 and not _ended_within(attempt.pk, turn, budget):
        fence.release(attempt.pk, turn.session_id)
    return Pass()


def is_above(turn: TurnFacts) -> bool:
    """Whether the next request would be above the hard mark, or the message limit is reached."""
    size = turn.context_tokens + turn.input_tokens
    is_big = size >= domain.mark(turn.window, settings.HERMES_HARD_MARK)
    return is_big or turn.live_messages >= settings.HERMES_MESSAGE_LIMIT


def _ended_within(attempt_id: int, turn: TurnFacts, budget: float) -> bool:
    """Whether the attempt ended, or the turn was stopped, before the budget was used up."""
    until = time.monotonic() + budget
    while True:
        attempt = CompactionAttempt.objects.filter(pk=attempt_id, status__in=sorted(domain.OPEN))
        wanted = Turn.objects.filter(
            pk=turn.turn_id,
            fence_token=turn.run,
            status=TurnStatus.RUNNING,
            stop_asked_at=None,
        )
        if renewer.is_leaving() or not attempt.exists() or not wanted.exists():
            return True
        left = until - time.monotonic()
        if left <= 0:
            return False
        with released():
            time.sleep(min(POLL, left))
