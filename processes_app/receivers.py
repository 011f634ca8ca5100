"""Hints from the transcript: a turn started, ended or completed, a session ended."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from sessions_app import signals
from sessions_app.domain import TurnSource

from . import intake


@receiver(signals.turn_started)
def settle_started(turn_id: int, source: str, **_: Any) -> None:
    """News whose turn has started is delivered, and what waited behind it is next."""
    if source == TurnSource.COMPLETION:
        intake.settle_soon(turn_id=turn_id)


@receiver(signals.turn_ended)
def follow_ended(turn_id: int, session_id: int, **_: Any) -> None:
    """What belongs to an ended turn is ended, and news that it did not tell is judged again."""
    intake.follow_turn(session_id=session_id, turn_id=turn_id)


@receiver(signals.turn_committed)
def follow_committed(session_id: int, turn_id: int, **_: Any) -> None:
    """A person was answered, or a delegated agent has finished: held news may go on."""
    intake.follow_turn(session_id=session_id, turn_id=turn_id)


@receiver(signals.session_ended)
def settle_ended(session_id: int, **_: Any) -> None:
    """News of a session that has ended is judged at once; a deletion ends its processes."""
    intake.end_of_session(session_id)
    intake.settle_held(session_id=session_id)
