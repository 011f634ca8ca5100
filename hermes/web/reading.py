"""What sockets read: what has changed, how full the context is. Nothing is written.

Each look is one consistent snapshot, so that version, rows and streamed text belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max
from django.db.models.functions import Length

from hermes.lib.db import retrying
from hermes.lib.viewers import Viewer
from sessions_app import intake
from sessions_app.domain import MessageRole, TurnSource, TurnStatus
from sessions_app.endpoints import window_for
from sessions_app.models import BUSY_TURN, Chat, Message, Session, Turn, TurnChunk

from . import fragments, metering, numbers, rendering, summaries, tasking
from .cursor import ENDED, Closed, Cursor, Fold, Live, Seen, Stream, TurnSeen
from .limits import FRAME_BYTES
from .selectors import SIGNS
from .taskframes import Tasks

MESSAGES: Final = 200  # the newest, for clients without html; fewer where they are long
CATCH_UP: Final = 50  # changed turns; above it everything is told anew
RETRIED: Final = frozenset({"rate", "overloaded", "unreachable", "cut", "stalled", "internal"})


# --- What has changed ---------------------------------------------------------------------------


@contextmanager
def snapshot() -> Iterator[None]:
    """Everything that is read inside is of one moment."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


@retrying
def look(
    viewer: Viewer,
    uid: str,
    cursor: Cursor,
    *,
    stream: Stream | None = None,
    reason: str | None = None,
) -> Seen | None:
    """What a socket has not been told; None if there is no such chat for this person.

    With ``reason`` everything is read anew.
    """
    with snapshot():
        found = Chat.objects.of(viewer.user_id).select_related("current__summary")
        chat = found.filter(uid=uid).first()
        if chat is None:
            return None
        session = chat.current
        turns = [] if reason == "hello" else _turns(cursor, stream)
        if reason is None and session is not None:
            reason = _reason(cursor, session)
        if turns is None:
            turns, reason = [], reason or "resync"
        busy = None
        if session is not None:
            busy = _busy(session, turns if cursor.session == session.pk else ())
        live = _live(busy, cursor, stream) if busy is not None else None
        known = {turn.id for turn in turns}
        is_new = busy is not None and busy.id not in known and not cursor.knows(busy)
        if reason is None and busy is not None and is_new:
            turns.append(_with_content(busy, cursor, stream))
        ended = reason is not None or any(turn.status in ENDED for turn in turns)
        moved = reason is None and chat.version != cursor.chat_version
        whole = _whole(viewer, chat, session, cursor.html) if reason is not None else None
        fold, tasks = None, Tasks()
        if session is not None:
            marks = numbers.marks_of(session.pk)
            may_stand = reason is None and not ended and not moved
            fold = _folding(
                chat, session, cursor, marks[0], is_whole=whole is not None, may_stand=may_stand
            )
            turns = [_held(turn, busy) for turn in turns]
            tasks = tasking.tasks_of(chat, cursor, marks[1], is_whole=whole is not None)
        if whole is not None:
            told = {
                "processes": list(tasks.processes.values()),
                "approvals": tasking.open_of(tasks),
            }
            preview = None if fold is None else fold.preview
            whole = {**whole, **told, "preview": preview}
        is_measured = (ended or moved) and whole is None  # another model has another window
        seen = Seen(
            chat=chat.pk,
            session=None if session is None else session.pk,
            version=0 if session is None else session.version,
            generation=0 if session is None else session.generation,
            is_ended=session is not None and session.ended_at is not None,
            chat_version=chat.version,
            reason=reason,
            whole=whole,
            turns=turns,
            live=live,
            busy=busy,
            queue=[] if session is None else queue(session.pk),
            chat_part=chat_part(chat) if moved else None,
            meter=metering.meter(chat, session) if is_measured and session is not None else None,
            fold=fold,
            tasks=tasks,
        )
        return Seen(**{**vars(seen), "htmls": _htmls(chat, seen, cursor)}) if cursor.html else seen


def _reason(cursor: Cursor, session: Session) -> str | None:
    """Why the log has to be replaced, or None."""
    if cursor.session != session.pk:
        return "new"
    if cursor.generation != session.generation:
        if cursor.is_ended and session.ended_at is None:
            return "reopened"
        is_told = cursor.fold is not None and cursor.fold.summary != session.summary_id
        return "summary" if is_told else "rewind"
    return None


def _held(turn: TurnSeen, busy: TurnSeen | None) -> TurnSeen:
    """A changed turn with the end of its hold, where it is the one that is held."""
    is_same = busy is not None and turn.id == busy.id and not turn.started
    return replace(turn, until=busy.until) if is_same and busy is not None else turn


