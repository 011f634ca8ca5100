"""Taking on what a person sends: turns, the queue, stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.models import Min, QuerySet

from hermes.lib import tokens
from hermes.lib.db import DbNow, transacted
from hermes.lib.hints import enqueue_on_commit
from sessions_app import domain, endpoints, tasks, transcript
from sessions_app.domain import Code, Refused, TurnSource, TurnStatus
from sessions_app.models import Chat, Session, Turn
from sessions_app.transcript.head import head_tokens

from . import owned


@dataclass(frozen=True)
class Accepted:
    """A turn that is durable, and whether this call made it."""

    turn: Turn
    is_new: bool


@transacted
def accept_turn(*, chat_id: int, user_id: int, client_turn_id: str, text: str) -> Accepted:
    """Queue what a person said, once per client id; it becomes a message when its turn starts."""
    text = domain.storable(text)
    check_text(text)
    chat = owned.lock_chat(chat_id, user_id)
    asked = domain.text_hash(text)
    known_id, is_command, waiting = _before(chat, client_turn_id)
    if known_id is not None:
        known = Turn.objects.get(pk=known_id)
        if known.text_hash != asked:
            raise Refused(Code.ID_REUSED, "This id was already used for another message.")
        return Accepted(known, is_new=False)
    check_fits(chat, text)
    session = owned.lock_current(chat)
    if waiting >= settings.HERMES_QUEUE_LIMIT:
        raise Refused(
            Code.QUEUE_FULL,
            f"{settings.HERMES_QUEUE_LIMIT} messages are waiting already; let some be answered.",
        )
    if is_command:
        raise Refused(Code.ID_REUSED, "This id was already used for a command.")
    turn = queue_turn(
        session, TurnSource.PERSON, client_turn_id=client_turn_id, text=text, text_hash=asked
    )
    _touch_chat(chat, text)
    transcript.publish(session)
    return Accepted(turn, is_new=True)


# One round instead of three before every message, and written down: putting it together anew each
# time takes the query builder longer than the database needs to answer it.
_BEFORE: Final = """
SELECT (SELECT id FROM sessions_app_turn WHERE chat_id = c.id AND client_turn_id = %(id)s),
       EXISTS (SELECT FROM sessions_app_clientrequest WHERE chat_id = c.id AND client_id = %(id)s),
       (SELECT count(*) FROM sessions_app_turn
        WHERE session_id = c.current_id AND status = 'queued')
FROM sessions_app_chat c WHERE c.id = %(chat)s
"""


def _before(chat: Chat, client_id: str) -> tuple[int | None, bool, int]:
    """The turn that has this id, whether a command has it, and how many turns wait.

    Called with the chat locked: whoever adds a turn or a command to it holds the same lock.
    """
    with connection.cursor() as cursor:
        cursor.execute(_BEFORE, {"id": client_id, "chat": chat.pk})
        turn_id, is_command, waiting = cursor.fetchone()
    return turn_id, is_command, waiting


def queue_turn(
    session: Session,
    source: TurnSource,
    *,
    client_turn_id: str | None = None,
    text: str = "",
    text_hash: str = "",
    rank: int = domain.RANK_PERSON,
) -> Turn:
    """Add a turn to the end of a locked session's queue and hint the worker; caller publishes."""
    session.last_position += 1
    turn = Turn(
        chat_id=session.chat_id,
        session=session,
        source=source,
        client_turn_id=client_turn_id,
        text=text,
        text_hash=text_hash,
        rank=rank,
        position=session.last_position,
        changed=transcript.next_version(session),
    )
    turn.save(force_insert=True)
    enqueue_on_commit(tasks.run_turns, session.pk)
    return turn


def check_text(text: str) -> None:
    """Refuse an empty text and one over the limit."""
    if not text.strip():
        raise Refused(Code.EMPTY, "There is nothing to send.")
    limit = settings.MAX_MESSAGE_BYTES
    size = len(text.encode())
    if size > limit:
        raise Refused(
            Code.TOO_LARGE,
            f"The message has {size:,} bytes; at most {limit:,} can be sent at once.",
        )


def check_fits(chat: Chat, text: str) -> None:
    """Refuse a message that alone would not fit into the model's window."""
    if len(text) < 2_000:  # fits into the smallest window that an endpoint may have
        return
    window = endpoints.window_for(chat.endpoint_id)
    room = domain.budget(domain.estimated_window(window), head_tokens())
    needed = tokens.estimate(text)
    if needed > room:
        raise Refused(
            Code.TOO_LONG,
            f"The message has about {needed:,} tokens; the model takes at most {room:,} at once.",
        )


def _touch_chat(chat: Chat, text: str) -> None:
    """A person wrote: the chat moves up, drafts are answered, the first words give a title."""
    chat.active_at = DbNow()
    fields = ["active_at"]
    if chat.draft:
        chat.draft = ""
        fields.append("draft")
    if chat.begun_at is None:
        chat.begun_at = DbNow()
        fields.append("begun_at")
    if not chat.title and not chat.is_named:
        chat.title = domain.title_from(text)
        fields.append("title")
    if len(fields) > 1:
        transcript.publish_chat(chat, *fields)
    else:
        chat.save(update_fields=fields)


