"""Background work as a page shows it: questions, processes, and the news of their ends.

Rows come in, read by ``processes_app.selectors``; templates and frames take what comes out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from processes_app import domain, selectors
from processes_app.domain import ApprovalStatus, EventStatus
from processes_app.models import Approval, CompletionEvent, ProcessRecord

from . import words
from .groups import Group, Part
from .rendering import visible
from .taskframes import Tasks

RUNS: Final = "run_command"  # the tool whose calls are shown as cards
TAIL: Final = 2_000  # code points of output in a card, and in a frame
UNCONFINED: Final = "none"  # the level at which a child could write its exit code itself
RECENT: Final = 10  # of those that have ended, in the drawer
COMMAND: Final = 300  # code points of a command in one line
# Blank signs that Unicode counts as letters or marks.
_BLANK: Final = frozenset({0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0})
_SELECTORS: Final = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


class _Hidden(dict[int, int | str]):
    """What turns text round, has no width, or looks like a space and is none, by its number.

    Any of these would let a command look like another one.
    """

    def __missing__(self, code: int) -> int | str:
        kind = unicodedata.category(chr(code))
        is_hidden = (
            kind in {"Cf", "Zl", "Zp", "Co", "Cn"}
            or (kind == "Zs" and code != 0x20)
            or code == 0x0D
            or code in _BLANK
            or any(code in each for each in _SELECTORS)
        )
        self[code] = found = f"⟨U+{code:04X}⟩" if is_hidden else code
        return found


_HIDDEN: Final = _Hidden()


def exact(command: str) -> str:
    """A command with every sign that cannot be seen told by its number.

    >>> exact("ls \\u202e-la")
    'ls ⟨U+202E⟩-la'
    """
    return visible(command.translate(_HIDDEN))


# --- What templates take ------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """A command that a person is, or was, asked about."""

    id: int
    state: str  # open, once, always, denied, expired, withdrawn
    icon: str
    what: str
    command: str
    line: str
    directory: str
    until: datetime
    at: datetime | None
    may_always: bool

    @property
    def is_open(self) -> bool:
        """Whether it can be answered."""
        return self.state == "open"


@dataclass(frozen=True)
class Proc:
    """A process."""

    uid: str
    state: str
    icon: str
    level: str
    what: str
    command: str
    line: str
    since: datetime
    seconds: float | None
    ended_at: datetime | None
    tail: str
    last: str  # the last line of it
    after: str  # what comes of its end: answer, wake, none
    is_active: bool
    is_ending: bool
    has_terminal: bool


@dataclass(frozen=True)
class News:
    """The end of a command, or of a delegated agent's work."""

    id: int
    uid: str  # of its process; empty for an agent
    icon: str
    level: str
    what: str
    why: str  # it was not told, and why
    line: str
    seconds: float | None
    at: datetime
    output: str
    is_quiet: bool
    session: str = ""  # the key of the session in which it is shown


def ask_of(approval: Approval) -> Ask | None:
    """What a page shows of an approval; None while nobody is asked yet."""
    state = selectors.stands(approval)
    if state == "resuming":
        return None
    if state == ApprovalStatus.ALLOWED:
        state = approval.answer or "once"
    told = words.ASKS[state]
    return Ask(
        id=approval.pk,
        state=state,
        icon=told.icon,
        what=str(told.what),
        command=exact(approval.command),
        line=domain.one_line(exact(approval.command), COMMAND),
        directory=exact(approval.cwd),
        until=approval.until,
        at=approval.answered_at,
        may_always=not approval.is_steered,
    )


def proc_of(row: ProcessRecord, *, is_past: bool = False) -> Proc:
    """What a page shows of a process; ``is_past``: its session is not the current one."""
    told = _words(row)
    tail = domain.readable(row.tail)[-TAIL:]
    wakes = row.notify and not is_past
    after = "answer" if row.is_foreground else "wake" if wakes else "none"
    return Proc(
        uid=row.uid,
        state=str(row.status),
        icon=told.icon,
        level=_level(told.icon),
        what=str(told.what),
        command=exact(row.command),
        line=domain.one_line(exact(row.command), COMMAND),
        since=row.started_at or row.created_at,
        seconds=row.seconds,
        ended_at=row.ended_at,
        tail=tail,
        last=exact(next((line for line in reversed(tail.splitlines()) if line.strip()), "")[:200]),
        after=after,
        is_active=row.is_active,
        is_ending=row.kill_asked_at is not None,
        has_terminal=row.wants_pty,
    )


