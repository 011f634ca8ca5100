"""What is right for chats, sessions, turns and messages: enums and pure functions of values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import regex

from hermes.lib.chat import ToolSpec


class TurnStatus(StrEnum):
    """Where a turn stands; the chart is in ``docs/state-machines.md``."""

    QUEUED = "queued"  # not begun, or handed back, or resumed
    RUNNING = "running"  # a worker holds its lease
    WAITING = "waiting"  # for an approval, a process or the provider; no worker is held
    COMPLETED = "completed"  # answered
    FAILED = "failed"  # the model could not answer, with the reason
    CANCELLED = "cancelled"  # stopped by a person, or its session was ended
    INTERRUPTED = "interrupted"  # its worker is gone; the text so far is kept


TURN_MOVES: Final[Mapping[TurnStatus, frozenset[TurnStatus]]] = {
    TurnStatus.QUEUED: frozenset({TurnStatus.RUNNING, TurnStatus.CANCELLED}),
    TurnStatus.RUNNING: frozenset(
        {
            TurnStatus.COMPLETED,
            TurnStatus.FAILED,
            TurnStatus.CANCELLED,
            TurnStatus.INTERRUPTED,
            TurnStatus.WAITING,
            TurnStatus.QUEUED,
        }
    ),
    TurnStatus.WAITING: frozenset({TurnStatus.QUEUED, TurnStatus.CANCELLED}),
}
OPEN_TURN: Final = frozenset({TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING})
BUSY_TURN: Final = frozenset({TurnStatus.RUNNING, TurnStatus.WAITING})


class TurnSource(StrEnum):
    """What began a turn."""

    PERSON = "person"  # carries an input that becomes a user message
    REGENERATE = "regenerate"  # answers the last message again; no input of its own
    CONTINUE = "continue"  # goes on after a partial answer
    COMPLETION = "completion"  # background processes report


RANK_RESUMED: Final = 0
RANK_PROMOTED: Final = 1
RANK_PERSON: Final = 2
RANK_COMPLETION: Final = 3


class MessageRole(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class MessageKind(StrEnum):
    """What a message is, beside its role."""

    TEXT = "text"  # said by a person or by the model
    NUDGE = "nudge"  # machine-written: asks the model to go on
    RESULT = "result"  # what a tool returned
    COMPLETION = "completion"  # machine-written: what background processes report


class EndClass(StrEnum):
    """What an end means for news of that session (completions)."""

    USER = "user"  # a boundary that a person drew
    SYSTEM = "system"  # the chat stays routable
    CONTINUATION = "continuation"  # goes on in another session


class EndReason(StrEnum):
    """Why a session ended; some are known from imports only."""

    SESSION_RESET = "session_reset"  # /new
    DELETED = "deleted"
    NEW_SESSION = "new_session"
    SESSION_SWITCH = "session_switch"
    USER_EXIT = "user_exit"
    IDLE_TIMEOUT = "idle_timeout"
    DAILY_RESET = "daily_reset"
    SHUTDOWN = "shutdown"
    EVICTED = "evicted"
    SUSPENDED = "suspended"
    COMPRESSION = "compression"


END_CLASS: Final[Mapping[EndReason, EndClass]] = {
    EndReason.SESSION_RESET: EndClass.USER,
    EndReason.DELETED: EndClass.USER,
    EndReason.NEW_SESSION: EndClass.USER,
    EndReason.SESSION_SWITCH: EndClass.USER,
    EndReason.USER_EXIT: EndClass.USER,
    EndReason.IDLE_TIMEOUT: EndClass.SYSTEM,
    EndReason.DAILY_RESET: EndClass.SYSTEM,
    EndReason.SHUTDOWN: EndClass.SYSTEM,
    EndReason.EVICTED: EndClass.SYSTEM,
    EndReason.SUSPENDED: EndClass.SYSTEM,
    EndReason.COMPRESSION: EndClass.CONTINUATION,
}


class BegunBy(StrEnum):
    """Who began a session."""

    USER = "user"
    SYSTEM = "system"


class RewindReason(StrEnum):
    """Why rows were taken out of the context."""

    EDIT = "edit"
    REGENERATE = "regenerate"
    UNDO = "undo"
    VERSION = "version"  # another version was brought back in their place


class EndpointRole(StrEnum):
    """What a model endpoint is used for."""

    CHAT = "chat"
    SUMMARY = "summary"


class EndpointKind(StrEnum):
    """Which adapter speaks to an endpoint."""

    OPENAI = "openai"
    OFFLINE = "offline"


class Code(StrEnum):
    """Why something was refused; each has words in ``WORDS`` and an entry in ``docs/frames.md``."""

    NOT_FOUND = "not_found"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    TOO_LONG = "too_long"
    ID_REUSED = "id_reused"
    QUEUE_FULL = "queue_full"
    TOO_MANY = "too_many"
    NOT_QUEUED = "not_queued"
    NOTHING_RUNS = "nothing_runs"
    NOTHING_TO_REDO = "nothing_to_redo"
    BUSY = "busy"
    ENDED = "ended"


class Refused(Exception):
    """The request is refused; the message is for the person who asked."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# --- Ports: what other applications hang in through settings -----------------------------------


