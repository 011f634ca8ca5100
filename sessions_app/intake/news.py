"""What other applications bring into a chat: turns that report, and agents that were delegated."""

from __future__ import annotations

from hermes.lib.db import DbNow, transacted
from sessions_app import domain, transcript
from sessions_app.domain import BegunBy, Code, EndReason, Refused, TurnSource
from sessions_app.models import Chat, Session, Turn

from . import owned
from .chats import create_chat, end_session
from .turns import queue_turn


def session_for_news(chat: Chat, session: Session | None) -> Session:
    """The session that takes news in a locked chat: open, reopened, or begun for the system.

    ``session`` is locked too, and the one that the caller has judged to be right; None begins one.
    """
    if session is None:
        if chat.begun_at is None:
            chat.begun_at = DbNow()
            transcript.publish_chat(chat, "begun_at")
        return owned.begin_session(chat, BegunBy.SYSTEM)
    if session.ended_at is None:
        return session
    if not owned.is_reopenable(session):
        raise ValueError("a session that a person has ended is not reopened")
    owned.reopen(session)
    if chat.current_id != session.pk:
        chat.current = session
        transcript.publish_chat(chat, "current")
    return session


def queue_completion_turn(session: Session, *, text: str, key: str) -> Turn:
    """Queue a turn that reports, behind everything that people wait for; hint the worker.

    Called with chat and session locked. It is nobody's activity: neither the place of the chat in
    the sidebar nor its title changes. ``key`` is unique in the chat: the same news twice is one
    turn, by constraint.
    """
    text = domain.storable(text)
    turn = queue_turn(
        session,
        TurnSource.COMPLETION,
        client_turn_id=key,
        text=text,
        text_hash=domain.text_hash(text),
        rank=domain.RANK_COMPLETION,
    )
    transcript.publish(session)
    return turn


@transacted
def delegate(*, by_session_id: int, key: str, goal: str, turn_id: int, run: int) -> Turn:
    """Give a goal to an agent in a hidden chat of its own, once per key; return its turn.

    Its chat has the owner of the one that asks, and keeps the key of the asking session.

    Raises:
        Refused: the asking turn does not run any more.
    """
    asking = Session.objects.lock(by_session_id)
    chat = Chat.objects.get(pk=asking.chat_id)
    known = Turn.objects.filter(chat__key=key).order_by("pk").first()
    if known is not None:
        return known
    runs = Turn.objects.filter(
        pk=turn_id, session=asking, status=domain.TurnStatus.RUNNING, fence_token=run
    )
    if asking.ended_at is not None or not runs.exists():
        raise Refused(Code.ENDED, "The turn that asked has ended.")
    hidden = create_chat(user_id=chat.owner_id, key=key, title=domain.title_from(goal))
    hidden.is_hidden, hidden.delegated_by = True, asking.key
    hidden.endpoint_id, hidden.begun_at = chat.endpoint_id, DbNow()
    hidden.save(update_fields=["is_hidden", "delegated_by", "endpoint", "begun_at"])
    session = owned.begin_session(Chat.objects.lock(hidden.pk), BegunBy.SYSTEM)
    text = domain.storable(goal)
    turn = queue_turn(
        session,
        TurnSource.PERSON,
        client_turn_id="goal",
        text=text,
        text_hash=domain.text_hash(text),
    )
    transcript.publish(session)
    return turn


def end_delegated(*, by_key: str) -> int:
    """End the agents that a session has delegated, with what they are doing; how many there were.

    Each in a transaction of its own: a fault with one leaves the others ended.
    """
    working = Chat.objects.filter(delegated_by=by_key, current__ended_at=None)
    ended = [pk for pk in working.values_list("pk", flat=True) if _end_delegated(pk)]
    return len(ended)


@transacted
def _end_delegated(chat_id: int) -> bool:
    chat = Chat.objects.lock(chat_id)
    session = None if chat.current_id is None else Session.objects.lock(chat.current_id)
    if session is None or session.ended_at is not None:
        return False
    end_session(session, EndReason.DELETED)
    return True