def _folding(
    chat: Chat, session: Session, cursor: Cursor, mark: str, *, is_whole: bool, may_stand: bool
) -> Fold:
    """How summarising stands, and what of it this socket has to be told.

    ``may_stand`` says that nothing was read anew and no turn has ended: then, while its mark is the
    same, what was told of it still holds.
    """
    told_before = cursor.fold
    if told_before is not None and may_stand:
        is_same = (told_before.mark, told_before.summary) == (mark, session.summary_id)
        if is_same and not summaries.is_due(session, told_before.due_at):
            return told_before
    it = summaries.standing(session, window_for(chat.endpoint_id))
    pill = it.pill
    told = None if cursor.fold is None else cursor.fold.pill
    notices = (
        summaries.deferral(it),
        summaries.blockage(it),
        summaries.outcome(it, told if cursor.session == session.pk else None),
    )
    preview = None
    if pill["state"] == "preview":
        is_known = not is_whole and cursor.preview == pill["attempt"]
        known = cursor.fold.preview if is_known and cursor.fold is not None else None
        preview = known or summaries.preview(it, metering.split(session))
    return Fold(
        mark=mark,
        summary=session.summary_id,
        pill=pill,
        due_at=it.due_at,
        elapsed=summaries.elapsed(pill),
        preview=preview,
        notices=[
            _noticed(each, html=cursor.html)
            for each in notices
            if each is not None and each["key"] not in cursor.noticed
        ],
    )


def _noticed(told: Mapping[str, Any], *, html: bool) -> Mapping[str, Any]:
    if not html:
        return told
    made = fragments.notice_html(told["code"], told["level"], told["text"])
    return {**told, "html": made}


def _turns(cursor: Cursor, stream: Stream | None) -> list[TurnSeen] | None:
    """The turns of the session told so far that have changed, in order; None for too many."""
    if cursor.session is None:
        return []
    changed = Turn.objects.filter(session_id=cursor.session, changed__gt=cursor.version)
    found = list(changed.order_by("changed", "pk")[: CATCH_UP + 1])
    if len(found) > CATCH_UP:
        return None
    return [_with_content(_turn(turn), cursor, stream) for turn in found]


def _turn(turn: Turn) -> TurnSeen:
    until = turn.wait_until or turn.retry_at
    return TurnSeen(
        id=turn.pk,
        run=turn.fence_token,
        status=str(turn.status),
        started=turn.started_at is not None,
        base=turn.length,
        text=turn.text if turn.source == TurnSource.PERSON and turn.started_at is None else "",
        code=turn.error_code or _waits_for(turn),
        message=turn.error_text,
        retry=turn.error_code in RETRIED,
        until=_time(until),
    )


def _waits_for(turn: Turn) -> str:
    """Of a turn that waits for a person's answer or an end: ``approval`` or ``process``."""
    return turn.wait_key.partition(":")[0] if turn.status == TurnStatus.WAITING else ""


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")


def _with_content(turn: TurnSeen, cursor: Cursor, stream: Stream | None) -> TurnSeen:
    """The same with its html, or its messages for a client without."""
    if not turn.started:
        return turn
    messages = list(Message.objects.filter(turn_id=turn.id).order_by("seq"))
    answers = [each.text for each in messages if each.role == MessageRole.ASSISTANT]
    content: dict[str, Any] = {"seq": messages[-1].seq if messages else None}
    followed = cursor.follows(turn.id, turn.run)
    if not cursor.html:
        content["messages"] = [message_part(each) for each in messages]
        if followed and turn.status in ENDED:
            content["said"] = "".join(answers)
        return TurnSeen(**{**vars(turn), **content})
    last = len(answers[-1]) if answers else 0
    same_part = followed and stream is not None and cursor.base == turn.base - last
    # Calls and results that were not told yet are in the html only.
    same_part = same_part and all(each.seq <= cursor.seq for each in messages[:-1])
    if turn.status == TurnStatus.COMPLETED and same_part and stream is not None and answers:
        final = rendering.final_blocks(answers[-1])
        sent = [block.html for block in stream.blocks[: cursor.k]]
        content["blocks"] = [
            {"k": k, "html": html}
            for k, html in enumerate(final)
            if k >= len(sent) or sent[k] != html
        ]
        content |= {"total": len(final), "foot": fragments.foot_html(turn.id)}
    else:
        content["html"] = fragments.turn_html(turn.id)
    return TurnSeen(**{**vars(turn), **content})


def closed_blocks(splitter: rendering.BlockSplitter, text: str, base: int) -> list[Closed]:
    """The blocks that more text of a stream closes, at offsets of the stream."""
    return [
        Closed(block.k, base + block.start, base + block.end, block.html)
        for block in splitter.feed(text)
    ]


def _busy(session: Session, changed: Sequence[TurnSeen] | None) -> TurnSeen | None:
    """The turn that runs or waits; there is at most one, so that a changed one is it."""
    busy = next((turn for turn in changed or () if turn.status in BUSY_TURN), None)
    if busy is None:
        found = Turn.objects.filter(session=session, status__in=BUSY_TURN).first()
        if found is None:
            return None
        busy = _turn(found)
    if busy.status == TurnStatus.RUNNING and not busy.started:
        busy = replace(busy, until=_time(summaries.held_until(session.pk, busy.id)))
    return busy


