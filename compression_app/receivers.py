"""Hints from the transcript: a turn was committed, a context changed, a session ended."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from sessions_app import signals

from . import intake
from .domain import Trigger


@receiver(signals.turn_committed)
def compact_if_due(
    session_id: int,
    window: int,
    size: int | None,
    built_on_id: int | None,
    left_out: int = 0,
    **_: Any,
) -> None:
    """After a turn: note its reading, and summarise in the background above the soft mark."""
    intake.after_turn(
        session_id=session_id,
        window=window,
        size=size,
        built_on_id=built_on_id,
        left_out=left_out,
    )


@receiver(signals.turn_overflowed)
def compact_what_overflowed(session_id: int, **_: Any) -> None:
    """One bounded try past any cooldown; the turn itself goes on with less."""
    intake.request_compaction(session_id=session_id, trigger=Trigger.OVERFLOW)


@receiver(signals.context_changed)
def supersede_changed(session_id: int, **_: Any) -> None:
    """What was begun on the old context is void."""
    intake.supersede(session_id=session_id)


@receiver(signals.session_ended)
def supersede_ended(session_id: int, **_: Any) -> None:
    """Nothing is summarised for a session that a person has ended."""
    intake.supersede(session_id=session_id)