def news_of(event: CompletionEvent) -> News:
    """What a page shows of a completion."""
    process = event.process
    told = words.PROCESSES["agent_done"] if process is None else _words(process)
    is_quiet = event.status in {EventStatus.QUIET, EventStatus.DROPPED}
    why = words.QUIET.get(event.reason or event.quiet_because, "") if is_quiet else ""
    return News(
        id=event.pk,
        uid="" if process is None else process.uid,
        icon=told.icon,
        level=_level(told.icon),
        what=str(told.what),
        why=str(why),
        line=domain.one_line(exact(event.title), COMMAND),
        seconds=None if process is None else process.seconds,
        at=event.happened_at,
        output=domain.tail(domain.readable(event.body), TAIL),
        is_quiet=is_quiet,
        session=event.origin_session or event.delivered_to,
    )


def _words(row: ProcessRecord) -> words.Words:
    names = ("exit_code", "signal_number", "kill_by", "kill_asked_at", "kill_failed_at")
    told = words.process(row.status, row.reason, **{name: getattr(row, name) for name in names})
    if row.reason == domain.ProcessReason.EXITED and row.sandbox == UNCONFINED:
        return replace(told, what=words.REPORTED % {"what": told.what})
    return told


def _level(icon: str) -> str:
    return words.ICON_LEVELS.get(icon, "mute")


def is_shown(event: CompletionEvent) -> bool:
    """Whether a completion stands in its session as a row of its own."""
    if event.status == EventStatus.QUIET:
        return True
    closed = domain.DropReason.CLOSED_BY_USER
    return event.status == EventStatus.DROPPED and event.reason == closed


def quote_of(news: News) -> str:
    """A result as a person may hand it on in a message of theirs."""
    fence = "```"
    while fence in news.output:
        fence += "`"
    head = f"{news.what}: {news.line}"
    output = news.output.strip("\n")
    return f"{head}\n\n{fence}\n{output}\n{fence}\n" if output else f"{head}\n"


# --- The drawer ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawer:
    """The tasks of a chat, in the order in which a person needs them."""

    asks: Sequence[Ask] = ()
    running: Sequence[Proc] = ()
    recent: Sequence[Proc] = ()

    @property
    def open(self) -> int:
        """How many wait or run."""
        return len(self.asks) + len(self.running)


def drawer_of(chores: selectors.Chores, session_key: str = "") -> Drawer:
    """The drawer of a chat; ``session_key`` is that of its current session."""
    shown = [
        proc_of(row, is_past=bool(session_key) and row.origin_session != session_key)
        for row in chores.processes
    ]
    asks = [ask for each in chores.approvals if (ask := ask_of(each)) is not None and ask.is_open]
    ended = [each for each in shown if not each.is_active]
    ended.sort(key=lambda each: each.ended_at or each.since, reverse=True)
    return Drawer(asks, [each for each in shown if each.is_active], ended[:RECENT])


# --- In the transcript --------------------------------------------------------------------------


def attach(groups: Iterable[Group]) -> None:
    """Let calls that ran a command stand as cards, and reports as what they report.

    Two queries where a turn ran a command, one where a turn is a report, none else.
    """
    shown = [group for group in groups if group.turn is not None]
    callers = {group.turn.pk: group for group in shown if group.turn and _runs(group)}
    if callers:
        _add_cards(callers, selectors.of_turns(callers))
    told = {g.turn.pk: g.said for g in shown if g.turn and g.said and g.said.is_machine}
    if told:
        for event in selectors.told_in(told):
            said = told[event.turn_id_meant or 0]
            said.reports = [*said.reports, news_of(event)]


def _runs(group: Group) -> bool:
    return any(use.tool == RUNS for part in group.parts for use in part.tools)


def _add_cards(callers: Mapping[int, Group], chores: selectors.Chores) -> None:
    asks = {(row.turn_id_meant, row.call_id): ask_of(row) for row in chores.approvals}
    rows = {(row.turn_id_meant, row.call_id): row for row in chores.processes}
    for pk, group in callers.items():
        parts: list[Part] = []
        for part in group.parts:
            if part.kind != "tools":
                parts.append(part)
                continue
            for use in part.tools:
                ask, row = asks.get((pk, use.call_id)), rows.get((pk, use.call_id))
                if ask is not None:
                    parts.append(Part("ask", seq=part.seq, card=ask))
                if row is not None:
                    parts.append(Part("proc", card=proc_of(row, is_past=group.is_past)))
                if row is not None or (ask is not None and ask.state not in {"once", "always"}):
                    continue  # the card says all that the call came to
                if not parts or parts[-1].kind != "tools":
                    parts.append(Part("tools", seq=part.seq))
                parts[-1].tools.append(use)
        group.parts = parts