def _live(turn: TurnSeen, cursor: Cursor, stream: Stream | None) -> Live | None:
    """The text of the running turn, as far as rows have it; what is followed is not read again."""
    if turn.status != TurnStatus.RUNNING or not turn.started:
        return None
    is_followed = stream is not None and cursor.follows(turn.id, turn.run)
    if is_followed and stream is not None and stream.base == cursor.base == turn.base:
        return Live(turn.id, turn.run, turn.base, "")
    return Live(turn.id, turn.run, turn.base, stored(turn.id, turn.run, turn.base))


@retrying
def stored(turn: int, run: int, offset: int) -> str:
    """What chunks hold of a run from an offset on, as far as no piece is missing."""
    chunks = TurnChunk.objects.filter(turn_id=turn, run=run)
    first = chunks.filter(offset__lte=offset).aggregate(offset=Max("offset"))["offset"]
    if first is None:
        return ""
    chunks = chunks.filter(offset__gte=first).order_by("n")
    pieces: list[str] = []
    at = offset
    for begin, text in chunks.values_list("offset", "text"):
        if begin + len(text) <= at:
            continue
        if begin > at:
            break
        pieces.append(text[at - begin :])
        at = begin + len(text)
    return "".join(pieces)


def _whole(viewer: Viewer, chat: Chat, session: Session | None, html: bool) -> Mapping[str, Any]:
    """Everything a client shows but the running turn, which the socket adds."""
    told: dict[str, Any] = {
        "chat": chat_part(chat),
        "session": None if session is None else session_part(session),
        "turn": None,
        "queue": [] if session is None else queue(session.pk),
        "meter": None if session is None else metering.meter(chat, session),
        "compaction": None,
        "preview": None,
        "processes": [],
        "approvals": [],
        "limits": {
            "message_bytes": settings.MAX_MESSAGE_BYTES,
            "frame_bytes": FRAME_BYTES,
        },
    }
    if html:
        told["html"] = fragments.log_html(chat, viewer.user_id)
    elif session is not None:
        told["messages"] = _newest(session)
    else:
        told["messages"] = []
    return told


def _newest(session: Session) -> list[dict[str, Any]]:
    """The newest messages of the context, the oldest first: so many, and so much text, at most."""
    live = Message.objects.filter(session=session).live()
    sizes = live.order_by("-seq").annotate(size=Length("text")).values_list("seq", "size")
    first, room = 0, SIGNS
    for number, (seq, size) in enumerate(sizes[:MESSAGES]):
        room -= size
        if number and room < 0:
            break
        first = seq
    return [message_part(each) for each in live.filter(seq__gte=first).order_by("seq")]


def _htmls(chat: Chat, seen: Seen, cursor: Cursor) -> Mapping[str, str]:
    """The fragments of what changed beside the log."""
    made: dict[str, str] = {}
    if seen.whole is not None:
        made["tasks"] = seen.tasks.htmls.get("tasks", "")
    moved = seen.whole is not None or list(seen.queue) != list(cursor.queue)
    if seen.session is not None and moved:
        made["queue"] = fragments.queue_html(seen.session)
    if seen.chat_part is not None or seen.whole is not None:
        made["chat"] = fragments.head_html(chat)
    meter = seen.meter if seen.whole is None else seen.whole["meter"]
    if meter is not None:
        made["meter"] = fragments.meter_html(meter)
    fold = seen.fold
    if fold is not None and (seen.whole is not None or fold.pill != cursor.pill):
        made["compaction"] = fragments.pill_html(fold.pill)
    preview = None if fold is None or fold.preview is None else fold.preview["attempt"]
    if preview is not None and (seen.whole is not None or cursor.preview != preview):
        made["preview"] = fragments.fold_html(chat)
    return made


def chat_part(chat: Chat) -> dict[str, Any]:
    """The chat as clients know it."""
    return {
        "id": str(chat.uid),
        "title": chat.title,
        "version": chat.version,
        "draft": chat.draft,
    }


def session_part(session: Session) -> dict[str, Any]:
    """The session as clients know it."""
    names = ("number", "version", "generation", "last_seq")
    return {"id": session.pk, **{name: getattr(session, name) for name in names}}


def message_part(message: Message) -> dict[str, Any]:
    """A message as clients without html know it."""
    names = ("seq", "role", "kind", "text", "is_partial", "parts")
    return {"turn": message.turn_id, **{name: getattr(message, name) for name in names}}


def queue(session_id: int) -> list[dict[str, Any]]:
    """The messages that people see waiting."""
    rows = intake.queue_of(session_id).values_list("pk", "text")
    return [{"turn": pk, "text": text} for pk, text in rows]
