"""Processes: the row before the child, its identity, its end with the news of it, and the kill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from hermes.lib.db import DbNow, db_now, transacted
from hermes.lib.hints import chat_group, enqueue_on_commit, push_on_commit
from processes_app import tasks, verdicts
from processes_app.domain import EventKind, KillBy, ProcessReason, ProcessStatus
from processes_app.models import Approval, CompletionEvent, ProcessInput, ProcessRecord
from sessions_app import domain as chats
from sessions_app.domain import TurnFacts, TurnStatus
from sessions_app.intake import end_delegated, record_operation
from sessions_app.models import Chat, History, Session, Turn

TAIL_KEPT: Final = 4000  # characters of output in the row


@dataclass(frozen=True)
class Ask:
    """What a tool asks to have run."""

    command: str
    cwd: str = ""
    is_foreground: bool = False
    notify: bool = True
    wants_pty: bool = False
    limit_seconds: int = 3600
    is_forced: bool = False  # also if the same command runs already


@dataclass(frozen=True)
class Started:
    """The record; ``is_new`` says whether this call made it."""

    process: ProcessRecord
    is_new: bool


class Refusal(StrEnum):
    """Why nothing is started."""

    TURN_OVER = "turn_over"  # the turn has ended, or its session has
    TURN_WAITS = "turn_waits"  # the turn waits just now; asked again when it goes on
    TOO_MANY = "too_many"  # of this person
    FULL = "full"  # on this installation
    NOT_ALLOWED = "not_allowed"


@transacted
def start_process(turn: TurnFacts, call_id: str, ask: Ask) -> Started | Refusal:
    """Write the row of a process, once per call of a tool; a supervisor starts its child.

    The stamp is that of the turn's session, and only while that turn runs: from the commit of a
    reset on nothing can start for the session that it ended.
    """
    known = ProcessRecord.objects.filter(turn_id_meant=turn.turn_id, call_id=call_id).first()
    if known is not None:
        return Started(known, is_new=False)
    # The person's own row orders those who count that person's processes.
    people = get_user_model()._default_manager.filter(pk=turn.owner_id, is_active=True)
    owner = people.select_for_update(no_key=True).first()
    if owner is None or not owner.has_perm("processes_app.start_process"):
        return Refusal.NOT_ALLOWED
    session = Session.objects.lock(turn.session_id)
    row = Turn.objects.filter(pk=turn.turn_id, session=session).first()
    if session.ended_at is not None or row is None or row.fence_token != turn.run:
        return Refusal.TURN_OVER
    if row.status == TurnStatus.WAITING:
        return Refusal.TURN_WAITS
    if row.status != TurnStatus.RUNNING or row.stop_asked_at is not None:
        return Refusal.TURN_OVER
    active = ProcessRecord.objects.active()
    twin = active.filter(
        origin_session=session.key, command=ask.command, cwd=ask.cwd, kill_asked_at=None
    ).first()
    if twin is not None and not ask.is_forced:
        return Started(twin, is_new=False)
    if active.filter(owner_id_meant=turn.owner_id).count() >= settings.HERMES_PROCESSES_A_PERSON:
        return Refusal.TOO_MANY
    if active.count() >= settings.HERMES_PROCESSES_IN_ALL:
        return Refusal.FULL
    process = ProcessRecord(
        command=chats.storable(ask.command),
        cwd=ask.cwd,
        origin_chat=turn.chat_key,
        origin_session=session.key,
        owner_id_meant=turn.owner_id,
        turn_id_meant=turn.turn_id,
        call_id=call_id,
        is_foreground=ask.is_foreground,
        wants_pty=ask.wants_pty,
        notify=ask.notify and not ask.is_foreground,
        limit_seconds=ask.limit_seconds,
    )
    process.save(force_insert=True)
    _record(process, "", ProcessStatus.STARTING)
    _show(process)
    return Started(process, is_new=True)


def may_start(owner_id: int) -> bool:
    """Whether a person may have commands run at all."""
    owner = get_user_model()._default_manager.filter(pk=owner_id, is_active=True).first()
    return owner is not None and owner.has_perm("processes_app.start_process")


@transacted
def claim(process_id: int, *, host: str, boot_id: str, sandbox: str) -> bool:
    """Give a new process to the supervisor of a host; False if another has it."""
    return ProcessRecord.objects.amend(
        process_id,
        ProcessStatus.STARTING,
        when={"host": "", "kill_asked_at": None},
        host=host,
        boot_id=boot_id,
        sandbox=sandbox,
    )


@transacted
def record_start(process_id: int, *, pid: int, pid_start: str, started_at: datetime) -> bool:
    """The child is there, and this is who it is; False if the row has moved on."""
    process = ProcessRecord.objects.lock(process_id)
    landed = ProcessRecord.objects.advance(
        process_id, ProcessStatus.RUNNING, pid=pid, pid_start=pid_start, started_at=started_at
    )
    if landed:
        _record(process, ProcessStatus.STARTING, ProcessStatus.RUNNING)
        _show(process)
    return landed


@dataclass(frozen=True)
class End:
    """How a child ended, as its supervisor found it."""

    status: ProcessStatus
    reason: ProcessReason
    exit_code: int | None = None
    signal_number: int | None = None
    ended_at: datetime | None = None  # None: now
    started_at: datetime | None = None  # if its start was not recorded before
    output_bytes: int = 0
    body: str = ""  # the end of its output: redacted, readable
    detail: str = ""


@transacted
def record_end(process_id: int, end: End) -> bool:
    """Write how a process ended together with the news of it; False if somebody has already.

    First finisher wins, one event a process; on commit its chat is settled, and a turn that waits
    for it goes on.
    """
    process = ProcessRecord.objects.lock(process_id)
    columns: dict[str, Any] = {"detail": chats.storable(end.detail)[:300]}
    if process.started_at is None and end.started_at is not None:
        columns["started_at"] = end.started_at
    ended_at = end.ended_at or db_now()
    body = chats.storable(end.body)
    landed = ProcessRecord.objects.advance(
        process_id,
        end.status,
        reason=end.reason,
        exit_code=end.exit_code,
        signal_number=end.signal_number,
        ended_at=ended_at,
        next_check_at=None,
        output_bytes=end.output_bytes,
        tail=body[-TAIL_KEPT:],
        tail_at=DbNow(),
        kill_failed_at=None,
        **columns,
    )
    if not landed:
        return False
    _record(process, process.status, end.status, reason=end.reason, actor=process.kill_actor)
    if process.notify:
        CompletionEvent(
            process=process,
            kind=EventKind.COMPLETION,
            origin_chat=process.origin_chat,
            origin_session=process.origin_session,
            title=process.command,
            body=body,
            happened_at=ended_at,
            actor=process.kill_actor,
        ).save(force_insert=True)
        enqueue_on_commit(tasks.deliver, process.origin_chat)
    enqueue_on_commit(tasks.wake, process_id)
    _show(process)
    return True


@transacted
def ask_kill(process_id: int, *, by: KillBy, actor: str = "") -> bool:
    """Ask the supervisor to end a process; False if it has ended, or somebody has asked before.

    One that no supervisor has is taken back here and now.
    """
    process = ProcessRecord.objects.lock(process_id)
    if not process.is_active or process.kill_asked_at is not None:
        return False
    ProcessRecord.objects.amend(
        process_id, process.status, kill_asked_at=DbNow(), kill_by=by, kill_actor=actor[:150]
    )
    _record(process, process.status, process.status, reason=f"kill asked by {by}", actor=actor)
    if process.host == "" and process.status == ProcessStatus.STARTING:
        record_end(process_id, End(ProcessStatus.FAILED_START, ProcessReason.HANDED_BACK))
    _show(process)
    return True


@transacted
def kill_for_operator(*, process_id: int, actor: str, reason: str) -> bool:
    """Ask for the end of somebody's process; False if it has ended, or that was asked before."""
    if not ask_kill(process_id, by=KillBy.OPERATOR, actor=actor):
        return False
    record_operation(subject=f"process:{process_id}", what="kill", actor=actor, reason=reason)
    return True


