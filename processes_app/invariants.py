"""What must hold of processes and their news at every committed state; read by tests and operators.

``sessions_app`` does not know this list; whoever wants both asks both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from sessions_app.domain import MessageKind
from sessions_app.models import History, Message, Session, Turn

from . import domain
from .domain import EventKind, EventStatus
from .models import CompletionEvent, ProcessRecord

MOST: Final = 20  # offenders named a check


def check_invariants(session_id: int | None = None) -> list[str]:
    """Violations found in what one session asked for, or in all, in words; none is as must be.

    What carries no session counts for every session of its chat.
    """
    processes = ProcessRecord.objects.all()
    events = CompletionEvent.objects.all()
    if session_id is not None:
        session = Session.objects.select_related("chat").get(pk=session_id)
        own = Q(origin_session=session.key) | Q(origin_session=None, origin_chat=session.chat.key)
        processes, events = processes.filter(own), events.filter(own)
    found = [line for check in OF_PROCESSES for line in check(processes)]
    return found + [line for check in OF_EVENTS for line in check(events)]


def ends_have_their_news(processes: QuerySet[ProcessRecord]) -> Iterator[str]:
    """I-11, I-15: a process that is to report has one event if it has ended, none before."""
    counted = processes.annotate(told=Count("events"))
    ended = counted.exclude(status__in=sorted(domain.ACTIVE))
    for found in ended.filter(notify=True).exclude(told=1)[:MOST]:
        yield f"I-11 {found} has ended with {found.told} events"
    for found in counted.filter(status__in=sorted(domain.ACTIVE), told__gt=0)[:MOST]:
        yield f"I-11 {found} runs and has an event"


def stamps_are_copies(events: QuerySet[CompletionEvent]) -> Iterator[str]:
    """I-12: an event carries the stamp of its process."""
    rows = events.filter(process__isnull=False).select_related("process")
    for event in rows.iterator():
        process = event.process
        if process is not None and (event.origin_chat, event.origin_session) != (
            process.origin_chat,
            process.origin_session,
        ):
            yield f"I-12 {event} carries another stamp than {process}"


def delivered_once_to_the_owner(events: QuerySet[CompletionEvent]) -> Iterator[str]:
    """I-11, I-12: delivered news stands in one message, in the session that it belongs to."""
    delivered = events.filter(status=EventStatus.DELIVERED).select_related("process")
    for event in delivered.iterator():
        rows = Message.objects.filter(turn=event.turn_id_meant or 0, kind=MessageKind.COMPLETION)
        told = list(rows.values_list("session__key", "text"))
        name = event.child_session if event.process is None else event.process.uid
        if len(told) != 1 or str(name) not in told[0][1]:
            yield f"I-11 {event} is delivered and stands in {len(told)} messages"
        elif told[0][0] != event.delivered_to:
            yield f"I-12 {event} stands in another session than it says"
        elif not _belongs(event):
            yield f"I-12 {event} was delivered to {event.delivered_to}, which does not own it"


def _belongs(event: CompletionEvent) -> bool:
    """Whether a session is the stamped one, goes on for it, or delegated it."""
    target = Session.objects.filter(key=event.delivered_to).select_related("chat").first()
    if target is None:
        return True  # purged since
    if event.origin_session is None:
        return target.chat.key == event.origin_chat
    key: str | None = event.origin_session
    for _ in range(domain.MOST_HOPS):
        session = Session.objects.filter(key=key).select_related("chat").first()
        if session is None or session.pk == target.pk:
            return True
        if session.chat_id == target.chat_id:
            newer = Session.objects.filter(
                chat=target.chat, number__gt=session.number, number__lte=target.number
            )
            return not newer.filter(begun_by="user", continues=None).exists()
        following = Session.objects.filter(continues=session.key).first()
        key = session.chat.delegated_by if following is None else following.key
    return False


def placed_events_have_their_turn(events: QuerySet[CompletionEvent]) -> Iterator[str]:
    """I-11: an accepted event is in a turn that reports."""
    turns = Turn.objects.filter(pk=OuterRef("turn_id_meant"), source="completion")
    for event in events.filter(status=EventStatus.ACCEPTED).exclude(Exists(turns))[:MOST]:
        yield f"I-11 {event} is accepted by a turn that is not there"


def attempts_are_turns(events: QuerySet[CompletionEvent]) -> Iterator[str]:
    """I-14: only a turn that ended unstarted, or an operator, counts as an attempt."""
    for event in events.filter(attempt__gt=1).iterator():
        again = History.objects.filter(
            subject=f"completion:{event.pk}", kind="verdict", to=EventStatus.PENDING
        ).count()
        if again != event.attempt - 1:
            yield f"I-14 {event} counts {event.attempt} attempts, history says {again + 1}"


def known_drops_are_right(events: QuerySet[CompletionEvent]) -> Iterator[str]:
    """I-13: what is dropped as of an unknown type is of none that is known."""
    rows = events.filter(
        status=EventStatus.DROPPED, reason=domain.DropReason.UNKNOWN_TYPE, kind__in=list(EventKind)
    )
    for event in rows[:MOST]:
        yield f"I-13 {event} has a known type and was dropped for it"


OF_PROCESSES: Final[list[Callable[[QuerySet[ProcessRecord]], Iterator[str]]]] = [
    ends_have_their_news,
]
OF_EVENTS: Final[list[Callable[[QuerySet[CompletionEvent]], Iterator[str]]]] = [
    stamps_are_copies,
    delivered_once_to_the_owner,
    placed_events_have_their_turn,
    attempts_are_turns,
    known_drops_are_right,
]
