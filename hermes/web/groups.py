"""Rows of a transcript as what a page shows: groups of what was said and what was answered.

Pure: rows come in, read by ``selectors``; templates take what comes out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sessions_app.domain import MessageKind, MessageRole, TurnSource, TurnStatus
from sessions_app.models import Message, Turn

from . import words
from .rendering import Block, all_blocks

SHOWN: Final = 4_000  # code points of a person's text, or of a tool's, that a page shows at first
RESUMABLE: Final = frozenset({TurnStatus.CANCELLED, TurnStatus.INTERRUPTED, TurnStatus.FAILED})
_ICONS: Final = {"read": "file", "file": "file", "query": "database", "sql": "database"}


@dataclass(frozen=True)
class Alternative:
    """What was taken out of the context behind a row, and can come back there."""

    rewind: int
    first_seq: int
    reason: str


@dataclass(frozen=True)
class Versions:
    """Which version of what follows a row is shown, and the ones beside it."""

    number: int
    total: int
    earlier: int | None  # rewinds
    later: int | None


def versions_at(first_seq: int, alternatives: Sequence[Alternative]) -> Versions | None:
    """The versions of what begins with ``first_seq``, or None if there is only one."""
    if not alternatives:
        return None
    older = [each for each in alternatives if each.first_seq < first_seq]
    newer = [each for each in alternatives if each.first_seq >= first_seq]
    return Versions(
        number=len(older) + 1,
        total=len(alternatives) + 1,
        earlier=max(older, key=lambda each: each.first_seq).rewind if older else None,
        later=min(newer, key=lambda each: each.first_seq).rewind if newer else None,
    )


@dataclass
class ToolUse:
    """One call of a tool and what came of it."""

    name: str
    arguments: str
    summary: str  # the arguments in one line
    icon: str
    result: str = ""
    result_size: int = 0
    seq: int = 0  # of the result
    state: str = "open"  # open, done, failed
    seconds: float | None = None
    tool: str = ""  # its name as the model knows it
    call_id: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether there is more of the result than ``result``."""
        return self.result_size > len(self.result)


@dataclass
class Part:
    """A piece of an answer: ``think``, ``tools``, ``prose``, or a card: ``ask``, ``proc``."""

    kind: str
    text: str = ""
    seq: int = 0
    blocks: list[Block] = field(default_factory=list)
    tools: list[ToolUse] = field(default_factory=list)
    card: Any = None  # of tasks.Ask or tasks.Proc


@dataclass
class Said:
    """What a person, or the machine in their place, said."""

    seq: int
    text: str
    size: int
    at: datetime
    is_machine: bool = False
    versions: Versions | None = None
    reports: Sequence[Any] = ()  # tasks.News, where the machine tells of what has ended

    @property
    def is_cut(self) -> bool:
        """Whether there is more of the text than ``text``."""
        return self.size > len(self.text)


@dataclass
class Outcome:
    """How a turn stands where it is not simply answered."""

    kind: str  # cutoff, note, wait, live
    level: str = ""
    icon: str = ""
    what: str = ""
    then: str = ""
    operator: str = ""
    detail: str = ""
    until: datetime | None = None
    can_continue: bool = False
    can_retry: bool = False
    retry_word: str = "regenerate"  # or try
    waits_for: str = ""  # a person's answer (approval), or an end (process)


@dataclass(frozen=True)
class Fold:
    """A summary that stands, or stood, behind a turn."""

    summary: int
    messages: int  # that it newly stood for
    before: int  # tokens of the context
    after: int
    undone_at: datetime | None
    is_current: bool


@dataclass
class Group:
    """One turn as the page shows it, or a stretch of a copied transcript without turns."""

    element: str
    session_id: int
    turn: Turn | None = None
    said: Said | None = None
    parts: list[Part] = field(default_factory=list)
    first_seq: int = 0
    last_seq: int = 0
    answered_at: datetime | None = None
    outcome: Outcome | None = None
    versions: Versions | None = None
    is_past: bool = False
    is_superseded: bool = False  # a later answer stands in the place of this one
    folds: list[Fold] = field(default_factory=list)
    news: list[Any] = field(default_factory=list)  # tasks.News shown behind it without a turn

    @property
    def is_live(self) -> bool:
        """Whether a worker is writing it."""
        return self.turn is not None and self.turn.status == TurnStatus.RUNNING

    @property
    def status(self) -> str:
        """The state of its turn."""
        return self.turn.status if self.turn is not None else TurnStatus.COMPLETED

    @property
    def has_answer(self) -> bool:
        """Whether anything stands below what was said."""
        return bool(self.parts) or self.outcome is not None or self.is_live

    @property
    def base(self) -> int:
        """Code points of assistant text that are committed."""
        return self.turn.length if self.turn is not None else 0

    @property
    def seconds(self) -> float | None:
        """How long the answer took."""
        turn = self.turn
        if turn is None or turn.started_at is None or turn.finished_at is None:
            return None
        return max(0.0, (turn.finished_at - turn.started_at).total_seconds())

    @property
    def answer_seq(self) -> int | None:
        """The last row of the answer, if there is one."""
        said = self.said.seq if self.said is not None else 0
        return self.last_seq if self.parts and self.last_seq > said else None


def group_key(message: Message, before: object) -> object:
    """What rows of one group have in common; ``before`` is that of the row before."""
    if message.turn_id is not None:
        return message.turn_id
    begins = message.role == MessageRole.USER or not isinstance(before, str)
    return f"copy-{message.session_id}-{message.seq}" if begins else before


