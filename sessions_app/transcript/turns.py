"""The life of a turn: claimed, started, its steps, waiting, finished. Writes under the fence.

Every function is one short transaction under the session's lock. A worker's functions take its
:class:`Claimed` and write nothing once the row carries another token: False says so, and the
worker leaves without a word, since whoever ended the turn has said what there was to say.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Case, F, Value, When

from hermes.lib import tokens
from hermes.lib.chat import ToolCall, Usage
from hermes.lib.db import DbNow, transacted
from hermes.lib.leases import Lease, Owner
from sessions_app import domain
from sessions_app.domain import MessageKind, MessageRole, TurnSource, TurnStatus
from sessions_app.models import Message, Session, Turn, TurnChunk

from . import rows
from .head import head_tokens

logger = logging.getLogger(__name__)

UNFINISHED = frozenset({"length", "content_filter"})  # ends that the person is told about
NO_LEASE = {"lease_owner": "", "lease_expires_at": None, "stop_asked_at": None}


@dataclass
class Claimed:
    """A turn in a worker's hands: the row as it was claimed, and the right to write it."""

    turn: Turn
    lease: Lease
    window: int = 0  # of the model that will answer; set by the runner
    has_begun: bool = False  # ``turn.session`` is as ``start`` has just left it

    def take(self, step: Step) -> None:
        """Keep in mind what a step that has landed has changed in the row."""
        self.turn.length += len(step.text)
        self.turn.model_calls += 1
        self.turn.open_calls = len(step.calls)

    @property
    def facts(self) -> domain.TurnFacts:
        """What gates and tools may know."""
        return facts_of(self.turn, window=self.window)


def facts_of(turn: Turn, *, window: int = 0) -> domain.TurnFacts:
    """What gates and tools may know of a turn, read with its session and chat."""
    return domain.TurnFacts(
        turn_id=turn.pk,
        run=turn.fence_token,
        chat_id=turn.chat_id,
        chat_key=turn.chat.key,
        session_id=turn.session_id,
        session_key=turn.session.key,
        owner_id=turn.chat.owner_id,
        source=TurnSource(turn.source),
        has_started=turn.started_at is not None,
        window=window,
        context_tokens=context_tokens(turn.session),
        input_tokens=0 if turn.started_at is not None else tokens.estimate(turn.text),
        live_messages=turn.session.live_count,
    )


def context_tokens(session: Session) -> int:
    """The size of the next request, without its input: the provider's count and what came since.

    Without a count that is still valid it is the estimate of all of it, system prompt and tools
    included.
    """
    if session.reading_tokens is None:
        summary = 0 if session.summary is None else session.summary.tokens
        return head_tokens() + summary + session.live_tokens
    return max(0, session.reading_tokens + session.live_tokens - session.reading_live)


@transacted
def claim(session_id: int) -> Claimed | None:
    """Take the next queued turn of a session, or None if one runs or waits, or none is queued."""
    session = Session.objects.lock_with_summary(session_id)
    turn = (
        Turn.objects.filter(session_id=session_id, status__in=sorted(domain.OPEN_TURN))
        .select_related("chat")
        .order_by(
            Case(When(status=TurnStatus.QUEUED, then=Value(1)), default=Value(0)),
            "rank",
            "position",
            "pk",
        )
        .first()
    )
    if turn is None or turn.status != TurnStatus.QUEUED:
        return None
    token = turn.fence_token + 1
    landed = Turn.objects.advance(
        turn.pk,
        TurnStatus.RUNNING,
        frm=[TurnStatus.QUEUED],
        when={"fence_token": turn.fence_token},
        fence_token=token,
        lease_owner=str(Owner.me()),
        lease_expires_at=DbNow() + Turn.LEASE.ttl,
        stop_asked_at=None,
        wait_key="",
        wait_until=None,
    )
    if not landed:
        return None
    turn.session, turn.fence_token, turn.status = session, token, TurnStatus.RUNNING
    return Claimed(turn, Lease(turn.pk, token))


def _held(claimed: Claimed) -> dict[str, Any]:
    return {"fence_token": claimed.lease.token}


@transacted
def start(claimed: Claimed) -> bool:
    """Begin a claimed turn: its input becomes a message. False: it is no longer ours, or cancelled.

    A turn whose session has ended meanwhile is cancelled here, unstarted.
    """
    turn = claimed.turn
    session = Session.objects.lock_with_summary(turn.session_id)
    if session.ended_at is not None:
        Turn.objects.advance(
            turn.pk,
            TurnStatus.CANCELLED,
            when=_held(claimed),
            finished_at=DbNow(),
            changed=rows.next_version(session),
            error_code=domain.Code.ENDED,
            **NO_LEASE,
        )
        rows.publish(session)
        return False
    first_seq = session.last_seq + 1
    landed = Turn.objects.amend(
        turn.pk,
        TurnStatus.RUNNING,
        when=_held(claimed),
        first_seq=first_seq,
        started_at=DbNow(),
        changed=rows.next_version(session),
    )
    if not landed:
        return False
    _append_input(session, turn)
    rows.record(
        session, f"turn:{turn.pk}", "turn", frm="queued", to="running", run=turn.fence_token
    )
    rows.publish(session)
    turn.first_seq, turn.session = first_seq, session
    claimed.has_begun = True
    return True


