"""Approvals: asked once a call, answered once, remembered where a person said Always."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from hermes.lib.db import DbNow, db_now, transacted
from hermes.lib.hints import chat_group, enqueue_on_commit, push_on_commit
from processes_app import domain, tasks
from processes_app.domain import Answer, ApprovalStatus
from processes_app.models import Approval
from sessions_app import domain as chats
from sessions_app.domain import TurnFacts, TurnStatus
from sessions_app.intake import record_operation
from sessions_app.models import Chat, History, Session, Turn


@transacted
def ask(
    turn: TurnFacts,
    call_id: str,
    *,
    command: str,
    cwd: str,
    script_hash: str,
    is_steered: bool,
) -> Approval | None:
    """The approval of one call of a tool, asked for once; None if the turn has ended.

    A command that was denied in this turn is denied again without asking.
    """
    known = Approval.objects.filter(turn_id_meant=turn.turn_id, call_id=call_id).first()
    if known is not None:
        return known
    session = Session.objects.lock(turn.session_id)
    runs = Turn.objects.filter(
        pk=turn.turn_id, session=session, status=TurnStatus.RUNNING, fence_token=turn.run
    )
    if session.ended_at is not None or not runs.exists():
        return None
    denied = Approval.objects.filter(
        turn_id_meant=turn.turn_id, status=ApprovalStatus.DENIED, command=command, cwd=cwd
    ).first()
    if denied is not None:
        return denied
    made = Approval(
        turn_id_meant=turn.turn_id,
        call_id=call_id,
        origin_chat=turn.chat_key,
        origin_session=session.key,
        owner_id_meant=turn.owner_id,
        command=chats.storable(command),
        cwd=cwd,
        script_hash=script_hash,
        is_steered=is_steered,
        until=db_now() + timedelta(seconds=settings.HERMES_APPROVAL_SECONDS),
    )
    made.save(force_insert=True)
    _record(made, "", ApprovalStatus.PENDING)
    _show(made)
    return made


def standing(*, chat_key: str, command: str, cwd: str, script_hash: str) -> Approval | None:
    """The Always of a person that covers exactly this command, directory and script."""
    rows = Approval.objects.filter(
        origin_chat=chat_key,
        answer=Answer.ALWAYS,
        revoked_at=None,
        command=chats.storable(command),
        cwd=cwd,
        script_hash=script_hash,
    )
    return rows.order_by("-pk").first()


def open_approvals(chat_key: str) -> QuerySet[Approval]:
    """What waits for an answer: pending, and its turn waits for it."""
    waiting = Turn.objects.filter(status=TurnStatus.WAITING, chat__key=chat_key)
    keys = list(waiting.values_list("pk", "wait_key"))
    wanted = Q(pk=None)
    for turn_id, key in keys:
        kind, _, pk = key.partition(":")
        if kind == "approval" and pk.isdigit():
            wanted |= Q(pk=int(pk), turn_id_meant=turn_id)
    return Approval.objects.filter(wanted, status=ApprovalStatus.PENDING)


@transacted
def answer(*, approval_id: int, owner_id: int, said: Answer, actor: str = "") -> bool:
    """Answer an open approval of one's own; one answer wins. False if it is not open any more."""
    approval = (
        Approval.objects.select_for_update(no_key=True)
        .filter(pk=approval_id, owner_id_meant=owner_id)
        .first()
    )
    if approval is None or approval.status != ApprovalStatus.PENDING:
        return False
    waits = Turn.objects.filter(
        pk=approval.turn_id_meant,
        status=TurnStatus.WAITING,
        wait_key=domain.approval_key(approval.pk),
    )
    if not waits.exists() or approval.until <= db_now():
        return False
    if said is Answer.ALWAYS and approval.is_steered:
        said = Answer.ONCE  # it was not offered
    to = ApprovalStatus.DENIED if said is Answer.DENY else ApprovalStatus.ALLOWED
    landed = Approval.objects.advance(
        approval.pk, to, answer=said, answered_at=DbNow(), actor=actor[:150]
    )
    if landed:
        _record(approval, ApprovalStatus.PENDING, to, reason=said, actor=actor)
        _show(approval)
        enqueue_on_commit(tasks.resume, approval.turn_id_meant, domain.approval_key(approval.pk))
    return landed


@transacted
def expire(*, approval_id: int) -> bool:
    """Close an approval whose time is up or whose turn waits no more; False if it was answered."""
    approval = Approval.objects.select_for_update(no_key=True).filter(pk=approval_id).first()
    if approval is None or approval.status != ApprovalStatus.PENDING:
        return False
    landed = Approval.objects.advance(approval.pk, ApprovalStatus.EXPIRED, answered_at=DbNow())
    if landed:
        _record(approval, ApprovalStatus.PENDING, ApprovalStatus.EXPIRED)
        _show(approval)
    return landed


@transaction.atomic
def revoke(*, approval_id: int, owner_id: int, actor: str = "") -> bool:
    """Take an Always of one's own back; False if there is none."""
    return _revoke(Approval.objects.filter(pk=approval_id, owner_id_meant=owner_id), actor)


@transacted
def revoke_for_operator(*, approval_id: int, actor: str, reason: str) -> bool:
    """Take somebody's Always back; False if there is none."""
    if not _revoke(Approval.objects.filter(pk=approval_id), actor):
        return False
    record_operation(subject=f"approval:{approval_id}", what="revoke", actor=actor, reason=reason)
    return True


def _revoke(rows: QuerySet[Approval], actor: str) -> bool:
    rows = rows.filter(answer=Answer.ALWAYS, revoked_at=None)
    approval = rows.first()
    if approval is None or not rows.update(revoked_at=DbNow()):
        return False
    _record(approval, approval.status, approval.status, reason="revoked", actor=actor)
    return True


def _record(approval: Approval, frm: str, to: str, *, reason: str = "", actor: str = "") -> None:
    History(
        subject=f"approval:{approval.pk}",
        kind="approval",
        frm=frm,
        to=to,
        reason=reason,
        actor=actor[:150],
        data={"chat": approval.origin_chat, "turn": approval.turn_id_meant},
    ).save(force_insert=True)


def _show(approval: Approval) -> None:
    chat = Chat.objects.filter(key=approval.origin_chat).values_list("pk", flat=True).first()
    if chat is not None:
        push_on_commit(chat_group(chat), {"type": "processes.moved", "chat": chat})
