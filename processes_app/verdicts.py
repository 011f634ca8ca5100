"""The single writer of verdicts: what becomes of completions, together with the turn they make.

Every function is one transaction. Locks are taken in the order of docs/architecture.md: chats,
their sessions, processes, events. Facts are gathered under them and judged by one pure table.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from django.db.models import Q, QuerySet

from hermes.lib.db import DbNow, db_now, transacted
from sessions_app import intake as chats
from sessions_app import transcript
from sessions_app.domain import OPEN_TURN, TurnStatus
from sessions_app.models import Chat, History, Session, Turn

from . import domain
from .domain import (
    Consumed,
    Deliver,
    Drop,
    DropReason,
    EventStatus,
    Held,
    Item,
    Quiet,
    QuietReason,
    Retry,
    Verdict,
)
from .facts import Ground, concerned, looked_at
from .models import UNSETTLED, CompletionEvent, ProcessRecord

logger = logging.getLogger(__name__)

# What operators may do to an event, by where it stands.
REDELIVERABLE: Final = frozenset({EventStatus.DROPPED, EventStatus.QUIET})
SHOWABLE: Final = frozenset({EventStatus.PENDING, EventStatus.DROPPED})
DISCARDABLE: Final = frozenset({EventStatus.PENDING, EventStatus.QUIET})
BATCH: Final = domain.MOST_DIGEST  # events looked at in one transaction


@dataclass
class Settled:
    """What one transaction came to: how many events were accepted, and how many closed."""

    looked_at: int = 0
    accepted: int = 0
    delivered: int = 0
    closed: int = 0
    waiting: int = 0
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    placed: set[int] = field(default_factory=set)  # the events that this call has put into a turn


@transacted
def settle(address: str) -> Settled:
    """Judge every due completion of a chat's address.

    Verdicts and the one turn that they make commit together or not at all. Events whose turn has
    started are delivered; those whose turn ended unstarted are due again and judged at once.
    """
    wanted = Q(status=EventStatus.ACCEPTED) | Q(status=EventStatus.PENDING) & (
        Q(due_at__lte=DbNow()) | Q(held=Held.STREAK)
    )
    found = CompletionEvent.objects.filter(wanted, origin_chat=address).order_by(
        "happened_at", "pk"
    )
    seen = _movable(found)
    if not seen:
        return Settled()
    ground = _lock(address, [stamp for _, _, stamp in seen], [pk for _, pk, _ in seen if pk])
    events = _lock_events(pk for pk, _, _ in seen)
    result = Settled(looked_at=len(seen))
    pending = [event for event in events if event.status == EventStatus.PENDING]
    pending += _follow_turns([event for event in events if event not in pending], result)
    accepted: dict[str | None, list[CompletionEvent]] = {}
    for event in sorted(pending, key=lambda each: (each.happened_at, each.pk)):
        verdict = domain.judge(ground.facts(event))
        result.verdicts[event.pk] = verdict
        match verdict:
            case Deliver(session):
                accepted.setdefault(session, []).append(event)
            case Quiet(session, reason):
                _quieten(event, reason, session)
                _badge(ground, session)
                result.closed += 1
            case Retry():
                _postpone(event, verdict)
                result.waiting += 1
            case Drop(reason):
                _drop(event, reason)
                if reason is DropReason.CLOSED_BY_USER:  # its output stands there all the same
                    _badge(ground, event.origin_session)
                result.closed += 1
            case Consumed():
                _consume(event)
                result.closed += 1
            case unreachable:
                assert_never(unreachable)
    for key, batch in accepted.items():
        placed = _accept(ground, key, batch)
        result.placed |= placed
        result.accepted += len(placed)
        result.waiting += len(batch) - len(placed)
    return result


def _movable(found: QuerySet[CompletionEvent]) -> list[tuple[int, int | None, str | None]]:
    """Events of which a look can make something: number, process and stamp; read without a lock.

    An accepted event whose turn has not started is none, and neither is what waits behind it for
    the same session: that turn's start or end has them looked at again. So a hundred ends in a
    second lock a hundred rows once a turn, and not once an end.
    """
    columns = ("pk", "process_id", "origin_session", "status", "turn_id_meant")
    rows = list(found.values_list(*columns)[:BATCH])
    turns = {turn for *_, status, turn in rows if status == EventStatus.ACCEPTED}
    unstarted = Turn.objects.filter(pk__in=turns, started_at=None, status__in=sorted(OPEN_TURN))
    ahead = set(unstarted.values_list("pk", flat=True)) if turns else set()
    busy = {stamp for _, _, stamp, _, turn in rows if turn in ahead and stamp is not None}
    return [
        (pk, process, stamp)
        for pk, process, stamp, status, turn in rows
        if turn not in ahead and not (status == EventStatus.PENDING and stamp in busy)
    ]


def _lock(address: str, stamps: Iterable[str | None], processes: Iterable[int]) -> Ground:
    """Lock chats, sessions and processes, each by id, and read them afterwards."""
    ground = _ground(address, list(stamps), is_locked=True)
    rows = ProcessRecord.objects.filter(pk__in=set(processes)).order_by("pk")
    list(rows.select_for_update(no_key=True).values_list("pk"))
    return ground


def _ground(address: str, stamps: Collection[str | None], *, is_locked: bool) -> Ground:
    """Chats, then the sessions that these stamps concern; as they are now, or locked."""
    chats_found = Chat.objects.filter(pk__in=concerned(address, stamps)).order_by("pk")
    if is_locked:
        chats_found = chats_found.select_for_update(no_key=True)
    found = {chat.pk: chat for chat in chats_found}
    sessions = looked_at(found.values(), stamps).order_by("pk")
    if is_locked:
        sessions = sessions.select_for_update(no_key=True)
    return Ground(address, db_now(), found, {each.key: each for each in sessions})


def _lock_events(pks: Iterable[int]) -> list[CompletionEvent]:
    """The events that nobody else settles just now, as they are under their locks."""
    rows = CompletionEvent.objects.filter(pk__in=list(pks), status__in=UNSETTLED).order_by("pk")
    free = rows.select_for_update(no_key=True, skip_locked=True, of=("self",))
    return list(free.select_related("process"))


def _follow_turns(events: Sequence[CompletionEvent], result: Settled) -> list[CompletionEvent]:
    """Say of accepted events what became of their turn; return those that are due again."""
    turns = {
        turn.pk: turn
        for turn in Turn.objects.filter(pk__in={event.turn_id_meant for event in events})
    }
    again = []
    for event in events:
        turn = turns.get(event.turn_id_meant or 0)
        if turn is not None and turn.started_at is not None:
            _move(event, EventStatus.DELIVERED, settled_at=DbNow())
            result.delivered += 1
        elif turn is None or turn.status not in OPEN_TURN:
            _move(
                event,
                EventStatus.PENDING,
                turn_id_meant=None,
                delivered_to="",
                attempt=event.attempt + 1,
                due_at=DbNow(),
            )
            event.attempt, event.status = event.attempt + 1, EventStatus.PENDING
            again.append(event)
    return again


# --- Writing verdicts -----------------------------------------------------------------------------


def _move(
    event: CompletionEvent, to: EventStatus, *, why: str = "", actor: str = "", **columns: Any
) -> None:
    """Move one locked event, with its line in the history."""
    if not CompletionEvent.objects.advance(
        event.pk, to, frm=[event.status], actor=actor[:150], **columns
    ):
        raise RuntimeError("a completion moved although it is locked")
    History(
        subject=f"completion:{event.pk}",
        kind="verdict",
        frm=event.status,
        to=to,
        reason=why[:200],
        actor=actor[:150],
        data={"chat": event.origin_chat, "session": event.origin_session},
    ).save(force_insert=True)
    logger.info("completion settled", extra={"completion": event.pk, "to": str(to), "reason": why})


def _drop(event: CompletionEvent, reason: DropReason, *, why: str = "", actor: str = "") -> None:
    """Close an event without delivering it; the output stays where it is."""
    _move(
        event,
        EventStatus.DROPPED,
        why=why or reason,
        actor=actor,
        reason=reason,
        quiet_because="",
        delivered_to="",
        held=Held.NO,
        settled_at=DbNow(),
    )
    if reason in domain.ALERTED:
        logger.error("completion dropped", extra={"completion": event.pk, "reason": str(reason)})


def _quieten(
    event: CompletionEvent,
    reason: QuietReason,
    session: str | None,
    *,
    why: str = "",
    actor: str = "",
) -> None:
    """Let an event be shown in a session without a turn."""
    _move(
        event,
        EventStatus.QUIET,
        why=why or reason,
        actor=actor,
        reason="",
        quiet_because=reason,
        delivered_to=session or "",
        held=Held.NO,
        settled_at=DbNow(),
    )


def _consume(event: CompletionEvent) -> None:
    """The agent has the result already."""
    _move(event, EventStatus.CONSUMED, held=Held.NO, settled_at=DbNow())


def _postpone(event: CompletionEvent, verdict: Retry) -> None:
    """Let an event wait; nothing is counted, and nothing is written that is so already."""
    waits_since = event.waits_since
    if verdict.held is Held.TIP and waits_since is None:
        waits_since = db_now()
    # These stay due: whoever starts or ends that turn has this looked at again.
    stays_due = {Held.QUEUED, Held.TAKING}
    due_at = event.due_at if verdict.held in stays_due else verdict.at
    if verdict.held in stays_due and event.held in {Held.BUDGET, Held.STREAK}:
        return  # what was held for its number still comes as a digest
    if (event.held, event.due_at, event.waits_since) != (verdict.held, due_at, waits_since):
        CompletionEvent.objects.amend(
            event.pk,
            EventStatus.PENDING,
            held=verdict.held,
            due_at=due_at,
            waits_since=waits_since,
        )


def _accept(ground: Ground, key: str | None, events: Sequence[CompletionEvent]) -> set[int]:
    """Make one queued turn of the oldest events that go to one session; return which.

    What was held back for its number comes as one digest.
    """
    is_digest = any(event.held in {Held.BUDGET, Held.STREAK} for event in events)
    batch = events[: domain.MOST_DIGEST if is_digest else domain.MOST_ITEMS]
    known = None if key is None else ground.sessions[key]
    chat = ground.named if known is None else ground.chats[known.chat_id]
    session = chats.session_for_news(chat, known)
    nonce = secrets.token_hex(12)
    text = domain.frame([_item(event) for event in batch], nonce, held=is_digest)
    turn = chats.queue_completion_turn(session, text=text, key=_turn_key(batch))
    for event in batch:
        _move(
            event,
            EventStatus.ACCEPTED,
            why=f"turn {turn.pk}",
            turn_id_meant=turn.pk,
            delivered_to=session.key,
            held=Held.NO,
        )
    return {event.pk for event in batch}


def _turn_key(events: Sequence[CompletionEvent]) -> str:
    """What makes a turn of these events in this attempt one of its kind."""
    named = ",".join(f"{event.pk}.{event.attempt}" for event in events)
    return f"news-{hashlib.sha256(named.encode()).hexdigest()[:48]}"


def _item(event: CompletionEvent) -> Item:
    process = event.process
    if process is None:
        return Item(
            name=event.child_session or "",
            what=event.title,
            outcome="has finished",
            seconds=None,
            output=event.body,
            is_agent=True,
        )
    return Item(
        name=process.uid,
        what=event.title,
        outcome=process.outcome,
        seconds=process.seconds,
        output=event.body,
    )


def _badge(ground: Ground, session: str | None) -> None:
    """Mark the chat in which something is shown quietly as not read."""
    found = ground.sessions.get(session or "")
    if found is not None:
        _mark_unread(ground.chats[found.chat_id])


def _mark_unread(chat: Chat) -> None:
    chat.read_session, chat.read_seq = None, 0
    transcript.publish_chat(chat, "read_session", "read_seq")


# --- Asked about one event or turn ----------------------------------------------------------------


@transacted
def is_wanted(turn_id: int, session_key: str) -> bool:
    """Whether everything that a claimed turn reports still belongs into its session.

    Nothing is written: a turn that is not wanted is ended by whoever asked, and its events are
    judged again.
    """
    events = CompletionEvent.objects.filter(
        turn_id_meant=turn_id, status=EventStatus.ACCEPTED
    ).select_related("process")
    known = list(events.order_by("pk"))
    if not known:
        return False
    address = known[0].origin_chat
    ground = _lock(
        address,
        [event.origin_session for event in known],
        [event.process_id for event in known if event.process_id],
    )
    for event in events.order_by("pk"):
        verdict = domain.judge(ground.facts(event, paced=False))
        match verdict:
            case Deliver(session):
                # A session that was begun for news without a stamp is the chat's current one.
                if session != session_key:
                    return False
            case Quiet() | Retry() | Drop() | Consumed():
                return False
            case unreachable:
                assert_never(unreachable)
    return True


@transacted
def take(process_id: int, *, turn_id: int, run: int, call_id: str) -> bool:
    """Note that a call of a running turn returns the result of an ended process.

    Its news is consumed once that result stands in the turn, and told as ever if it never does.
    False if the process is still active, or the turn does not run (any more).
    """
    process = ProcessRecord.objects.lock(process_id)
    runs = Turn.objects.filter(pk=turn_id, status=TurnStatus.RUNNING, fence_token=run)
    if process.is_active or not runs.exists():
        return False
    return ProcessRecord.objects.amend(
        process_id, process.status, taken_turn_id=turn_id, taken_call_id=call_id
    )


# --- Operators ------------------------------------------------------------------------------------


def _locked(event_id: int) -> CompletionEvent | None:
    rows = CompletionEvent.objects.select_for_update(no_key=True, of=("self",))
    return rows.filter(pk=event_id).select_related("process").first()


@transacted
def redeliver(event_id: int, *, actor: str, why: str) -> bool:
    """Have a dropped or quiet event judged again; False if it is neither."""
    event = _locked(event_id)
    if event is None or event.status not in REDELIVERABLE:
        return False
    _move(
        event,
        EventStatus.PENDING,
        why=why,
        actor=actor,
        reason="",
        quiet_because="",
        delivered_to="",
        settled_at=None,
        waits_since=None,
        attempt=event.attempt + 1,
        due_at=DbNow(),
    )
    return True


@transacted
def show_quietly(event_id: int, *, actor: str, why: str) -> bool:
    """Show a pending or dropped event in its session without a turn.

    False if it is neither, or there is no session to show it in.
    """
    seen = CompletionEvent.objects.filter(pk=event_id).first()
    session = None if seen is None else place_of(seen)
    rows = Chat.objects.filter(pk__in=Session.objects.filter(key=session).values("chat"))
    chat = rows.select_for_update(no_key=True).first()  # locked before its events
    event = _locked(event_id)
    if chat is None or event is None or event.status not in SHOWABLE:
        return False
    _quieten(event, QuietReason.OPERATOR, session, why=why, actor=actor)
    _mark_unread(chat)
    return True


def place_of(event: CompletionEvent) -> str | None:
    """The session in which news can be shown: its own, without a stamp its chat's; None if gone."""
    rows = Session.objects.filter(key=event.origin_session)
    if event.origin_session is None:
        rows = Session.objects.filter(
            pk__in=Chat.objects.filter(key=event.origin_chat).values("current")
        )
    found: str | None = rows.values_list("key", flat=True).first()
    return found


@transacted
def discard(event_id: int, *, actor: str, why: str) -> bool:
    """Drop a pending or quiet event for an operator; False if it is neither."""
    event = _locked(event_id)
    if event is None or event.status not in DISCARDABLE:
        return False
    _drop(event, DropReason.DISCARDED, why=why, actor=actor)
    return True


def foresee(event_ids: Iterable[int]) -> Mapping[int, Verdict]:
    """What the table would say of events now, for a dry run; nothing is locked or written.

    Only those that can be judged again are in it: what was delivered or consumed stays so.
    """
    rows = CompletionEvent.objects.filter(pk__in=list(event_ids), status__in=REDELIVERABLE)
    by_address: dict[str, list[CompletionEvent]] = {}
    for event in rows.select_related("process").order_by("pk"):
        event.waits_since = None  # as it is when it is judged again
        by_address.setdefault(event.origin_chat, []).append(event)
    found: dict[int, Verdict] = {}
    for address, events in by_address.items():
        ground = _ground(address, [event.origin_session for event in events], is_locked=False)
        found |= {event.pk: domain.judge(ground.facts(event)) for event in events}
    return found
