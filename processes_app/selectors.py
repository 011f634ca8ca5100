"""What pages read of the processes, approvals and completions of a chat. Nothing is written.

Everything is asked for by the address of one chat: what belongs to another does not exist here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from sessions_app.domain import OPEN_TURN, TurnStatus
from sessions_app.models import Session, Turn

from . import domain, files
from .domain import ApprovalStatus, DropReason, EventStatus
from .models import ACTIVE, UNSETTLED, Approval, CompletionEvent, ProcessRecord

MOST_ACTIVE: Final = 50  # processes of a chat that a page lists while they run
MOST_NEWEST: Final = 12  # … and the newest, whether they run or not
MOST_QUIET: Final = 50  # rows without a turn in the sessions of a page


@dataclass(frozen=True)
class Chores:
    """What is known of a chat's background work at one moment."""

    processes: list[ProcessRecord] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    events: list[CompletionEvent] = field(default_factory=list)


def of_chat(
    address: str,
    *,
    processes: Iterable[str] = (),
    approvals: Iterable[int] = (),
    events: Iterable[int] = (),
) -> Chores:
    """The work of a chat: what runs or waits, the newest of what does not, and what is named.

    Three queries; each approval tells how its turn stands, as ``stands`` takes it.
    """
    known = ProcessRecord.objects.of_chat(address)
    newest = known.values("pk")[:MOST_NEWEST]
    wanted = Q(status__in=ACTIVE) | Q(pk__in=newest) | Q(uid__in=list(processes))
    found = list(known.filter(wanted)[: MOST_ACTIVE + 2 * MOST_NEWEST])
    asked = Q(status=ApprovalStatus.PENDING) | Q(pk__in=list(approvals))
    told = Q(process__in=[row.pk for row in found]) | Q(pk__in=list(events))
    told |= Q(process=None, status__in=UNSETTLED)
    news = CompletionEvent.objects.filter(told, origin_chat=address).select_related("process")
    return Chores(
        found,
        list(_asked().filter(asked, origin_chat=address).order_by("pk")[:MOST_ACTIVE]),
        list(news.order_by("pk")[: 2 * MOST_ACTIVE]),
    )


def of_turns(turns: Iterable[int]) -> Chores:
    """The processes and approvals that calls of these turns have brought about."""
    wanted = list(turns)
    return Chores(
        list(ProcessRecord.objects.filter(turn_id_meant__in=wanted)),
        list(_asked().filter(turn_id_meant__in=wanted)),
    )


def told_in(turns: Iterable[int]) -> list[CompletionEvent]:
    """What the reports of these turns are about, in the order in which it happened."""
    rows = CompletionEvent.objects.filter(turn_id_meant__in=list(turns)).select_related("process")
    return list(rows.order_by("happened_at", "pk"))


def untold(address: str, sessions: Iterable[str]) -> list[CompletionEvent]:
    """What is shown in these sessions of a chat without a turn, the oldest first."""
    shown = Q(status=EventStatus.QUIET) | Q(
        status=EventStatus.DROPPED, reason=DropReason.CLOSED_BY_USER
    )
    wanted = list(sessions)
    placed = Q(origin_session__in=wanted) | Q(origin_session=None, delivered_to__in=wanted)
    rows = CompletionEvent.objects.filter(shown, placed, origin_chat=address)
    newest = rows.select_related("process").order_by("-happened_at", "-pk")[:MOST_QUIET]
    return list(newest)[::-1]


def has_untold() -> Q:
    """A filter of chats: whether anything may be shown in their sessions without a turn."""
    sessions = Session.objects.filter(chat=OuterRef(OuterRef("pk"))).values("key")
    rows = CompletionEvent.objects.filter(status__in=[EventStatus.QUIET, EventStatus.DROPPED])
    unstamped = rows.filter(origin_session=None, origin_chat=OuterRef("key"))
    return Q(Exists(rows.filter(origin_session__in=sessions))) | Q(Exists(unstamped))


def process_of(address: str, uid: str) -> ProcessRecord | None:
    """A process of a chat by its name; None if it has none of this name."""
    return ProcessRecord.objects.of_chat(address).filter(uid=uid).first()


def approval_of(address: str, pk: int) -> Approval | None:
    """An approval that was asked for in a chat; None if there is none."""
    return _asked().filter(pk=pk, origin_chat=address).first()


def event_of(address: str, pk: int) -> CompletionEvent | None:
    """A completion of a chat; None if there is none."""
    rows = CompletionEvent.objects.filter(pk=pk, origin_chat=address)
    return rows.select_related("process").first()


def running(address: str) -> QuerySet[ProcessRecord]:
    """The processes of a chat that may have a child."""
    return ProcessRecord.objects.of_chat(address).active()


def output_of(process: ProcessRecord) -> files.Output:
    """What a process has written, redacted and readable; its tail where no more is here."""
    folder = files.Folder.of(process.uid)
    if folder.path.exists():
        return folder.output()
    return files.Output(
        process.tail, process.output_bytes, process.output_bytes - len(process.tail), is_text=True
    )


def stands(approval: Approval) -> str:
    """How an approval stands for a person: ``open``, its status, ``withdrawn`` or ``resuming``.

    It is open only while its turn waits for it. A pending one whose turn has ended was withdrawn;
    between asking and waiting it is ``resuming``, and nobody is asked yet.
    """
    if approval.status != ApprovalStatus.PENDING:
        return str(approval.status)
    status = getattr(approval, "turn_status", None)
    if status == TurnStatus.WAITING and approval.turn_key == domain.approval_key(approval.pk):  # type: ignore[attr-defined] # annotated by _asked
        return "open"
    return "resuming" if status in OPEN_TURN else "withdrawn"


def _asked() -> QuerySet[Approval]:
    turn = Turn.objects.filter(pk=OuterRef("turn_id_meant"))
    return Approval.objects.annotate(
        turn_status=Subquery(turn.values("status")), turn_key=Subquery(turn.values("wait_key"))
    )
