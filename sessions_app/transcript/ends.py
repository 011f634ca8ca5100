"""How a turn ends without its answer: stopped, failed, interrupted, handed back.

Whatever was streamed is kept: by the worker from its memory, by anybody else from the chunks. Open
tool calls get a result in the same transaction, so that no call is ever without one.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from django.db import transaction

from hermes.lib.db import DbNow, transacted
from sessions_app import domain, signals
from sessions_app.domain import MessageRole, TurnSource, TurnStatus
from sessions_app.models import Message, Session, Turn, TurnChunk

from . import rows
from .turns import NO_LEASE, Claimed, Step, _append_input, _counted, _parts, append_tool_row

logger = logging.getLogger(__name__)

STOPPED = "stopped"
INTERRUPTED_RESULT = "interrupted: the turn ended before this tool had a result"


@transacted
def end(
    claimed: Claimed,
    to: TurnStatus,
    step: Step,
    *,
    code: str = "",
    text: str = "",
    retry_at: datetime | None = None,
) -> bool:
    """End a turn that its worker holds, with what it has; False if it is no longer ours."""
    session = Session.objects.lock(claimed.turn.session_id)
    turn = Turn.objects.select_related("chat").get(pk=claimed.turn.pk)
    if turn.status != TurnStatus.RUNNING or turn.fence_token != claimed.lease.token:
        return False
    if to is TurnStatus.INTERRUPTED and turn.stop_asked_at is not None:
        to, code = TurnStatus.CANCELLED, STOPPED
    if to is TurnStatus.INTERRUPTED and _goes_back(turn, has_text=bool(step.text)):
        _queue_again(session, turn, "handed back")
    else:
        _close(session, turn, to, step, code=code, text=text, retry_at=retry_at)
    rows.publish(session)
    return True


@transacted
def end_unheld(
    turn_id: int,
    to: TurnStatus,
    *,
    session_id: int,
    reason: str,
    token: int | None = None,
    actor: str = "",
) -> bool:
    """End a turn on behalf of a worker that does not, from its chunks; False if it has moved on.

    With ``token``, only the run that was seen is ended.
    """
    session = Session.objects.lock(session_id)
    turn = Turn.objects.select_related("chat").get(pk=turn_id)
    if turn.status not in domain.OPEN_TURN or token not in {None, turn.fence_token}:
        return False
    if to is TurnStatus.INTERRUPTED and turn.status != TurnStatus.RUNNING:
        return False  # another recovery has handed it back already
    end_locked(session, turn, to, reason=reason, actor=actor)
    rows.publish(session)
    return True


def end_locked(
    session: Session, turn: Turn, to: TurnStatus, *, reason: str, actor: str = ""
) -> TurnStatus:
    """End an open turn of a locked session from its chunks; return what became of it.

    A lost turn (``interrupted``) goes back to the queue once where nothing was saved; one that was
    asked to stop meanwhile is stopped instead.
    """
    if to is TurnStatus.INTERRUPTED and turn.stop_asked_at is not None:
        to, reason = TurnStatus.CANCELLED, STOPPED
    streamed = streamed_text(turn)
    if to is TurnStatus.INTERRUPTED and _goes_back(turn, has_text=bool(streamed)):
        _queue_again(session, turn, reason)
        return TurnStatus.QUEUED
    _close(session, turn, to, Step(text=streamed), code=reason, text="", actor=actor)
    return to


def streamed_text(turn: Turn) -> str:
    """The text of a turn's run that no message holds yet, from its chunks; '' for none."""
    if turn.status != TurnStatus.RUNNING:
        return ""
    chunks = TurnChunk.objects.filter(
        turn=turn, run=turn.fence_token, offset__gte=turn.length
    ).order_by("n")
    pieces: list[str] = []
    at = turn.length
    for offset, text in chunks.values_list("offset", "text"):
        if offset > at:  # a piece is missing: what comes after it cannot be placed
            break
        if offset + len(text) > at:  # else it was saved once more with what came after it
            pieces.append(text[at - offset :])
            at = offset + len(text)
    return "".join(pieces)