def split(rows: Iterable[Message]) -> list[list[Message]]:
    """Rows, the oldest first, as lists of one group each."""
    found: list[list[Message]] = []
    key: object = None
    for row in rows:
        new = group_key(row, key)
        if new != key or not found:
            found.append([])
        found[-1].append(row)
        key = new
    return found


def _one_line(arguments: str) -> str:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = arguments
    if isinstance(value, Mapping):
        value = ", ".join(
            item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            for item in value.values()
        )
    return " ".join(str(value).split())[:200]


def _tool(call: Mapping[str, Any]) -> ToolUse:
    name = str(call["name"])
    icon = next((icon for part, icon in _ICONS.items() if part in name), "terminal")
    if "time" in name:
        icon = "clock"
    arguments = str(call["arguments"])
    return ToolUse(
        name=name.replace("_", " ").capitalize()[:80],
        arguments="" if arguments.strip() in {"", "{}"} else arguments[:SHOWN],
        summary=_one_line(arguments),
        icon=icon,
        tool=name,
        call_id=str(call["id"]),
    )


def build(
    rows: Sequence[Message], *, turn: Turn | None, session_id: int, is_past: bool = False
) -> Group:
    """One group of the rows of a turn; ``text`` of a row may be cut, ``size`` is its length."""
    first = rows[0] if rows else None
    element = f"turn-{turn.pk}" if turn is not None else f"copy-{session_id}-{rows[0].seq}"
    group = Group(element=element, session_id=session_id, turn=turn, is_past=is_past)
    group.first_seq = first.seq if first is not None else (turn.first_seq or 0) if turn else 0
    group.last_seq = rows[-1].seq if rows else group.first_seq
    waiting: dict[str, ToolUse] = {}
    asked_at: datetime | None = None
    for row in rows:
        size: int = getattr(row, "size", len(row.text))
        if row.role == MessageRole.USER:
            if row.kind != MessageKind.NUDGE:
                is_machine = row.kind == MessageKind.COMPLETION
                group.said = Said(row.seq, row.text, size, row.created_at, is_machine)
            continue
        if row.role == MessageRole.TOOL:
            use = waiting.pop(str(row.parts.get("call_id", "")), None)
            if use is not None:
                use.result, use.result_size, use.seq = row.text, size, row.seq
                use.state = "done" if row.parts.get("ok", True) else "failed"
                if asked_at is not None:
                    use.seconds = max(0.0, (row.created_at - asked_at).total_seconds())
                asked_at = row.created_at
            continue
        group.answered_at = asked_at = row.created_at
        if row.parts.get("reasoning"):
            group.parts.append(Part("think", text=str(row.parts["reasoning"])))
        if row.text.strip():
            group.parts.append(Part("prose", row.text, row.seq, all_blocks(row.text)))
        calls = row.parts.get("calls", ())
        if calls:
            if not group.parts or group.parts[-1].kind != "tools":
                group.parts.append(Part("tools", seq=row.seq))
            for call in calls:
                use = _tool(call)
                waiting[str(call["id"])] = use
                group.parts[-1].tools.append(use)
    if turn is not None:
        group.outcome = outcome_of(turn, has_text=any(p.kind == "prose" for p in group.parts))
    return group


def outcome_of(turn: Turn, *, has_text: bool) -> Outcome | None:
    """How a turn stands, or None where its answer says it all."""
    status = turn.status
    if status == TurnStatus.RUNNING:
        return None
    if status == TurnStatus.QUEUED:
        return Outcome("live", icon="hour")
    said = words.end_words(turn.error_code)
    told: dict[str, Any] = {
        "icon": said.icon,
        "what": str(said.what),
        "then": str(said.then),
        "operator": str(said.operator),
        "detail": turn.error_text,
    }
    if status == TurnStatus.WAITING:
        if turn.wait_key == "provider":
            return Outcome("note", level="warn", until=turn.wait_until, **told)
        kind = turn.wait_key.partition(":")[0]
        return Outcome("wait", icon="hour", until=turn.wait_until, waits_for=kind)
    if status == TurnStatus.COMPLETED:
        if not turn.error_code:
            return None
        return Outcome("cutoff", can_continue=True, **told)
    if status == TurnStatus.FAILED:
        told |= {"until": turn.retry_at, "retry_word": "try"}  # the provider wants no try before
        return Outcome("note", level="bad", can_continue=has_text, can_retry=True, **told)
    if not has_text:
        told["then"] = ""
    return Outcome("cutoff", can_continue=has_text, can_retry=True, **told)


def place_versions(
    groups: Sequence[Group], before: int, found: Mapping[int, Sequence[Alternative]]
) -> None:
    """Give groups their versions; ``before`` is the live row before the first of them, or 0."""
    last = before
    for group in groups:
        said = group.said
        if said is not None:
            said.versions = versions_at(said.seq, found.get(last, ()))
            last = said.seq
        answer_first = next((p.seq for p in group.parts if p.seq), None)
        has_rows = answer_first is not None
        if has_rows or group.is_live or group.outcome is not None:
            group.versions = versions_at(answer_first or group.first_seq, found.get(last, ()))
        if has_rows:
            last = group.last_seq


def mark_superseded(groups: Sequence[Group]) -> None:
    """An answer that was asked for again hides how the first one ended."""
    for group, after in itertools.pairwise(groups):
        turn = after.turn
        if turn is not None and turn.source == TurnSource.REGENERATE:
            group.is_superseded = True
            if not group.parts:
                group.outcome = None