def place(
    groups: Sequence[Group], news: Sequence[News], *, from_the_beginning: bool, until: datetime
) -> list[News]:
    """Let news stand behind the turn after which it came; return what comes before them all.

    ``until``: when what follows these turns was said; later news stands there.
    """
    first: list[News] = []
    for each in news:
        if each.at >= until:
            continue
        before = [group for group in groups if (said := _began(group)) and said <= each.at]
        if before:
            before[-1].news.append(each)
        elif from_the_beginning:
            first.append(each)
    return first


def _began(group: Group) -> datetime | None:
    if group.said is not None:
        return group.said.at
    return group.answered_at or (group.turn.started_at if group.turn is not None else None)


# --- Frames -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What frames and fragments are made of."""

    tasks: Tasks
    drawer: Drawer
    procs: Mapping[str, Proc] = field(default_factory=dict)
    asks: Mapping[int, Ask] = field(default_factory=dict)
    news: Mapping[int, News] = field(default_factory=dict)  # what is shown of it


def look_at(
    chores: selectors.Chores, mark: str, sessions: Mapping[str, int], current: int | None
) -> Look:
    """The tasks of a chat as they are told; ``sessions``: ids by key, of those that it names."""
    key = next((key for key, pk in sessions.items() if pk == current), "")
    drawer = drawer_of(chores, key)
    asks = {row.pk: ask for row in chores.approvals if (ask := ask_of(row)) is not None}
    procs = {
        row.uid: proc_of(row, is_past=bool(key) and row.origin_session != key)
        for row in chores.processes
    }
    tasks = Tasks(
        mark=mark,
        processes={
            row.uid: _process_part(row, sessions.get(row.origin_session or ""))
            for row in chores.processes
        },
        approvals={row.pk: _approval_part(row) for row in chores.approvals if row.pk in asks},
        completions={
            event.pk: _completion_part(
                event, sessions.get(event.origin_session or event.delivered_to)
            )
            for event in chores.events
        },
        open=drawer.open,
    )
    news = {event.pk: news_of(event) for event in chores.events if is_shown(event)}
    return Look(tasks, drawer, procs, asks, news)


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")


def _process_part(row: ProcessRecord, session: int | None) -> dict[str, Any]:
    return {
        "id": row.uid,
        "session": session,
        "turn": row.turn_id_meant,
        "state": str(row.status),
        "reason": row.reason,
        "text": str(_words(row).what),
        "command": row.command,
        "directory": row.cwd,
        "background": not row.is_foreground,
        "terminal": row.wants_pty,
        "notify": row.notify,
        "started_at": _time(row.started_at),
        "ended_at": _time(row.ended_at),
        "seconds": row.seconds,
        "exit_code": row.exit_code,
        "signal": row.signal_number,
        "killed_by": row.kill_by,
        "ending": row.is_active and row.kill_asked_at is not None,
        "output_bytes": row.output_bytes,
        "tail": domain.readable(row.tail)[-TAIL:],
    }


def _approval_part(row: Approval) -> dict[str, Any]:
    state = selectors.stands(row)
    return {
        "id": row.pk,
        "turn": row.turn_id_meant,
        "state": state,
        "answer": row.answer,
        "answers": ["once", "deny"] if row.is_steered else ["once", "always", "deny"],
        "command": row.command,
        "directory": row.cwd,
        "until": _time(row.until),
        "answered_at": _time(row.answered_at),
    }


def _completion_part(event: CompletionEvent, session: int | None) -> dict[str, Any]:
    process = event.process
    told = words.PROCESSES["agent_done"] if process is None else _words(process)
    return {
        "id": event.pk,
        "kind": event.kind,
        "process": None if process is None else process.uid,
        "session": session,
        "turn": event.turn_id_meant,
        "state": str(event.status),
        "reason": event.reason or event.quiet_because,
        "held": event.held,
        "text": str(told.what),
        "happened_at": _time(event.happened_at),
    }
