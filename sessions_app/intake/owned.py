"""Finding and locking what a person may use. What is not theirs does not exist for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from hermes.lib.db import transacted
from sessions_app import domain, transcript
from sessions_app.domain import BegunBy, Code, EndReason, Refused, TurnStatus
from sessions_app.models import Chat, ClientRequest, Session, Turn

R = TypeVar("R")

NOT_FOUND = "This chat does not exist, or it is not yours."


def lock_chat(chat_id: int, user_id: int) -> Chat:
    """The person's chat, locked; refused as not found whoever else owns it."""
    try:
        chat: Chat = Chat.objects.of(user_id).select_for_update(no_key=True).get(pk=chat_id)
    except Chat.DoesNotExist:
        raise Refused(Code.NOT_FOUND, NOT_FOUND) from None
    return chat


def lock_current(chat: Chat) -> Session:
    """The chat's open session, locked; one that the system ended is reopened, none is begun.

    Called with the chat locked, which is what makes the choice stay true.
    """
    current = None if chat.current_id is None else Session.objects.lock(chat.current_id)
    if current is not None and current.ended_at is None:
        return current
    if current is not None and is_reopenable(current):
        reopen(current)
        return current
    return begin_session(chat, BegunBy.USER)


def is_reopenable(session: Session) -> bool:
    """Whether an ended session may go on: the system ended it, no person did."""
    reason = session.end_reason
    return reason is not None and domain.END_CLASS[EndReason(reason)] is domain.EndClass.SYSTEM


def reopen(session: Session) -> None:
    """Let a locked, ended session go on under a new generation; the caller publishes."""
    transcript.record(
        session, f"session:{session.pk}", "session", frm="ended", to="open", reason="reopened"
    )
    session.ended_at = session.end_reason = None
    transcript.raise_generation(session)


def begin_session(chat: Chat, begun_by: BegunBy) -> Session:
    """Open the next session of a locked chat and make it the current one."""
    newest = Session.objects.filter(chat=chat).order_by("-number").values_list("number", flat=True)
    session = Session.objects.create(
        chat=chat, key=uuid.uuid4().hex, number=(newest.first() or 0) + 1, begun_by=begun_by
    )
    session = Session.objects.lock(session.pk)
    chat.current = session
    transcript.publish_chat(chat, "current")
    transcript.record(session, f"session:{session.pk}", "session", to="open", reason=begun_by)
    return session


def close_open_turns(session: Session, *, reason: str, actor: str) -> list[str]:
    """Cancel every open turn of a locked session; return the queued texts of people, in order."""
    drafts = []
    turns = Turn.objects.filter(session=session, status__in=sorted(domain.OPEN_TURN))
    for turn in turns.select_related("chat").order_by("rank", "position", "pk"):
        if turn.started_at is None and turn.source == domain.TurnSource.PERSON:
            drafts.append(turn.text)
        transcript.end_locked(session, turn, TurnStatus.CANCELLED, reason=reason, actor=actor)
    return drafts


def stop_underway(session: Session, *, actor: str) -> None:
    """End what is underway in a locked session at once, with what it has; messages go on waiting.

    A turn that was handed back, or that answers again, would else answer another context.
    """
    for turn in Turn.objects.underway().filter(session=session).select_related("chat"):
        transcript.end_locked(session, turn, TurnStatus.CANCELLED, reason="stopped", actor=actor)


def once(
    chat: Chat, client_id: str, kind: str, text: str, act: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Act once per client id and return the reply; asked again, return the same reply.

    Called with the chat locked. A known id that carried something else is refused.
    """
    asked = domain.text_hash(text)
    known = ClientRequest.objects.filter(chat=chat, client_id=client_id).first()
    if known is not None:
        if (known.kind, known.text_hash) != (kind, asked):
            raise Refused(Code.ID_REUSED, "This id was already used for something else.")
        reply: dict[str, Any] = known.reply
        return reply
    if Turn.objects.filter(chat=chat, client_turn_id=client_id).exists():
        raise Refused(Code.ID_REUSED, "This id was already used for a message.")
    reply = act()
    ClientRequest.objects.create(
        chat=chat, client_id=client_id, kind=kind, text_hash=asked, reply=reply
    )
    return reply


@transacted
def act_once(
    *,
    chat_id: int,
    user_id: int,
    client_id: str,
    kind: str,
    text: str,
    act: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Act once per client id, in one transaction with the record of the reply; see :func:`once`."""
    return once(lock_chat(chat_id, user_id), client_id, kind, text, act)