def _goes_back(turn: Turn, *, has_text: bool) -> bool:
    has_output = has_text or turn.length > 0 or turn.model_calls > 0
    return domain.after_loss(put_back=turn.put_back, has_output=has_output) is TurnStatus.QUEUED


def _queue_again(session: Session, turn: Turn, reason: str) -> None:
    Turn.objects.advance(
        turn.pk,
        TurnStatus.QUEUED,
        frm=[TurnStatus.RUNNING],
        when={"fence_token": turn.fence_token},
        put_back=turn.put_back + 1,
        rank=domain.RANK_RESUMED,
        changed=rows.next_version(session),
        **NO_LEASE,
    )
    rows.record(session, f"turn:{turn.pk}", "turn", frm=turn.status, to="queued", reason=reason)
    logger.warning("turn handed back", extra={"turn": turn.pk, "reason": reason})


def _close(
    session: Session,
    turn: Turn,
    to: TurnStatus,
    step: Step,
    *,
    code: str,
    text: str,
    retry_at: datetime | None = None,
    actor: str = "",
) -> None:
    """Move an open turn of a locked session to its end; its text and its calls are settled."""
    was_running = turn.status == TurnStatus.RUNNING
    started: dict[str, Any] = {}
    keeps_input = was_running and turn.started_at is None and session.ended_at is None
    if keeps_input and turn.source == TurnSource.PERSON:
        # Held by a gate, then stopped: what the person said is in the transcript all the same.
        started = {"first_seq": session.last_seq + 1, "started_at": DbNow()}
        _append_input(session, turn)
    kept = step.text if step.text.strip() else ""
    if kept:
        rows.append(
            session,
            role=MessageRole.ASSISTANT,
            text=kept,
            parts=_parts(Step(reasoning=step.reasoning)),
            turn=turn,
            is_partial=True,
        )
    _answer_open_calls(session, turn)
    counted = _counted(turn, Step(**{**vars(step), "text": kept}))
    if not step.model_name:  # ended from outside: no model call is known to have been made
        for name in ("model_calls", "prompt_tokens", "completion_tokens", "built_on_id"):
            del counted[name]
    Turn.objects.advance(
        turn.pk,
        to,
        frm=[turn.status],
        when={"fence_token": turn.fence_token},
        finished_at=DbNow(),
        open_calls=0,
        error_code=code,
        error_text=domain.storable(text),
        retry_at=retry_at,
        changed=rows.next_version(session),
        wait_key="",
        wait_until=None,
        **counted,
        **started,
        **NO_LEASE,
    )
    rows.record(
        session,
        f"turn:{turn.pk}",
        "turn",
        frm=turn.status,
        to=to,
        reason=code,
        actor=actor,
        run=turn.fence_token,
    )
    logger.info("turn ended", extra={"turn": turn.pk, "to": str(to), "reason": code})
    ended, where = turn.pk, session.pk
    transaction.on_commit(
        lambda: signals.turn_ended.send_robust(Turn, session_id=where, turn_id=ended), robust=True
    )


def _answer_open_calls(session: Session, turn: Turn) -> None:
    if not turn.open_calls:
        return
    for call in open_calls(turn):
        append_tool_row(
            session, turn, call["id"], call["name"], domain.Done(INTERRUPTED_RESULT, ok=False)
        )


def open_calls(turn: Turn) -> list[dict[str, str]]:
    """Tool calls of the turn's last step that have no result row, in order."""
    step = (
        Message.objects.filter(
            session_id=turn.session_id,
            turn=turn,
            role=MessageRole.ASSISTANT,
            parts__has_key="calls",
        )
        .order_by("-seq")
        .first()
    )
    if step is None:
        return []
    results = Message.objects.filter(
        session_id=turn.session_id, turn=turn, seq__gt=step.seq, role=MessageRole.TOOL
    )
    answered = {parts["call_id"] for parts in results.values_list("parts", flat=True)}
    return [call for call in step.parts["calls"] if call["id"] not in answered]