@transacted
def note_kill_failed(process_id: int) -> bool:
    """Something of a process survived its kill: it stays listed, and says so."""
    process = ProcessRecord.objects.lock(process_id)
    landed = ProcessRecord.objects.amend(
        process_id, ProcessStatus.RUNNING, when={"kill_failed_at": None}, kill_failed_at=DbNow()
    )
    if landed:
        _record(process, process.status, process.status, reason="kill_failed")
        _show(process)
    return landed


def note_tail(process_id: int, *, tail: str, output_bytes: int) -> bool:
    """Keep the end of a running process's output, for those who look; one row by its key."""
    return ProcessRecord.objects.amend(
        process_id,
        ProcessStatus.RUNNING,
        tail=chats.storable(tail)[-TAIL_KEPT:],
        output_bytes=output_bytes,
        tail_at=DbNow(),
    )


def take(process_id: int, turn: TurnFacts, call_id: str) -> bool:
    """A call returns the result of an ended process; False while that cannot be counted."""
    return verdicts.take(process_id, turn_id=turn.turn_id, run=turn.run, call_id=call_id)


def left_by(turn_id: int) -> QuerySet[ProcessRecord]:
    """The foreground commands of a turn that run, and whose end nobody has asked for."""
    return ProcessRecord.objects.active().filter(
        turn_id_meant=turn_id, is_foreground=True, kill_asked_at=None
    )


