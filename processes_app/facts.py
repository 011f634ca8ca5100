"""Facts for the table of verdicts, read from rows that the caller has locked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from sessions_app.domain import (
    END_CLASS,
    OPEN_TURN,
    BegunBy,
    EndClass,
    EndReason,
    MessageRole,
    TurnSource,
    TurnStatus,
)
from sessions_app.models import Chat, Message, Session, Turn

from . import domain
from .domain import Facts, Line, Place
from .models import CompletionEvent, ProcessRecord

HOUR: Final = timedelta(hours=1)
PERMISSION: Final = "processes_app.start_process"


def concerned(address: str, stamps: Iterable[str | None]) -> list[int]:
    """The chats that verdicts about these stamps look at, by id; read without a lock.

    What is read here never changes: keys, who delegated a chat, which chat a session is in.
    """
    found = set(Chat.objects.filter(key=address).values_list("pk", flat=True)) if address else set()
    ahead, seen = {stamp for stamp in stamps if stamp}, set[str]()
    for _ in range(domain.MOST_HOPS + 1):
        if not ahead:
            break
        seen |= ahead
        rows = list(
            Session.objects.filter(key__in=ahead).values_list("chat_id", "chat__delegated_by")
        )
        found |= {chat_id for chat_id, _ in rows}
        ahead = {by for _, by in rows if by} - seen
    return sorted(found)


def looked_at(chats: Collection[Chat], stamps: Iterable[str | None]) -> QuerySet[Session]:
    """The sessions of locked chats that verdicts about these stamps look at.

    The stamped ones, whoever delegated them, and what came behind those that a person has not
    closed: however often somebody began afresh before, that is not read again.
    """
    named = {stamp for stamp in stamps if stamp} | {chat.delegated_by or "" for chat in chats}
    wanted = Q(pk__in=[chat.current_id for chat in chats if chat.current_id])
    of_chats = Session.objects.filter(chat_id__in=[chat.pk for chat in chats])
    for pk, chat_id, number, end in of_chats.filter(key__in=named).values_list(
        "pk", "chat_id", "number", "end_reason"
    ):
        is_closed = end is not None and END_CLASS[EndReason(end)] is EndClass.USER
        behind = Q(chat_id=chat_id, number__gt=number)
        wanted |= Q(pk=pk) if is_closed else Q(pk=pk) | behind
    return of_chats.filter(wanted)


@dataclass
class Ground:
    """Locked chats and sessions, and what was worked out of them so far."""

    address: str
    now: datetime
    chats: Mapping[int, Chat]
    sessions: Mapping[str, Session]  # by key
    _continuing: dict[str, Session] = field(init=False)
    _paces: dict[int, Pace] = field(init=False, default_factory=dict)
    _owners: dict[tuple[int, str], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._continuing = {
            each.continues: each for each in self.sessions.values() if each.continues
        }

    @property
    def chat(self) -> Chat | None:
        """The chat of the address, if there is one."""
        return next((each for each in self.chats.values() if each.key == self.address), None)

    @property
    def named(self) -> Chat:
        """The chat of the address, which the table has found to be there."""
        return next(each for each in self.chats.values() if each.key == self.address)

    def facts(self, event: CompletionEvent, *, paced: bool = True) -> Facts:
        """What the table needs to know of an event; without its pace when it has a turn already."""
        process = event.process
        taken = None if process is None else _taken(process)
        known = Facts(
            kind=event.kind,
            now=self.now,
            happened_at=event.happened_at,
            stamp=event.origin_session,
            waits_since=event.waits_since,
            is_taken=taken is True,
            is_being_taken=taken is False,
            kill_by=None if process is None else process.killed_by,
        )
        if event.origin_session is None:
            return self._unstamped(known, paced=paced)
        hops, line = self._hops(event.origin_session)
        if not hops:
            return known
        last = self.sessions[hops[-1].key]
        tip, began_newer, is_cyclic = self._tip(last)
        found = replace(
            known,
            hops=hops,
            line=Line.CYCLIC if is_cyclic else line,
            tip=None if tip is None else self._place(tip),
            began_newer=began_newer,
            is_owner_fine=self._is_owner_fine(last.chat_id, event.kind),
        )
        return self._paced(found, tip) if paced else found

    def _unstamped(self, known: Facts, *, paced: bool) -> Facts:
        chat = self.chat
        if chat is None or chat.deleted_at is not None:
            return replace(known, is_chat_known=False)
        current = next(
            (each for each in self.sessions.values() if each.pk == chat.current_id), None
        )
        found = replace(
            known,
            current=None if current is None else self._place(current),
            is_owner_fine=self._is_owner_fine(chat.pk, known.kind),
        )
        return self._paced(found, current) if paced else found

    def _place(self, session: Session) -> Place:
        end = None
        if session.end_reason is not None:
            end = END_CLASS[EndReason(session.end_reason)]
        if self.chats[session.chat_id].deleted_at is not None:
            end = EndClass.USER  # the system may have ended the session before
        return Place(session.key, end)

    def _hops(self, stamp: str) -> tuple[tuple[Place, ...], Line]:
        """The stamped session and whoever delegated it, up to a boundary or the owner."""
        hops: list[Place] = []
        key: str | None = stamp
        while key is not None:
            session = self.sessions.get(key)
            if session is None:
                return tuple(hops), Line.BROKEN
            if any(hop.key == key for hop in hops):
                return tuple(hops), Line.CYCLIC
            if len(hops) == domain.MOST_HOPS:
                return tuple(hops), Line.TOO_LONG
            hops.append(self._place(session))
            if hops[-1].end is EndClass.USER:
                break
            key = self.chats[session.chat_id].delegated_by
        return tuple(hops), Line.WHOLE

    def _tip(self, session: Session) -> tuple[Session | None, bool, bool]:
        """Where a session goes on, whether a person began another, whether it goes in circles."""
        seen: set[str] = set()
        while True:
            if session.key in seen or len(seen) > domain.MOST_HOPS:
                return session, False, True
            seen.add(session.key)
            end = self._place(session).end
            if end is EndClass.CONTINUATION:
                following = self._continuing.get(session.key)
                if following is None:
                    return None, False, False
                session = following
                continue
            if end is not EndClass.SYSTEM:
                return session, False, False
            newer = self._newer(session)
            if newer is None:
                return session, False, False
            if newer.begun_by == BegunBy.USER:
                return session, True, False
            session = newer

    def _newer(self, session: Session) -> Session | None:
        later = [
            each
            for each in self.sessions.values()
            if each.chat_id == session.chat_id and each.number > session.number
        ]
        return min(later, key=lambda each: each.number, default=None)

    def _is_owner_fine(self, chat_id: int, kind: str) -> bool:
        """Whether the owner is active, and may still have what the news is about."""
        owner_id = self.chats[chat_id].owner_id
        if (owner_id, kind) not in self._owners:
            owner = get_user_model()._default_manager.filter(pk=owner_id, is_active=True).first()
            is_free = kind == domain.EventKind.DELEGATION
            self._owners[owner_id, kind] = owner is not None and (
                is_free or owner.has_perm(PERMISSION)
            )
        return self._owners[owner_id, kind]

    def _paced(self, facts: Facts, session: Session | None) -> Facts:
        """The facts with how often the session was woken that would take the news."""
        if session is None:
            return facts
        if session.pk not in self._paces:
            self._paces[session.pk] = Pace.of(session, self.now)
        pace = self._paces[session.pk]
        return replace(
            facts,
            budget_from=pace.budget_from,
            is_streak=pace.is_streak,
            has_queued=pace.has_queued,
        )


def _taken(process: ProcessRecord) -> bool | None:
    """Whether the agent has had the result; False while a call that returns it is not committed.

    None: no call has, or the one that had was interrupted before its result was written.
    """
    if process.killed_by is domain.KillBy.AGENT:
        return True
    if process.taken_turn_id is None:
        return None
    results = Message.objects.filter(
        turn_id=process.taken_turn_id,
        role=MessageRole.TOOL,
        parts__call_id=process.taken_call_id,
        parts__ok=True,
    )
    if results.exists():
        return True
    running = Turn.objects.filter(pk=process.taken_turn_id, status__in=sorted(OPEN_TURN))
    return False if running.exists() else None


@dataclass(frozen=True)
class Pace:
    """How often a session was woken."""

    budget_from: datetime | None
    is_streak: bool
    has_queued: bool

    @classmethod
    def of(cls, session: Session, now: datetime) -> Pace:
        """The pace of a locked session."""
        turns = Turn.objects.filter(session=session)
        wakes = turns.filter(source=TurnSource.COMPLETION)
        recent = wakes.filter(created_at__gt=now - HOUR).exclude(
            status=TurnStatus.CANCELLED, started_at=None
        )
        budget = settings.HERMES_WAKES_AN_HOUR
        used = list(recent.order_by("-created_at").values_list("created_at", flat=True)[:budget])
        last = list(
            turns.exclude(status=TurnStatus.CANCELLED, started_at=None)
            .order_by("-pk")
            .values_list("source", flat=True)[: settings.HERMES_AUTOMATIC_TURNS]
        )
        return cls(
            budget_from=used[-1] + HOUR if len(used) >= budget else None,
            is_streak=len(last) == settings.HERMES_AUTOMATIC_TURNS
            and all(source == TurnSource.COMPLETION for source in last),
            has_queued=wakes.filter(
                status__in=[TurnStatus.QUEUED, TurnStatus.RUNNING], started_at=None
            ).exists(),
        )
