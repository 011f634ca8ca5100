"""What must hold of every session at every committed state; read by tests, soaks and operators.

Each check is one query that finds offenders, so that a whole database can be asked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from . import domain
from .domain import MessageKind, MessageRole, TurnSource, TurnStatus
from .models import Message, Rewind, Session, Turn, TurnChunk

MOST: Final = 20  # offenders named a check


def check_invariants(session_id: int | None = None) -> list[str]:
    """Violations found in one session, or in all, in words; none is as it must be."""
    sessions = Session.objects.all()
    if session_id is not None:
        sessions = sessions.filter(pk=session_id)
    return [line for check in CHECKS for line in check(sessions)]


def seqs_have_no_gap(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-17: ``seq`` runs from 1 to ``last_seq`` without a gap."""
    counted = sessions.annotate(
        rows=Count("messages"), newest=Coalesce(Max("messages__seq"), 0)
    ).exclude(rows=F("last_seq"), newest=F("last_seq"))
    for found in counted[:MOST]:
        yield f"I-17 session {found.pk}: {found.rows} rows, last_seq {found.last_seq}"


def live_numbers_are_true(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-1: the live numbers are those of the live rows above the summary."""
    covered = Coalesce(OuterRef("summary__covers_through"), 0)
    live = (
        Message.objects.filter(session=OuterRef("pk"), seq__gt=covered)
        .live()
        .order_by()
        .values("session")
    )
    counted = sessions.annotate(
        true_count=Coalesce(Subquery(live.annotate(x=Count("pk")).values("x")), 0),
        true_tokens=Coalesce(Subquery(live.annotate(x=Sum("tokens")).values("x")), 0),
    ).exclude(true_count=F("live_count"), true_tokens=F("live_tokens"))
    for found in counted[:MOST]:
        yield (
            f"I-1 session {found.pk}: live {found.live_count}/{found.live_tokens}, "
            f"true {found.true_count}/{found.true_tokens}"
        )


def rewinds_do_not_overlap(sessions: QuerySet[Session]) -> Iterator[str]:
    """Open ranges of a session never overlap, and none reaches past the transcript."""
    other = Rewind.objects.filter(
        session=OuterRef("session"),
        undone_at=None,
        pk__gt=OuterRef("pk"),
        from_seq__lte=OuterRef("to_seq"),
        to_seq__gte=OuterRef("from_seq"),
    )
    wrong = Rewind.objects.filter(session__in=sessions, undone_at=None).filter(
        Exists(other) | Q(to_seq__gt=F("session__last_seq"))
    )
    for found in wrong[:MOST]:
        yield f"rewind {found.pk} overlaps another, or reaches past the transcript"


def ended_sessions_are_quiet(sessions: QuerySet[Session]) -> Iterator[str]:
    """An ended session has no open turn."""
    open_turns = Turn.objects.filter(session=OuterRef("pk"), status__in=sorted(domain.OPEN_TURN))
    for found in sessions.filter(Exists(open_turns), ended_at__isnull=False)[:MOST]:
        yield f"session {found.pk} has ended and has an open turn"


def chats_point_at_their_newest(sessions: QuerySet[Session]) -> Iterator[str]:
    """An open session is the one that its chat points at."""
    for found in sessions.filter(ended_at=None).exclude(chat__current=F("pk"))[:MOST]:
        yield f"session {found.pk} is open and not the current one of its chat"


def calls_have_results(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-19: a result follows its call; a turn that has ended has a result for every call."""
    rows = Message.objects.filter(session__in=sessions, turn__isnull=False)
    steps = rows.filter(role=MessageRole.ASSISTANT, parts__has_key="calls")
    results = rows.filter(role=MessageRole.TOOL)
    asked: dict[tuple[int, int], dict[str, int]] = {}
    for turn_id, session_id, seq, parts in steps.values_list(
        "turn_id", "session_id", "seq", "parts"
    ).iterator():
        for call in parts["calls"]:
            asked.setdefault((session_id, turn_id), {})[call["id"]] = seq
    for turn_id, session_id, seq, parts in results.values_list(
        "turn_id", "session_id", "seq", "parts"
    ).iterator():
        at = asked.get((session_id, turn_id), {}).pop(parts["call_id"], None)
        if at is None or at > seq:
            yield f"I-19 message {session_id}/{seq} is a result without its call"
    ended = dict(
        Turn.objects.filter(pk__in={turn_id for _, turn_id in asked}).values_list("pk", "status")
    )
    for (session_id, turn_id), calls in asked.items():
        if calls and ended[turn_id] not in domain.OPEN_TURN:
            yield f"I-19 turn {turn_id} in session {session_id} ended without results: {calls}"


def inputs_become_messages_once(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-20: a person's started turn has exactly one input row; one that did not start has none."""
    inputs = Message.objects.filter(
        turn=OuterRef("pk"), role=MessageRole.USER, kind=MessageKind.TEXT
    )
    counted = Turn.objects.filter(session__in=sessions, source=TurnSource.PERSON).annotate(
        inputs=Coalesce(
            Subquery(inputs.order_by().values("turn").annotate(x=Count("pk")).values("x")), 0
        )
    )
    wrong = counted.filter(
        Q(started_at__isnull=True, inputs__gt=0) | Q(started_at__isnull=False) & ~Q(inputs=1)
    )
    for pk, status, rows in wrong.values_list("pk", "status", "inputs")[:MOST]:
        yield f"I-20 turn {pk} ({status}) has {rows} input rows"


def answers_are_what_was_streamed(sessions: QuerySet[Session]) -> Iterator[str]:
    """I-18: a turn's length is its text, and its kept chunks are a part of that text."""
    turns = Turn.objects.filter(session__in=sessions).exclude(status=TurnStatus.QUEUED)
    texts: dict[int, str] = {}
    answers = Message.objects.filter(turn__in=turns, role=MessageRole.ASSISTANT).order_by("seq")
    for turn_id, text in answers.values_list("turn_id", "text").iterator():
        texts[turn_id] = texts.get(turn_id, "") + text
    for pk, length in turns.values_list("pk", "length").iterator():
        if len(texts.get(pk, "")) != length:
            yield f"I-18 turn {pk}: length {length}, text {len(texts.get(pk, ''))}"
    chunks = TurnChunk.objects.filter(
        turn__in=turns, run=F("turn__fence_token"), turn__status=TurnStatus.COMPLETED
    )
    for turn_id, offset, text in chunks.values_list("turn_id", "offset", "text").iterator():
        if texts.get(turn_id, "")[offset : offset + len(text)] != text:
            yield f"I-18 turn {turn_id}: the chunk at {offset} is not in the answer"


CHECKS: Final[list[Callable[[QuerySet[Session]], Iterator[str]]]] = [
    seqs_have_no_gap,
    live_numbers_are_true,
    rewinds_do_not_overlap,
    ended_sessions_are_quiet,
    chats_point_at_their_newest,
    calls_have_results,
    inputs_become_messages_once,
    answers_are_what_was_streamed,
]
