"""Chats and their sessions: opened, renamed, reset, branched, hidden, brought back."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Sum

from hermes.lib.db import DbNow, db_now, transacted
from sessions_app import domain, signals, transcript
from sessions_app.domain import BegunBy, Code, EndReason, Refused
from sessions_app.models import (
    Chat,
    History,
    Message,
    ModelEndpoint,
    Rewind,
    Session,
    Summary,
    Turn,
    TurnChunk,
)

from . import owned


@transacted
def open_chat(*, user_id: int) -> Chat:
    """A chat of this person that nothing was sent to yet: the one there is, or a new one."""
    unused = Chat.objects.of(user_id).filter(begun_at=None, archived_at=None, current=None)
    found: Chat | None = unused.order_by("pk").first()
    return found or create_chat(user_id=user_id)


def create_chat(*, user_id: int, key: str | None = None, title: str = "") -> Chat:
    """A new, unused chat with an address of its own."""
    uid = uuid.uuid4()
    chat: Chat = Chat.objects.create(
        uid=uid, key=key or f"agent:main:web:dm:{uid}", owner_id=user_id, title=title
    )
    return chat


@transacted
def new_session(*, chat_id: int, user_id: int, client_id: str, actor: str = "") -> dict[str, Any]:
    """End the open session and begin a fresh one, once per client id (``/new``).

    The running turn ends with what it has; waiting messages come back as drafts in the reply, and
    behind what the chat already keeps as its draft.
    """
    chat = owned.lock_chat(chat_id, user_id)

    def act() -> dict[str, Any]:
        drafts = _end_current(chat, EndReason.SESSION_RESET, actor=actor)
        session = owned.begin_session(chat, BegunBy.USER)
        _add_drafts(chat, drafts)
        transcript.publish_chat(chat, "draft")
        transcript.publish(session)
        return {"session": session.pk, "number": session.number, "drafts": drafts}

    return owned.once(chat, client_id, "session.new", "", act)


def _end_current(chat: Chat, reason: EndReason, *, actor: str) -> list[str]:
    """End the chat's open session for a reason; return the waiting texts of people."""
    if chat.current_id is None:
        return []
    session = Session.objects.lock(chat.current_id)
    if session.ended_at is not None:
        return []
    return end_session(session, reason, actor=actor)


def end_session(session: Session, reason: EndReason, *, actor: str = "") -> list[str]:
    """End a locked, open session (chat locked too) and its open turns; return waiting texts."""
    session.ended_at = DbNow()
    session.end_reason = reason
    drafts = owned.close_open_turns(session, reason=reason, actor=actor)
    if domain.END_CLASS[reason] is domain.EndClass.USER:
        transcript.raise_generation(session)  # an end by the system voids nothing: it may go on
    transcript.record(
        session,
        f"session:{session.pk}",
        "session",
        frm="open",
        to="ended",
        reason=reason,
        actor=actor,
    )
    transcript.publish(session)
    ended = session.pk
    transaction.on_commit(
        lambda: signals.session_ended.send_robust(Session, session_id=ended), robust=True
    )
    return drafts


@transacted
def rename(*, chat_id: int, user_id: int, title: str) -> Chat:
    """Give a chat a name that nothing replaces."""
    chat = owned.lock_chat(chat_id, user_id)
    named = domain.title_from(title)
    if not named:
        raise Refused(Code.EMPTY, "A title needs at least one visible character.")
    chat.title, chat.is_named = named, True
    transcript.publish_chat(chat, "title", "is_named")
    return chat


@transacted
def set_pinned(*, chat_id: int, user_id: int, pinned: bool) -> Chat:
    """Keep a chat at the top of the sidebar, or not."""
    chat = owned.lock_chat(chat_id, user_id)
    chat.pinned_at = DbNow() if pinned else None
    transcript.publish_chat(chat, "pinned_at")
    return chat


@transacted
def set_archived(*, chat_id: int, user_id: int, archived: bool) -> Chat:
    """Put a chat aside, or back; nothing in it changes."""
    chat = owned.lock_chat(chat_id, user_id)
    chat.archived_at = DbNow() if archived else None
    transcript.publish_chat(chat, "archived_at")
    return chat


@transacted
def choose_endpoint(*, chat_id: int, user_id: int, endpoint_id: int | None) -> Chat:
    """Answer this chat with another model, from the next turn on."""
    chat = owned.lock_chat(chat_id, user_id)
    usable = ModelEndpoint.objects.usable("chat")
    if endpoint_id is not None and not usable.filter(pk=endpoint_id).exists():
        raise Refused(Code.NOT_FOUND, "This model does not exist any more.")
    chat.endpoint_id = endpoint_id
    transcript.publish_chat(chat, "endpoint")
    return chat


def _add_drafts(chat: Chat, drafts: list[str]) -> None:
    """Keep messages that were not answered, behind those that came back before."""
    chat.draft = "\n\n".join([chat.draft, *drafts] if chat.draft else drafts)


@transacted
def delete_chat(*, chat_id: int, user_id: int, actor: str = "") -> Chat:
    """End and hide a chat; it can be brought back for 30 days, and waiting messages as drafts."""
    chat = owned.lock_chat(chat_id, user_id)
    drafts = _end_current(chat, EndReason.DELETED, actor=actor)
    _add_drafts(chat, drafts)
    chat.deleted_at = DbNow()
    transcript.publish_chat(chat, "deleted_at", "draft")
    return chat


