"""Appending to a transcript, and what every write of it leaves behind: version, history, push."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from hermes.lib import tokens
from hermes.lib.db import DbNow
from hermes.lib.hints import chat_group, push_on_commit, session_group
from sessions_app import domain, signals
from sessions_app.models import Chat, History, Message, Session, Turn

NUMBERS = [
    "version",
    "generation",
    "last_seq",
    "last_position",
    "live_tokens",
    "live_count",
    "left_out",
    "reading_tokens",
    "reading_seq",
    "reading_live",
    "reading_summary",
    "ended_at",
    "end_reason",
    "touched_at",
]


def next_version(session: Session) -> int:
    """The version that :func:`publish` will give to this transaction's changes."""
    return session.version + 1


def publish(session: Session) -> None:
    """Write the numbers of a locked session once, raise its version, and hint on commit.

    Called once, as the last statement of a transaction that holds the session's lock.
    """
    session.version += 1
    session.touched_at = DbNow()
    session.save(update_fields=NUMBERS)
    push_on_commit(
        session_group(session.pk),
        {"type": "session.moved", "session": session.pk, "version": session.version},
    )


def raise_generation(session: Session) -> None:
    """The context of a locked session is another one now: what was begun on the old is void."""
    session.generation += 1
    changed = session.pk
    transaction.on_commit(
        lambda: signals.context_changed.send_robust(Session, session_id=changed), robust=True
    )


def publish_chat(chat: Chat, *fields: str) -> None:
    """Write columns of a locked chat, raise its version, and hint on commit."""
    chat.version += 1
    chat.touched_at = DbNow()
    chat.save(update_fields=[*fields, "version", "touched_at"])
    push_on_commit(
        chat_group(chat.pk), {"type": "chat.moved", "chat": chat.pk, "version": chat.version}
    )


def append(
    session: Session,
    *,
    role: domain.MessageRole,
    text: str = "",
    kind: domain.MessageKind = domain.MessageKind.TEXT,
    parts: dict[str, Any] | None = None,
    turn: Turn | None = None,
    is_partial: bool = False,
) -> Message:
    """Append a message to a locked session: this is where ``seq`` is handed out."""
    text = domain.storable(text)
    parts = domain.storable_json(parts or {})
    session.last_seq += 1
    message = Message(
        session_id=session.pk,
        turn_id=None if turn is None else turn.pk,
        seq=session.last_seq,
        role=role,
        kind=kind,
        text=text,
        parts=parts,
        is_partial=is_partial,
        tokens=domain.MESSAGE_OVERHEAD
        + tokens.estimate(text)
        + sum(
            tokens.estimate(call["arguments"]) + tokens.estimate(call["name"])
            for call in parts.get("calls", ())
        ),
    )
    message.save(force_insert=True)
    session.live_tokens += message.tokens
    session.live_count += 1
    return message


def record(
    session: Session,
    subject: str,
    kind: str,
    *,
    frm: str = "",
    to: str = "",
    reason: str = "",
    actor: str = "",
    **data: Any,
) -> None:
    """Append to the history, in the transaction of the fact itself."""
    History(
        chat=session.chat_id,
        session=session.pk,
        subject=subject,
        kind=kind,
        frm=frm,
        to=to,
        reason=reason[:200],
        actor=actor[:150],
        data=data,
    ).save(force_insert=True)


@contextmanager
def moving_history() -> Iterator[None]:
    """One transaction in which rows of the history can be changed, which a trigger refuses else:
    sample data is put into the past with it. No request and no task uses it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('hermes.history_moves', 'on', true)")
        yield
        cursor.execute("SELECT set_config('hermes.history_moves', '', true)")
