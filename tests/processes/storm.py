"""Two people whose agents start processes all the time, while they begin afresh and delete."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from processes_app.domain import KillBy
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app.domain import EndReason
from sessions_app.models import Chat, Message, Session
from tests import factories

from . import facts

BOUNDARIES = {EndReason.SESSION_RESET, EndReason.DELETED}
ACTS = (*["say"] * 4, *["new"] * 4, *["stop"] * 2, "delete")
CODES = (0, 0, 0, 1, 3, 77)


@dataclass
class Planned:
    """What a process is told to write and to end with."""

    uid: str
    word: str
    code: int


@dataclass
class Lane:
    """One person: their current chat, and all that was started for them."""

    name: str
    chance: random.Random
    seconds: float  # a process runs for at most so long
    owner: object = None
    state: facts.Background | None = None
    planned: list[Planned] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.owner = facts.allowed_person(self.name)
        self._open()

    def _open(self) -> None:
        self.state = facts.Background(factories.chat(self.owner))
        factories.say(self.state.chat, "hello")

    def start(self) -> None:
        """A row as the intake writes it; a supervisor takes it."""
        number = len(self.planned)
        word, code = f"{self.name}-word-{number}.", self.chance.choice(CODES)
        seconds = self.chance.uniform(0, self.seconds)
        process = facts.add_process(
            self.state,
            command=f"sleep {seconds:.2f}; echo {word}; exit {code}",
            status="starting",
            host="",
            boot_id="",
            pid=None,
            pid_start="",
            started_at=None,
            limit_seconds=600,
        )
        self.planned.append(Planned(process.uid, word, code))

    def act(self) -> None:
        """Something that a person does: mostly talking."""
        what = self.chance.choice(ACTS)
        self.done[what] += 1
        chat = self.state.chat
        if what == "say":
            factories.say(chat, f"say {self.done[what]} words", client_id=f"s{self.done[what]}")
        elif what == "new":
            facts.reset(self.state)
            factories.say(chat, "afresh", client_id=f"n{self.done[what]}")
        elif what == "stop":
            chats.stop_turn(chat_id=chat.pk, user_id=chat.owner_id)
        else:
            chats.delete_chat(chat_id=chat.pk, user_id=chat.owner_id)
            self._open()


@dataclass
class Verdicts:
    """What became of every process, counted; ``faults`` names what must not be."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def told() -> dict[str, list[str]]:
    """For every process the keys of the sessions in whose reports it is named."""
    found: dict[str, list[str]] = {}
    uids = set(ProcessRecord.objects.values_list("uid", flat=True))
    rows = Message.objects.filter(kind="completion").values_list("session__key", "text")
    for key, text in rows:
        for uid in uids:
            if f" {uid}:" in text:
                found.setdefault(uid, []).append(key)
    return found


def check(lanes: list[Lane], output_of) -> Verdicts:
    """Hold every row against what it was told to do and where it was asked for."""
    result, reports = Verdicts(), told()
    sessions = {each.key: each for each in Session.objects.select_related("chat")}
    for lane in lanes:
        chats_of = set(Chat.objects.filter(owner=lane.owner).values_list("pk", flat=True))
        for planned in lane.planned:
            _check_one(result, planned, reports.get(planned.uid, []), sessions, chats_of, output_of)
    return result


def _check_one(result, planned, reports, sessions, chats_of, output_of) -> None:
    process = ProcessRecord.objects.get(uid=planned.uid)
    events = list(CompletionEvent.objects.filter(process=process))
    uid, owner = process.uid, sessions[process.origin_session]
    is_closed = owner.end_reason in BOUNDARIES or owner.chat.deleted_at is not None
    if len(events) != 1 or events[0].settled_at is None:
        result.counts["lost"] += 1
        result.faults.append(f"{uid} {process.status} has {events}")
        return
    event = events[0]
    result.counts[f"{event.status} {event.reason}".strip()] += 1
    if event.status == "delivered":
        if len(reports) != 1:
            result.counts["doubled" if reports else "lost"] += 1
            result.faults.append(f"{uid} delivered, told in {reports}")
        elif reports != [process.origin_session] or owner.chat_id not in chats_of:
            result.counts["wrong session"] += 1
            result.faults.append(f"{uid} of {process.origin_session} told in {reports}")
    elif (event.status, event.reason) == ("dropped", "closed_by_user"):
        if reports or not is_closed:
            result.counts["wrong drop"] += 1
            result.faults.append(f"{uid} dropped, told in {reports}, closed: {is_closed}")
    else:
        result.faults.append(f"{uid} is {event.status} {event.reason}{event.quiet_because}")
    if process.kill_by == KillBy.BOUNDARY and process.reason != "exited":
        result.counts["ended with their chat"] += 1
    elif (process.status, process.reason, process.exit_code) != ("ended", "exited", planned.code):
        result.counts["wrong exit"] += 1
        result.faults.append(f"{uid} {process.status} {process.reason} {process.exit_code}")
    elif {process.tail, event.body, output_of(uid)} != {f"{planned.word}\n"}:
        result.counts["wrong output"] += 1
        result.faults.append(f"{uid} wrote {process.tail!r}")


def drive(lanes: list[Lane], each: int, kills, *, pause: float, share: float) -> None:
    """Start so many processes for each person, act after a share of them, kill at random places."""
    chance = random.Random(lanes[0].chance.random())
    at = sorted(chance.sample(range(1, each), len(kills)))
    ahead = dict(zip(at, kills, strict=True))
    for number in range(each):
        for lane in lanes:
            lane.start()
            if chance.random() < share:
                lane.act()
        if number in ahead:
            ahead[number]()
        time.sleep(pause)