def _append_input(session: Session, turn: Turn) -> None:
    """The input of a turn becomes a message of the transcript."""
    match turn.source:
        case TurnSource.PERSON:
            rows.append(session, role=MessageRole.USER, text=turn.text, turn=turn)
        case TurnSource.COMPLETION:
            rows.append(
                session,
                role=MessageRole.USER,
                kind=MessageKind.COMPLETION,
                text=turn.text,
                turn=turn,
            )
        case TurnSource.CONTINUE:
            rows.append(
                session,
                role=MessageRole.USER,
                kind=MessageKind.NUDGE,
                text="Go on exactly where your last answer stops. Do not repeat any of it.",
                turn=turn,
            )


def save_chunk(lease: Lease, n: int, offset: int, text: str) -> bool:
    """Keep a piece of the streamed text; False once the run has been ended by somebody else.

    One statement that locks no other row: the turn is only looked at.
    """
    if connection.in_atomic_block:
        raise RuntimeError("a chunk is saved in a statement of its own")
    held = Turn.objects.filter(
        pk=lease.pk, fence_token=lease.token, status=TurnStatus.RUNNING
    ).values_list("pk", flat=True)
    with connection.cursor() as cursor:
        sql, parameters = held.query.sql_with_params()
        table = connection.ops.quote_name(TurnChunk._meta.db_table)
        cursor.execute(
            f'INSERT INTO {table} (turn_id, run, n, "offset", text) '
            f"SELECT %s, %s, %s, %s, %s WHERE EXISTS ({sql})",
            [lease.pk, lease.token, n, offset, domain.storable(text), *parameters],
        )
        return bool(cursor.rowcount == 1)


@dataclass(frozen=True)
class Step:
    """What one model call brought."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    finish: str = ""  # why the model stopped, where it says
    usage: Usage | None = None
    last_seq: int = 0  # newest message that the model was given
    live_tokens: int = 0  # of the session when it was given
    built_on_id: int | None = None  # the summary that the request was built on
    left_out: int = 0  # messages that had no room in the request
    model_name: str = ""


def _parts(step: Step) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if step.reasoning:
        parts["reasoning"] = step.reasoning
    if step.calls:
        parts["calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in step.calls
        ]
    return parts


def _counted(turn: Turn, step: Step) -> dict[str, Any]:
    """The columns of a turn that one more model call changes."""
    usage = step.usage or Usage(0, 0)
    return {
        "model_calls": F("model_calls") + 1,
        "model_name": step.model_name[:200] or turn.model_name,
        "prompt_tokens": F("prompt_tokens") + usage.prompt,
        "completion_tokens": F("completion_tokens") + usage.completion,
        "length": F("length") + len(step.text),
        "built_on_id": step.built_on_id,
    }


def _take_reading(session: Session, step: Step) -> None:
    """Keep what was counted, but only of a request built on the session's current summary."""
    if step.built_on_id != session.summary_id:
        return
    session.left_out = step.left_out
    if step.usage is not None:
        session.reading_tokens = step.usage.prompt
        session.reading_seq = step.last_seq
        session.reading_live = step.live_tokens
        session.reading_summary_id = step.built_on_id


@transacted
def append_step(claimed: Claimed, step: Step) -> bool:
    """Commit an answer that asks for tools, before any of them runs; False if no longer ours.

    Once it has landed, the caller lets ``claimed`` take it too: this body may run twice.
    """
    turn = claimed.turn
    session = Session.objects.lock(turn.session_id)
    step = replace(step, calls=_with_ids_of_their_own(turn, step.calls))
    landed = Turn.objects.amend(
        turn.pk,
        TurnStatus.RUNNING,
        when=_held(claimed),
        changed=rows.next_version(session),
        open_calls=len(step.calls),
        **_counted(turn, step),
    )
    if not landed:
        return False
    rows.append(session, role=MessageRole.ASSISTANT, text=step.text, parts=_parts(step), turn=turn)
    _take_reading(session, step)
    rows.publish(session)
    return True