@transacted
def undelete_chat(*, chat_id: int, user_id: int, actor: str = "") -> Chat:
    """Bring a deleted chat back; the session that the deletion ended goes on."""
    found = Chat.objects.filter(owner_id=user_id, is_hidden=False, deleted_at__isnull=False)
    chat: Chat | None = found.select_for_update(no_key=True).filter(pk=chat_id).first()
    if chat is None:
        raise Refused(Code.NOT_FOUND, owned.NOT_FOUND)
    chat.deleted_at = None
    transcript.publish_chat(chat, "deleted_at")
    if chat.current_id is not None:
        session = Session.objects.lock(chat.current_id)
        if session.end_reason == EndReason.DELETED:
            owned.reopen(session)
            transcript.publish(session)
    return chat


def mark_read(*, chat_id: int, user_id: int, session_id: int, seq: int) -> bool:
    """Remember how far a person has read; False if they had read that far."""
    chats = Chat.objects.of(user_id).filter(pk=chat_id)
    if not chats.filter(current_id=session_id, current__last_seq__gte=seq).exists():
        return False
    behind = chats.exclude(read_session_id=session_id, read_seq__gte=seq)
    return behind.update(read_session_id=session_id, read_seq=seq, touched_at=DbNow()) == 1


@transacted
def branch(
    *, chat_id: int, user_id: int, client_id: str, seq: int, session_id: int
) -> dict[str, Any]:
    """Copy a chat up to a message into a new chat, whole and atomic, once per client id."""
    chat = owned.lock_chat(chat_id, user_id)
    if not Session.objects.filter(pk=session_id, chat=chat).exists():
        raise Refused(Code.NOT_FOUND, "This message does not exist.")

    def act() -> dict[str, Any]:
        source = Session.objects.lock(session_id)
        if not Message.objects.filter(session=source, seq=seq).live().exists():
            raise Refused(Code.NOT_FOUND, "This message does not exist.")
        copy = create_chat(user_id=user_id, title=domain.title_from(chat.title))
        copy = Chat.objects.lock(copy.pk)
        copy.branched_from, copy.endpoint_id = chat, chat.endpoint_id
        copy.is_named, copy.begun_at = chat.is_named, DbNow()
        target = owned.begin_session(copy, BegunBy.USER)
        transcript.publish_chat(copy, "branched_from", "endpoint", "is_named", "begun_at")
        _copy_rows(source, target, seq)
        transcript.record(
            target, f"session:{target.pk}", "branch", reason=f"from {source.pk}/{seq}"
        )
        transcript.publish(target)
        return {"chat": str(copy.uid)}

    return owned.once(chat, client_id, "chat.branch", f"{session_id}/{seq}", act)


def _copy_rows(source: Session, target: Session, through: int) -> None:
    """Copy the live messages up to ``through``, closed up, and the newest summary below it."""
    kept = Message.objects.filter(session=source, seq__lte=through).live()
    with connection.cursor() as cursor:
        sql, parameters = kept.values_list("pk", flat=True).query.sql_with_params()
        table = connection.ops.quote_name(Message._meta.db_table)
        cursor.execute(
            f"INSERT INTO {table} "  # noqa: S608 - our own names
            "(session_id, seq, role, kind, text, parts, tokens, is_partial, created_at) "
            "SELECT %s, row_number() OVER (ORDER BY seq), role, kind, text, parts, tokens, "
            f"is_partial, created_at FROM {table} WHERE id IN ({sql})",
            [target.pk, *parameters],
        )
        target.last_seq = cursor.rowcount
    covered = 0
    newest = (
        Summary.objects.filter(session=source, reverted_at=None, covers_through__lte=through)
        .order_by("-covers_through", "-pk")
        .first()
    )
    if newest is not None:
        covered = kept.filter(seq__lte=newest.covers_through).count()
        target.summary = Summary.objects.create(
            session=target, covers_through=covered, text=newest.text, tokens=newest.tokens
        )
        target.save(update_fields=["summary"])
    above = Message.objects.filter(session=target, seq__gt=covered)
    total = above.aggregate(count=Count("pk"), tokens=Sum("tokens"))
    target.live_count, target.live_tokens = total["count"], total["tokens"] or 0


@transacted
def end_idle(*, session_id: int, chat_id: int, hours: float) -> bool:
    """End a session for the system if it is still idle; its chat stays routable."""
    Chat.objects.lock(chat_id)
    session = Session.objects.lock(session_id)
    is_idle = session.touched_at < db_now() - timedelta(hours=hours)
    if session.ended_at is not None or not is_idle:
        return False
    if Turn.objects.filter(session=session, status__in=sorted(domain.OPEN_TURN)).exists():
        return False
    end_session(session, EndReason.IDLE_TIMEOUT)
    return True


@transaction.atomic
def purge(chat_id: int) -> None:
    """Delete every row of a chat that was deleted long ago; its history stays."""
    chat = Chat.objects.lock(chat_id)
    if chat.deleted_at is None:  # brought back meanwhile
        return
    chat.current = chat.read_session = None
    chat.save(update_fields=["current", "read_session"])
    sessions = Session.objects.filter(chat=chat)
    sessions.update(summary=None, reading_summary=None)
    TurnChunk.objects.filter(turn__chat=chat).delete()
    Message.objects.filter(session__chat=chat).delete()
    Rewind.objects.filter(session__chat=chat).delete()
    Turn.objects.filter(chat=chat).delete()
    Summary.objects.filter(session__chat=chat).update(previous=None)
    Summary.objects.filter(session__chat=chat).delete()
    sessions.delete()
    chat.client_requests.all().delete()
    History(chat=chat.pk, subject=f"chat:{chat.pk}", kind="purge", to="purged").save()
    chat.delete()
