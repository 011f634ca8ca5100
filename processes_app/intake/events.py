"""Operators' decisions about news, and the hint that news is due."""

from __future__ import annotations

from hermes.lib.db import transacted
from hermes.lib.hints import enqueue, enqueue_on_commit
from processes_app import tasks, verdicts
from processes_app.models import UNSETTLED, CompletionEvent
from sessions_app import intake as chats
from sessions_app.models import Session


def settle_soon(
    *, session_key: str = "", turn_id: int | None = None, but: str | None = None
) -> int:
    """Hint that news of a session or a turn is to be looked at; how many addresses have any.

    The address ``but`` is left out: it has been hinted already.
    """
    rows = CompletionEvent.objects.filter(status__in=UNSETTLED)
    if turn_id is not None:
        rows = rows.filter(turn_id_meant=turn_id)
    else:
        rows = rows.filter(origin_session=session_key)
    addresses = set(rows.order_by().values_list("origin_chat", flat=True).distinct()) - {but}
    for address in addresses:
        enqueue(tasks.deliver, address)
    return len(addresses)


def settle_held(*, session_id: int) -> int:
    """Hint that a session has moved: news that is due or held for it is looked at again."""
    key = Session.objects.filter(pk=session_id).values_list("key", flat=True).first()
    return 0 if key is None else settle_soon(session_key=key)


@transacted
def redeliver(*, event_id: int, actor: str, why: str) -> bool:
    """Have a dropped or quiet event judged again, for an operator; False if it is neither."""
    if not verdicts.redeliver(event_id, actor=actor, why=why):
        return False
    _record(event_id, "redeliver", actor, why)
    rows = CompletionEvent.objects.filter(pk=event_id)
    for address in rows.values_list("origin_chat", flat=True):
        enqueue_on_commit(tasks.deliver, address)
    return True


@transacted
def show_quietly(*, event_id: int, actor: str, why: str) -> bool:
    """Show a pending or dropped event without a turn, for an operator; False if it cannot be."""
    if not verdicts.show_quietly(event_id, actor=actor, why=why):
        return False
    _record(event_id, "show", actor, why)
    return True


@transacted
def discard(*, event_id: int, actor: str, why: str) -> bool:
    """Drop a pending or quiet event, for an operator; False if it is neither."""
    if not verdicts.discard(event_id, actor=actor, why=why):
        return False
    _record(event_id, "discard", actor, why)
    return True


def _record(event_id: int, what: str, actor: str, why: str) -> None:
    chats.record_operation(subject=f"completion:{event_id}", what=what, actor=actor, reason=why)
