"""The last look before a turn that reports starts: does its news still belong here?"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hermes.lib.db import DbNow
from sessions_app.domain import Drop, Pass, TurnFacts, TurnSource

from . import verdicts
from .models import ProcessRecord

YOUNG: Final = timedelta(hours=24)  # an older process does not keep its session open for ever


def keeps_open(session_key: str) -> bool:
    """Whether a process that is not old yet runs for a session, which is then not idle."""
    running = ProcessRecord.objects.active().filter(origin_session=session_key)
    return running.filter(created_at__gt=DbNow() - YOUNG).exists()


def still_wanted(turn: TurnFacts) -> Pass | Drop:
    """Drop a reporting turn whose news the table would not deliver here any more.

    Its events are judged again, and what is still wanted comes in a turn of its own.
    """
    if turn.source is not TurnSource.COMPLETION or turn.has_started:
        return Pass()
    if verdicts.is_wanted(turn.turn_id, turn.session_key):
        return Pass()
    return Drop("its news does not belong here any more")