def end_of_turn(turn_id: int) -> int:
    """Ask for the end of what belongs to a turn that has ended; return how many."""
    left = list(left_by(turn_id).values_list("pk", flat=True))
    if not left or Turn.objects.filter(pk=turn_id, status__in=sorted(chats.OPEN_TURN)).exists():
        return 0
    return sum(ask_kill(pk, by=KillBy.TURN) for pk in left)


def end_of_session(session_id: int) -> int:
    """Ask for the end of the processes of a session that was deleted; return how many.

    Agents that it has delegated end with it, and their processes with them.
    """
    deleted = Session.objects.filter(pk=session_id, end_reason=chats.EndReason.DELETED)
    key = deleted.values_list("key", flat=True).first()
    rows = ProcessRecord.objects.active().filter(origin_session=key, kill_asked_at=None)
    left = [] if key is None else list(rows.values_list("pk", flat=True))
    if key is not None:
        end_delegated(by_key=key)
    return sum(ask_kill(pk, by=KillBy.BOUNDARY) for pk in left)


def end_left_behind(most: int) -> int:
    """End delegated agents at work whose chat was deleted and which nobody has ended; how many.

    Also those that an earlier session of that chat had delegated. A hidden chat is not deleted
    itself: what tells of it there is the end of its session.
    """
    asked = Session.objects.filter(key=OuterRef("chat__delegated_by"))
    deleted = asked.filter(
        Q(end_reason=chats.EndReason.DELETED) | Q(chat__deleted_at__isnull=False)
    )
    turns = Turn.objects.filter(status__in=sorted(chats.OPEN_TURN)).filter(Exists(deleted))
    running = ProcessRecord.objects.active().values("origin_session")
    sessions = Session.objects.filter(key__in=running, ended_at=None).filter(Exists(deleted))
    left = [
        *turns.order_by("pk").values_list("chat__delegated_by", flat=True)[:most],
        *sessions.order_by("pk").values_list("chat__delegated_by", flat=True)[:most],
    ]
    return sum(end_delegated(by_key=key) for key in set(left) if key is not None)


@transaction.atomic
def purge(address: str) -> int:
    """Delete what is kept of a chat that was deleted long ago; how many processes it had.

    Processes that run are left, and with them everything.
    """
    rows = ProcessRecord.objects.filter(origin_chat=address)
    if rows.active().exists():
        return 0
    found = rows.count()
    CompletionEvent.objects.filter(origin_chat=address).delete()
    CompletionEvent.objects.filter(process__in=rows).delete()
    Approval.objects.filter(origin_chat=address).delete()
    rows.delete()
    return found


@transacted
def send_input(process_id: int, *, call_id: str, text: str) -> bool:
    """Queue what is to be typed into a process's terminal, once per call; False if it ended."""
    process = ProcessRecord.objects.lock(process_id)
    if not process.is_active or not process.wants_pty:
        return False
    ProcessInput.objects.get_or_create(
        process=process, call_id=call_id, defaults={"text": chats.storable(text)}
    )
    return True


def unsent_input(process_ids: Iterable[int]) -> list[ProcessInput]:
    """What waits to be typed, in order."""
    rows = ProcessInput.objects.filter(process_id__in=list(process_ids), sent_at=None)
    return list(rows.order_by("pk"))


def mark_sent(input_id: int) -> bool:
    """It was typed; False if somebody has typed it already."""
    return ProcessInput.objects.filter(pk=input_id, sent_at=None).update(sent_at=DbNow()) == 1


@transacted
def import_running(
    *, uid: str, started_at: datetime, next_check_at: datetime | None, **columns: Any
) -> bool:
    """Restore a running process from elsewhere, with its stamp; False if it is known already."""
    if ProcessRecord.objects.filter(uid=uid).exists():
        return False
    process = ProcessRecord(
        uid=uid,
        status=ProcessStatus.RUNNING,
        started_at=started_at,
        next_check_at=next_check_at,
        **columns,
    )
    process.save(force_insert=True)
    _record(process, "", ProcessStatus.RUNNING, reason="imported")
    _show(process)
    return True


def _record(
    process: ProcessRecord, frm: str, to: str, *, reason: str = "", actor: str = ""
) -> None:
    History(
        subject=f"process:{process.pk}",
        kind="process",
        frm=frm,
        to=to,
        reason=reason[:200],
        actor=actor[:150],
        data={"uid": process.uid, "chat": process.origin_chat, "session": process.origin_session},
    ).save(force_insert=True)


def _show(process: ProcessRecord) -> None:
    """Hint those who look at the chat that something about its processes has changed."""
    chat = Chat.objects.filter(key=process.origin_chat).values_list("pk", flat=True).first()
    if chat is not None:
        push_on_commit(chat_group(chat), {"type": "processes.moved", "chat": chat})