def _with_ids_of_their_own(turn: Turn, calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls, none with an id that the turn has used: providers number afresh in each answer.

    A tool finds what an earlier call began by turn and call id, so no two calls may share one.
    """
    used: set[str] = set()
    if turn.model_calls:
        earlier = Message.objects.filter(turn=turn, parts__has_key="calls")
        for parts in earlier.values_list("parts", flat=True):
            used.update(call["id"] for call in parts["calls"])
    own = []
    for call in calls:
        own.append(replace(call, id=secrets.token_hex(5)[:9]) if call.id in used else call)
        used.add(own[-1].id)
    return own


@transacted
def append_result(claimed: Claimed, call: ToolCall, result: domain.Done) -> bool:
    """Commit what a tool returned; False if no longer ours."""
    turn = claimed.turn
    session = Session.objects.lock(turn.session_id)
    landed = Turn.objects.amend(
        turn.pk,
        TurnStatus.RUNNING,
        when=_held(claimed),
        changed=rows.next_version(session),
        open_calls=F("open_calls") - 1,
    )
    if not landed:
        return False
    append_tool_row(session, turn, call.id, call.name, result)
    rows.publish(session)
    return True


def append_tool_row(
    session: Session, turn: Turn, call_id: str, name: str, result: domain.Done
) -> None:
    """Append the result row of one call to a locked session."""
    rows.append(
        session,
        role=MessageRole.TOOL,
        kind=MessageKind.RESULT,
        text=result.text,
        parts={"call_id": call_id, "name": name, "ok": result.ok},
        turn=turn,
    )


@transacted
def finish(claimed: Claimed, step: Step) -> bool:
    """Complete the turn with its answer; False if no longer ours, and then nothing is written."""
    turn = claimed.turn
    session = Session.objects.lock(turn.session_id)
    landed = Turn.objects.advance(
        turn.pk,
        TurnStatus.COMPLETED,
        when=_held(claimed),
        finished_at=DbNow(),
        changed=rows.next_version(session),
        error_code=step.finish if step.finish in UNFINISHED else "",
        error_text="",
        retry_at=None,
        **_counted(turn, step),
        **NO_LEASE,
    )
    if not landed:
        return False
    rows.append(session, role=MessageRole.ASSISTANT, text=step.text, parts=_parts(step), turn=turn)
    _take_reading(session, step)
    rows.record(
        session, f"turn:{turn.pk}", "turn", frm="running", to="completed", run=turn.fence_token
    )
    rows.publish(session)
    return True


@transacted
def wait(
    claimed: Claimed,
    wait: domain.Wait,
    *,
    error_code: str = "",
    error_text: str = "",
) -> bool:
    """Let the turn wait without a worker: its lease is cleared. False if no longer ours.

    The caller asks once more afterwards whether what is waited for has come: a wake-up between its
    last look and this commit found no waiting turn.
    """
    turn = claimed.turn
    session = Session.objects.lock(turn.session_id)
    landed = Turn.objects.advance(
        turn.pk,
        TurnStatus.WAITING,
        when={**_held(claimed), "stop_asked_at": None},
        wait_key=wait.key,
        wait_until=wait.until,
        retry_at=wait.until if error_code else None,
        error_code=error_code,
        error_text=error_text,
        provider_waits=F("provider_waits") + (1 if error_code else 0),
        changed=rows.next_version(session),
        **NO_LEASE,
    )
    if not landed:
        return False
    rows.record(session, f"turn:{turn.pk}", "turn", frm="running", to="waiting", reason=wait.key)
    rows.publish(session)
    return True


@transacted
def resume(turn_id: int, key: str, *, session_id: int) -> bool:
    """Queue a waiting turn again, ahead of everything; False if it does not wait for ``key``."""
    session = Session.objects.lock(session_id)
    landed = Turn.objects.advance(
        turn_id,
        TurnStatus.QUEUED,
        frm=[TurnStatus.WAITING],
        when={"wait_key": key},
        rank=domain.RANK_RESUMED,
        wait_key="",
        wait_until=None,
        retry_at=None,
        error_code="",
        error_text="",
        changed=rows.next_version(session),
    )
    if not landed:
        return False
    rows.record(session, f"turn:{turn_id}", "turn", frm="waiting", to="queued", reason=key)
    rows.publish(session)
    return True


def waiting_until_passed(limit: int) -> list[tuple[int, str, int]]:
    """Waiting turns whose time is up: (turn, key, session)."""
    due = Turn.objects.filter(status=TurnStatus.WAITING, wait_until__lt=DbNow())
    return list(due.order_by("wait_until").values_list("pk", "wait_key", "session_id")[:limit])


def until_text(until: datetime | None) -> str:
    """A time as people's messages carry it (UTC, to the second)."""
    return "" if until is None else until.strftime("%Y-%m-%d %H:%M:%S UTC")
