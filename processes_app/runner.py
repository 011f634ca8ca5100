"""How news is delivered: the single writer asked, and what its answer means to the caller."""

from __future__ import annotations

import logging
from typing import Final

from django.db import DatabaseError, InterfaceError

from sessions_app import intake as chats
from sessions_app.domain import TurnStatus
from sessions_app.models import Turn

from . import domain, verdicts
from .domain import EventStatus
from .models import CompletionEvent, ProcessRecord

logger = logging.getLogger(__name__)

AWAY: Final = (DatabaseError, InterfaceError)  # the database does not answer, or not any more


def deliver(address: str) -> bool:
    """Settle what is due at an address; report whether more may be due there.

    A database that does not answer changes nothing: what is due stays due.
    """
    try:
        settled = verdicts.settle(address)
    except AWAY as error:
        logger.warning("completions not settled", extra={"cause": str(error)})
        return False
    has_moved = settled.accepted or settled.delivered or settled.closed
    return bool(has_moved) and settled.looked_at >= verdicts.BATCH


def deliver_event(event_id: int) -> bool | None:
    """Deliver one completion, with all that is due beside it.

    True: this call has put it into a turn of its owner. None: it never will be, or somebody else
    has. False: not now; nothing was counted, it stays due and is asked for again.
    """
    try:
        rows = CompletionEvent.objects.filter(pk=event_id, status=EventStatus.PENDING)
        address = rows.values_list("origin_chat", flat=True).first()
        if address is None:
            return None
        settled = verdicts.settle(address)
        stays = rows.exists()
    except AWAY as error:
        logger.warning(
            "completion not delivered", extra={"completion": event_id, "cause": str(error)}
        )
        return False
    if event_id in settled.placed:
        return True
    return False if stays else None


def wake(process_id: int) -> bool:
    """Resume the turn that waits for a process; False if none does."""
    uid = ProcessRecord.objects.filter(pk=process_id).values_list("uid", flat=True).first()
    if uid is None:
        return False
    key = domain.process_key(uid)
    waiting = Turn.objects.filter(status=TurnStatus.WAITING, wait_key=key)
    woken = [resume(pk, key) for pk in waiting.values_list("pk", flat=True)]
    return any(woken)


def resume(turn_id: int, key: str) -> bool:
    """Resume a turn that waits for a key; False if it does not."""
    session_id = Turn.objects.filter(pk=turn_id).values_list("session_id", flat=True).first()
    return session_id is not None and chats.resume(turn_id=turn_id, session_id=session_id, key=key)