@transacted
def stop_turn(*, chat_id: int, user_id: int, actor: str = "") -> Turn | None:
    """Ask the turn that is underway in a chat to stop; return it, or None if none is.

    A running turn is ended by its worker, or after two seconds by whoever asked
    (:func:`end_stopped`); one that waits, or that no worker has, is cancelled here and now.
    """
    chat = owned.lock_chat(chat_id, user_id)
    if chat.current_id is None:
        return None
    session = Session.objects.lock(chat.current_id)
    underway = Turn.objects.underway().filter(session=session).select_related("chat")
    turn = underway.busy().first() or underway.queued().first()
    if turn is None:
        return None
    if turn.status != TurnStatus.RUNNING:
        transcript.end_locked(session, turn, TurnStatus.CANCELLED, reason="stopped", actor=actor)
        transcript.publish(session)
        enqueue_on_commit(tasks.run_turns, session.pk)
        return turn
    Turn.objects.filter(pk=turn.pk, stop_asked_at=None).update(stop_asked_at=DbNow())
    transcript.record(session, f"turn:{turn.pk}", "stop", actor=actor)
    return turn


def end_stopped(turn: Turn) -> bool:
    """End a turn that was asked to stop and did not; False if it has ended by itself."""
    landed = transcript.end_unheld(
        turn.pk,
        TurnStatus.CANCELLED,
        session_id=turn.session_id,
        reason="stopped",
        token=turn.fence_token,
    )
    tasks.hint_turns(turn.session_id)
    return landed


def _lock_queued(chat_id: int, user_id: int, turn_id: int) -> tuple[Session, Turn]:
    chat = owned.lock_chat(chat_id, user_id)
    turn = Turn.objects.filter(pk=turn_id, chat=chat).select_related("chat").first()
    if turn is None:
        raise Refused(Code.NOT_FOUND, "This message does not exist.")
    session = Session.objects.lock(turn.session_id)
    turn.refresh_from_db(fields=["status", "started_at", "text"])
    is_queued = turn.status == TurnStatus.QUEUED and turn.started_at is None
    if not is_queued or turn.source != TurnSource.PERSON:
        raise Refused(Code.NOT_QUEUED, "This message is not waiting any more.")
    return session, turn


@transacted
def edit_queued(*, chat_id: int, user_id: int, turn_id: int, text: str) -> Turn:
    """Change the text of a message that waits."""
    text = domain.storable(text)
    check_text(text)
    session, turn = _lock_queued(chat_id, user_id, turn_id)
    check_fits(turn.chat, text)
    turn.text = text
    turn.changed = transcript.next_version(session)
    turn.save(update_fields=["text", "changed"])
    transcript.publish(session)
    return turn


@transacted
def delete_queued(*, chat_id: int, user_id: int, turn_id: int, actor: str = "") -> Turn:
    """Take back a message that waits."""
    session, turn = _lock_queued(chat_id, user_id, turn_id)
    transcript.end_locked(session, turn, TurnStatus.CANCELLED, reason="taken_back", actor=actor)
    transcript.publish(session)
    return turn


@transacted
def promote(*, chat_id: int, user_id: int, turn_id: int, actor: str = "") -> Turn | None:
    """Move a waiting message to the front and ask the running turn to stop; return that turn."""
    session, turn = _lock_queued(chat_id, user_id, turn_id)
    promoted = Turn.objects.queued().filter(session=session, rank=domain.RANK_PROMOTED)
    turn.rank = domain.RANK_PROMOTED
    turn.position = (promoted.aggregate(first=Min("position"))["first"] or turn.position) - 1
    turn.changed = transcript.next_version(session)
    turn.save(update_fields=["rank", "position", "changed"])
    busy = Turn.objects.busy().filter(session=session).select_related("chat").first()
    if busy is not None and busy.status == TurnStatus.WAITING:
        transcript.end_locked(session, busy, TurnStatus.CANCELLED, reason="stopped", actor=actor)
    elif busy is not None:
        Turn.objects.filter(pk=busy.pk, stop_asked_at=None).update(stop_asked_at=DbNow())
    transcript.publish(session)
    enqueue_on_commit(tasks.run_turns, session.pk)
    return busy


def resume(*, turn_id: int, session_id: int, key: str) -> bool:
    """Let a waiting turn go on; False if it does not wait for ``key``."""
    landed = transcript.resume(turn_id, key, session_id=session_id)
    if landed:
        tasks.hint_turns(session_id)
    return landed


def queue_of(session_id: int) -> QuerySet[Turn]:
    """The messages that people see waiting, in order."""
    return Turn.objects.queued().filter(
        session_id=session_id, started_at=None, source=TurnSource.PERSON
    )