@dataclass(frozen=True)
class Pass:
    """A gate lets the turn start."""


@dataclass(frozen=True)
class Drop:
    """A gate ends the turn before it starts."""

    reason: str


Gate: TypeAlias = Callable[["TurnFacts"], Pass | Drop]


@dataclass(frozen=True)
class Done:
    """A tool has its result."""

    text: str
    ok: bool = True


@dataclass(frozen=True)
class Wait:
    """A tool waits for ``key``; the turn lets go of its worker until then, at most ``until``."""

    key: str
    until: datetime | None = None


@dataclass(frozen=True)
class TurnFacts:
    """What gates and tools may know of a turn."""

    turn_id: int
    run: int
    chat_id: int
    chat_key: str
    session_id: int
    session_key: str
    owner_id: int
    source: TurnSource
    has_started: bool


@dataclass(frozen=True)
class ToolCallFacts:
    """One call of a tool. The same ``call_id`` comes again after a wait or a crash."""

    turn: TurnFacts
    call_id: str
    arguments: Mapping[str, Any]


class Tool(Protocol):
    """Something that the agent can do; named in ``HERMES_TOOLS``, made once a process."""

    spec: ToolSpec

    def __call__(self, call: ToolCallFacts) -> Done | Wait:
        """Do it, or say what to wait for. An exception becomes a failed result."""


# --- Text ---------------------------------------------------------------------------------------

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
TITLE_LENGTH: Final = 80  # code points; the column holds them


def storable(text: str) -> str:
    """The text with what no database can hold (NUL, lone surrogates) shown as U+FFFD.

    >>> storable("ab\\x00cd") == "ab\\ufffdcd"
    True
    """
    return _UNSTORABLE.sub("\ufffd", text)


