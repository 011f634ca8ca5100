"""Answering again: regenerate, continue, edit, undo, and bringing older versions back."""

from __future__ import annotations

from hermes.lib.db import transacted
from sessions_app import domain, transcript
from sessions_app.domain import Code, MessageKind, MessageRole, Refused, RewindReason, TurnSource
from sessions_app.models import Chat, Message, Session, Turn

from . import owned
from .endpoints import record_operation
from .turns import check_fits, check_text, queue_turn

NOTHING = "There is nothing here that could be done again."


def _lock(chat_id: int, user_id: int) -> tuple[Chat, Session]:
    chat = owned.lock_chat(chat_id, user_id)
    return chat, owned.lock_current(chat)


def _last_input(session: Session, *, turn_id: int | None = None) -> Message:
    """The newest live message of a person in a locked session, or that of a turn."""
    inputs = Message.objects.filter(
        session=session,
        role=MessageRole.USER,
        kind__in=[MessageKind.TEXT, MessageKind.COMPLETION],
    ).live()
    if turn_id is not None:
        first = (
            Turn.objects.filter(pk=turn_id, session=session).values_list("first_seq", flat=True)
        ).first()
        if first is None:
            raise Refused(Code.NOT_FOUND, "This message does not exist in the open session.")
        inputs = inputs.filter(seq__lte=first)
    found = inputs.order_by("-seq").first()
    if found is None:
        raise Refused(Code.NOTHING_TO_REDO, NOTHING)
    return found


def _known(chat: Chat, client_turn_id: str | None, asked: str) -> Turn | None:
    """The turn that this client id made, if it did; refused if it stood for something else."""
    if client_turn_id is None:
        return None
    known = Turn.objects.filter(chat=chat, client_turn_id=client_turn_id).first()
    if known is not None and known.text_hash != asked:
        raise Refused(Code.ID_REUSED, "This id was already used for another message.")
    return known


@transacted
def regenerate(
    *,
    chat_id: int,
    user_id: int,
    turn_id: int | None = None,
    client_turn_id: str | None = None,
    actor: str = "",
) -> Turn:
    """Answer a message again (the last, or that of a turn); the older answer can come back.

    The running turn is stopped first. What came after the message steps out of the context.
    """
    chat = owned.lock_chat(chat_id, user_id)
    asked = domain.text_hash(f"regenerate:{turn_id}")
    if (known := _known(chat, client_turn_id, asked)) is not None:
        return known
    session = owned.lock_current(chat)
    owned.stop_underway(session, actor=actor)
    said = _last_input(session, turn_id=turn_id)
    transcript.rewind(session, said.seq + 1, RewindReason.REGENERATE, actor=actor)
    turn = queue_turn(
        session,
        TurnSource.REGENERATE,
        client_turn_id=client_turn_id,
        text_hash=asked,
        rank=domain.RANK_PROMOTED,
    )
    transcript.publish(session)
    return turn


@transacted
def continue_turn(
    *,
    chat_id: int,
    user_id: int,
    client_turn_id: str | None = None,
    actor: str = "",
) -> Turn:
    """Let the model go on after its last, partial answer."""
    chat = owned.lock_chat(chat_id, user_id)
    asked = domain.text_hash("continue")
    if (known := _known(chat, client_turn_id, asked)) is not None:
        return known
    session = owned.lock_current(chat)
    if Turn.objects.underway().filter(session=session).exists():
        raise Refused(Code.BUSY, "An answer is being written.")
    last = Message.objects.filter(session=session).live().order_by("-seq").first()
    if last is None or last.role == MessageRole.USER:
        raise Refused(Code.NOTHING_TO_REDO, NOTHING)
    turn = queue_turn(
        session,
        TurnSource.CONTINUE,
        client_turn_id=client_turn_id,
        text_hash=asked,
        rank=domain.RANK_PROMOTED,
    )
    transcript.record(session, f"turn:{turn.pk}", "continue", actor=actor)
    transcript.publish(session)
    return turn


@transacted
def edit_message(
    *, chat_id: int, user_id: int, turn_id: int, client_turn_id: str, text: str, actor: str = ""
) -> Turn:
    """Say a message of the open session differently and answer that; the older version is kept."""
    text = domain.storable(text)
    check_text(text)
    chat = owned.lock_chat(chat_id, user_id)
    asked = domain.text_hash(text)
    if (known := _known(chat, client_turn_id, asked)) is not None:
        return known
    check_fits(chat, text)
    session = owned.lock_current(chat)
    owned.stop_underway(session, actor=actor)
    said = Message.objects.filter(
        session=session, turn_id=turn_id, role=MessageRole.USER, kind=MessageKind.TEXT
    ).live()
    first = said.order_by("seq").first()
    if first is None:
        raise Refused(Code.NOT_FOUND, "This message does not exist in the open session.")
    transcript.rewind(session, first.seq, RewindReason.EDIT, actor=actor)
    turn = queue_turn(
        session,
        TurnSource.PERSON,
        client_turn_id=client_turn_id,
        text=text,
        text_hash=asked,
        rank=domain.RANK_PROMOTED,
    )
    transcript.publish(session)
    return turn


@transacted
def rewind_to(
    *, chat_id: int, user_id: int, turn_id: int | None = None, actor: str = ""
) -> tuple[int, str]:
    """Take the last exchange, or all from a turn's message on, out of the context (``/undo``).

    Return the key of the rewind, which can be undone, and the text that the person had said:
    none where the exchange began with a report of the machine.
    """
    _chat, session = _lock(chat_id, user_id)
    owned.stop_underway(session, actor=actor)
    said = _last_input(session, turn_id=turn_id)
    made = transcript.rewind(session, said.seq, RewindReason.UNDO, actor=actor)
    if made is None:
        raise Refused(Code.NOTHING_TO_REDO, NOTHING)
    transcript.publish(session)
    return made, said.text if said.kind == MessageKind.TEXT else ""


@transacted
def bring_back(*, chat_id: int, user_id: int, rewind_id: int, actor: str = "") -> None:
    """Put what a rewind took out into the context again, in the place of what stands there now."""
    _chat, session = _lock(chat_id, user_id)
    owned.stop_underway(session, actor=actor)
    if not transcript.bring_back(session, rewind_id, actor=actor):
        raise Refused(Code.NOT_FOUND, "This version cannot be brought back any more.")
    transcript.publish(session)


@transacted
def undo_summary(
    *,
    chat_id: int,
    user_id: int,
    summary_id: int | None = None,
    actor: str = "",
    reason: str = "",
) -> None:
    """Let the model read the messages again that the current summary stands for.

    An operator gives a ``reason``, which is recorded.
    """
    _chat, session = _lock(chat_id, user_id)
    if not transcript.undo_summary(session, summary_id, actor=actor):
        raise Refused(Code.NOTHING_TO_REDO, "There is no summary here that could be undone.")
    if reason:
        subject = f"summary:{summary_id}"
        record_operation(subject=subject, what="undo", actor=actor, reason=reason, session=session)
    transcript.publish(session)
