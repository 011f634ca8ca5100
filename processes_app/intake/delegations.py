"""Delegated agents: their end becomes news of the session that asked, through the same table."""

from __future__ import annotations

from typing import Final

from django.db.models import Exists, OuterRef

from hermes.lib.db import db_now, transacted
from hermes.lib.hints import enqueue_on_commit
from hermes.lib.redaction import live
from processes_app import domain, tasks
from processes_app.domain import EventKind
from processes_app.models import CompletionEvent
from sessions_app.domain import OPEN_TURN, MessageRole, TurnStatus
from sessions_app.models import Chat, Message, Session, Turn

BODY_KEPT: Final = 8000  # characters of an agent's answer


def follow_delegation(*, session_id: int) -> bool:
    """Write the news of a delegated agent's end, once; False if there is none, or it was told."""
    delegated = Session.objects.filter(pk=session_id, chat__delegated_by__isnull=False)
    return delegated.exists() and _follow(session_id)


@transacted
def _follow(session_id: int) -> bool:
    child = Session.objects.lock(session_id)
    chat = Chat.objects.get(pk=child.chat_id)
    turns = Turn.objects.filter(session=child)
    if chat.delegated_by is None or turns.filter(status__in=sorted(OPEN_TURN)).exists():
        return False
    first = turns.order_by("pk").first()
    known = CompletionEvent.objects.filter(child_session=child.key, kind=EventKind.DELEGATION)
    if first is None or known.exists():
        return False
    asking = Session.objects.filter(key=chat.delegated_by).select_related("chat").first()
    said = Message.objects.filter(session=child, role=MessageRole.ASSISTANT).exclude(text="")
    answer = said.order_by("-seq").values_list("text", flat=True).first()
    last = turns.order_by("-pk").first() or first
    how = last.error_code or last.status
    if not answer:
        answer = f"(it ended without an answer: {how})"
    elif last.status != TurnStatus.COMPLETED:  # what it said on the way is no result
        answer = f"{answer}\n\n(it ended before it had finished: {how})"
    CompletionEvent(
        child_session=child.key,
        kind=EventKind.DELEGATION,
        origin_chat="" if asking is None else asking.chat.key,
        origin_session=chat.delegated_by,
        title=first.text,
        body=domain.tail(domain.readable(live.redact(answer)), BODY_KEPT),
        happened_at=last.finished_at or db_now(),
    ).save(force_insert=True)
    enqueue_on_commit(tasks.deliver, "" if asking is None else asking.chat.key)
    return True


def follow_delegations(limit: int) -> int:
    """Find delegated agents that have finished and of which nothing was told; how many."""
    told = CompletionEvent.objects.filter(child_session=OuterRef("key"), kind=EventKind.DELEGATION)
    open_turns = Turn.objects.filter(session=OuterRef("pk"), status__in=sorted(OPEN_TURN))
    rows = Session.objects.filter(
        ~Exists(told), ~Exists(open_turns), chat__delegated_by__isnull=False
    )
    found = list(rows.order_by("pk").values_list("pk", flat=True)[:limit])
    return sum(follow_delegation(session_id=pk) for pk in found)