def storable_json(value: Any) -> Any:
    """The same for every text inside a JSON value.

    >>> storable_json({"a": ["b\\x00"]}) == {"a": ["b\\ufffd"]}
    True
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name)): storable_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable_json(item) for item in value]
    return value


def text_hash(text: str) -> str:
    """What tells whether a re-sent client id carries the same text.

    >>> text_hash("a") == text_hash("a") != text_hash("b")
    True
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def title_from(text: str, limit: int = TITLE_LENGTH) -> str:
    """A title from the first words of a text, cut between grapheme clusters; may be empty.

    >>> title_from("  How do\\n I  start? ")
    'How do I start?'
    >>> title_from("word " * 40).endswith("…"), len(title_from("word " * 40)) <= TITLE_LENGTH
    (True, True)
    >>> title_from("👨‍👩‍👧‍👦" * 40).rstrip("…").endswith("👦")
    True
    >>> title_from("a" + "\\u0301" * 400)
    ''
    """
    printable = "".join(
        sign for sign in storable(text) if sign in "\n\t\r\u200c\u200d" or sign.isprintable()
    )
    line = " ".join(printable.split()).lstrip("#>*-` ")
    if len(line) <= limit:
        return line
    cut = ""
    for cluster in regex.findall(r"\X", line[: limit * 8]):
        if len(cut) + len(cluster) > limit - 1:
            break
        cut += cluster
    if " " in cut[limit // 2 :]:
        cut = cut[: cut.rindex(" ")]
    return f"{cut.rstrip()}…" if cut.strip() else ""


# --- What fits into a request ---------------------------------------------------------------------

RESERVE_SHARE: Final = 16  # window ÷ 16 is kept for the answer
MESSAGE_OVERHEAD: Final = 4  # tokens of framing a message


@dataclass(frozen=True)
class Row:
    """What choosing a context needs to know of a message."""

    seq: int
    role: str
    tokens: int
    has_calls: bool = False


def budget(window: int, fixed_tokens: int) -> int:
    """Tokens left for messages: the window, less the answer's reserve and the fixed parts.

    >>> budget(16_000, 1_000)
    14000
    """
    return max(0, window - window // RESERVE_SHARE - fixed_tokens)


def groups_newest_first(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Split rows (newest first) into units that stand or fall together, oldest row first in each.

    A unit is a user message with all that follows it up to the next one.

    >>> rows = [Row(seq, ("assistant", "user")[seq % 2], 1) for seq in (4, 3, 2, 1)]
    >>> [[row.seq for row in group] for group in groups_newest_first(rows)]
    [[3, 4], [1, 2]]
    """
    group: list[Row] = []
    for row in rows:
        group.append(row)
        if row.role == MessageRole.USER:
            yield group[::-1]
            group = []
    if group:
        yield group[::-1]


def fit(rows: Iterable[Row], room: int) -> list[int]:
    """The seqs of the newest rows that fit into ``room`` tokens, in order.

    Whole exchanges only, newest first. The last user message is always in; of its own exchange the
    newest whole tool rounds that fit are. ``rows`` comes newest first and is read no further than
    needed.

    >>> rows = [Row(seq, ("assistant", "user")[seq % 2], 5) for seq in (4, 3, 2, 1)]
    >>> fit(rows, 20), fit(rows, 19), fit(rows, 1)
    ([1, 2, 3, 4], [3, 4], [3])
    """
    chosen: list[list[int]] = []
    left = room
    for number, group in enumerate(groups_newest_first(rows)):
        size = sum(row.tokens for row in group)
        if size <= left:
            chosen.append([row.seq for row in group])
            left -= size
            continue
        if number == 0:
            chosen.append(_fit_newest(group, left))
        break
    return [seq for seqs in reversed(chosen) for seq in seqs]


def _fit_newest(group: Sequence[Row], room: int) -> list[int]:
    """Of an exchange that is too big: its user message, then the newest rounds that fit.

    >>> call, result = Row(2, "assistant", 3, has_calls=True), Row(3, "tool", 9)
    >>> _fit_newest([Row(1, "user", 2), call, result, Row(4, "assistant", 3)], 6)
    [1, 4]
    """
    head = [group[0]] if group[0].role == MessageRole.USER else []
    rounds: list[list[Row]] = []
    for row in group[len(head) :]:
        if row.role == MessageRole.TOOL and rounds:
            rounds[-1].append(row)
        else:
            rounds.append([row])
    left = room - sum(row.tokens for row in head)
    kept: list[list[Row]] = []
    for piece in reversed(rounds):
        size = sum(row.tokens for row in piece)
        if size > left:
            break
        kept.append(piece)
        left -= size
    return [row.seq for row in head] + [row.seq for piece in reversed(kept) for row in piece]


def runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Rising numbers as closed ranges without gaps.

    >>> runs([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


# --- Arguments of tool calls --------------------------------------------------------------------

_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def arguments_problem(arguments: Any, schema: Mapping[str, Any]) -> str:
    """What is wrong with a call's arguments, or nothing; checks names, presence and types.

    >>> schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    >>> arguments_problem({"n": 1}, schema)
    ''
    >>> arguments_problem([1], schema)
    'the arguments are not a JSON object'
    >>> arguments_problem({}, schema), arguments_problem({"n": "1"}, schema)
    ("'n' is missing", "'n' is not of type integer")
    >>> arguments_problem({"n": True}, schema)
    "'n' is not of type integer"
    """
    if not isinstance(arguments, dict):
        return "the arguments are not a JSON object"
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in arguments:
            return f"{name!r} is missing"
    for name, value in arguments.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                return f"{name!r} is not known"
            continue
        wanted = properties[name].get("type", "")
        types = _JSON_TYPES.get(wanted, (object,))
        is_bool_as_number = isinstance(value, bool) and wanted in {"integer", "number"}
        if is_bool_as_number or not isinstance(value, types):
            return f"{name!r} is not of type {wanted}"
    return ""


# --- What becomes of a turn whose worker is gone --------------------------------------------------


def after_loss(*, put_back: int, has_output: bool) -> TurnStatus:
    """Back to ``queued`` once where nothing was saved and no tool ran; else ``interrupted``.

    >>> after_loss(put_back=0, has_output=False), after_loss(put_back=1, has_output=False)
    (<TurnStatus.QUEUED: 'queued'>, <TurnStatus.INTERRUPTED: 'interrupted'>)
    """
    return TurnStatus.QUEUED if put_back == 0 and not has_output else TurnStatus.INTERRUPTED
