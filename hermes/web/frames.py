"""What clients say (``docs/frames.md``), and how frames are read and written.

``parse`` turns whatever came into one of the dataclasses below; it never raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from processes_app.domain import Answer
from sessions_app.domain import storable

from .shapes import Error

ID_LENGTH: Final = 64
REF_LENGTH: Final = 128
LARGEST: Final = 2**63 - 1
DEPTH: Final = 20

# --- From the client ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """What every frame of a client may carry."""

    ref: str | None = None


@dataclass(frozen=True)
class Submit(Command):
    """Send a message, or a command that begins with ``/``."""

    id: str = ""
    text: str = ""


@dataclass(frozen=True)
class Stop(Command):
    """Stop the running or waiting turn."""


@dataclass(frozen=True)
class Continue(Command):
    """Go on after the last, partial answer."""

    id: str = ""


@dataclass(frozen=True)
class Regenerate(Command):
    """Answer the last message, or that of a turn, again."""

    id: str = ""
    turn: int | None = None


@dataclass(frozen=True)
class Edit(Command):
    """Say a message differently and answer that."""

    id: str = ""
    turn: int = 0
    text: str = ""


@dataclass(frozen=True)
class Rewind(Command):
    """Take everything from a turn's message on, or the last exchange, out of the context."""

    turn: int | None = None


@dataclass(frozen=True)
class BringBack(Command):
    """Bring a version, or what was undone, back."""

    rewind: int = 0


@dataclass(frozen=True)
class EditQueued(Command):
    """Change a waiting message."""

    turn: int = 0
    text: str = ""


@dataclass(frozen=True)
class DeleteQueued(Command):
    """Take a waiting message back."""

    turn: int = 0


@dataclass(frozen=True)
class Promote(Command):
    """Send a waiting message now."""

    turn: int = 0


@dataclass(frozen=True)
class NewSession(Command):
    """End the session and begin a fresh one."""

    id: str = ""


@dataclass(frozen=True)
class Branch(Command):
    """Copy the chat up to a message."""

    session: int = 0
    seq: int = 0
    id: str = ""


@dataclass(frozen=True)
class Compact(Command):
    """Summarise; or take the summary that was previewed, perhaps with other words."""

    focus: str = ""
    summary: str | None = None
    preview: int | None = None


@dataclass(frozen=True)
class Preview(Command):
    """Write a summary to look at."""

    focus: str = ""


@dataclass(frozen=True)
class CancelCompaction(Command):
    """Cancel the summary that is being written, or that waits for an answer."""


@dataclass(frozen=True)
class UndoSummary(Command):
    """Let the model read again what a summary stands for."""

    summary: int = 0


@dataclass(frozen=True)
class AnswerAsk(Command):
    """Say whether a command may run: ``once``, ``always`` or ``deny``."""

    approval: int = 0
    answer: str = ""


@dataclass(frozen=True)
class Kill(Command):
    """End a process and what it started."""

    process: str = ""


@dataclass(frozen=True)
class TypeInto(Command):
    """Type into the terminal of a process, once an id."""

    process: str = ""
    id: str = ""
    text: str = ""


@dataclass(frozen=True)
class Read(Command):
    """The person has seen this far."""

    session: int = 0
    seq: int = 0


@dataclass(frozen=True)
class Ack(Command):
    """Every frame up to ``n`` has been taken."""

    n: int = 0


@dataclass(frozen=True)
class Ping(Command):
    """Ask for a sign of life."""

    nonce: str = ""


@dataclass(frozen=True)
class Bad(Command):
    """What cannot be read, or is not meant for this socket."""

    code: str = "malformed"
    message: str = ""


Parsed: TypeAlias = (
    Submit
    | Stop
    | Continue
    | Regenerate
    | Edit
    | Rewind
    | BringBack
    | EditQueued
    | DeleteQueued
    | Promote
    | NewSession
    | Branch
    | Compact
    | Preview
    | CancelCompaction
    | UndoSummary
    | AnswerAsk
    | Kill
    | TypeInto
    | Read
    | Ack
    | Ping
    | Bad
)

COMMANDS: Final[Mapping[str, type[Parsed]]] = {
    "turn.submit": Submit,
    "turn.stop": Stop,
    "turn.continue": Continue,
    "turn.regenerate": Regenerate,
    "turn.edit": Edit,
    "turn.rewind": Rewind,
    "rewind.undo": BringBack,
    "queue.edit": EditQueued,
    "queue.delete": DeleteQueued,
    "queue.promote": Promote,
    "session.new": NewSession,
    "chat.branch": Branch,
    "compaction.request": Compact,
    "compaction.preview": Preview,
    "compaction.cancel": CancelCompaction,
    "summary.undo": UndoSummary,
    "approval.answer": AnswerAsk,
    "process.kill": Kill,
    "process.input": TypeInto,
    "read": Read,
    "ack": Ack,
    "ping": Ping,
}

Check: TypeAlias = Callable[[Any], Any]


class _Wrong(ValueError):
    """A field is missing or is not what it should be."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("has to be a text")
    return storable(value)


def _id(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= ID_LENGTH or storable(value) != value:
        raise _Wrong(f"has to be a text of 1 to {ID_LENGTH} characters")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise _Wrong("has to be a whole number from 0")
    return value


def _nonce(value: Any) -> str:
    if not isinstance(value, str) or len(value) > REF_LENGTH:
        raise _Wrong(f"has to be a text of at most {REF_LENGTH} characters")
    return storable(value)


def _answer(value: Any) -> str:
    if not isinstance(value, str) or value not in set(Answer):
        raise _Wrong(f"has to be one of {', '.join(Answer)}")
    return str(value)


CHECKS: Final[Mapping[str, Check]] = {
    "id": _id,
    "text": _text,
    "turn": _number,
    "rewind": _number,
    "session": _number,
    "seq": _number,
    "n": _number,
    "nonce": _nonce,
    "focus": _text,
    "summary": _text,
    "preview": _number,
    "approval": _number,
    "answer": _answer,
    "process": _id,
}
_OPTIONAL: Final[Mapping[type[Parsed], frozenset[str]]] = {
    Regenerate: frozenset({"turn"}),
    Rewind: frozenset({"turn"}),
    Compact: frozenset({"focus", "summary", "preview"}),
    Preview: frozenset({"focus"}),
}
_NUMBERS: Final[Mapping[type[Parsed], frozenset[str]]] = {UndoSummary: frozenset({"summary"})}


def _no_constant(name: str) -> float:
    raise ValueError(name)


def depth_is_over(value: Any, limit: int = DEPTH) -> bool:
    """Whether lists and objects are nested deeper than ``limit``.

    >>> depth_is_over([[[]]], 3), depth_is_over({"a": [[[]]]}, 3)
    (False, True)
    """
    level = [value]
    for _ in range(limit):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not any(isinstance(each, (dict, list)) for each in level):
            return False
        level = inner
    return any(isinstance(each, (dict, list)) for each in level)


def parse(content: str | None, *, chat: str = "", session: int | None = None) -> Parsed:
    """The command that a text frame holds, or :class:`Bad` with what is wrong about it.

    ``chat`` and ``session`` are those of the socket; a frame that names others is refused.

    >>> parse('{"type": "turn.submit", "id": "a", "text": "hi", "ref": "r"}')
    Submit(ref='r', id='a', text='hi')
    >>> parse('{"type": "turn.submit", "id": 1, "text": "hi"}').message
    'turn.submit: id has to be a text of 1 to 64 characters.'
    """
    if content is None:
        return Bad(message="Frames are JSON as text, not bytes.")
    try:
        frame = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Bad(message="This is not JSON.")
    if not isinstance(frame, dict) or depth_is_over(frame):
        return Bad(message="A frame is a JSON object.")
    ref = frame.get("ref")
    if ref is not None:
        try:
            ref = _nonce(ref)
        except _Wrong as wrong:
            return Bad(message=f"ref {wrong}.")
    kind = frame.get("type")
    known = COMMANDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return Bad(ref, "unknown_type", "There is no frame of this type.")
    return _filled(known, str(kind), ref, frame, chat=chat, session=session)


def _filled(
    known: type[Parsed],
    kind: str,
    ref: str | None,
    frame: Mapping[str, Any],
    *,
    chat: str,
    session: int | None,
) -> Parsed:
    values: dict[str, Any] = {}
    optional = _OPTIONAL.get(known, frozenset())
    for name in [each.name for each in fields(known) if each.name != "ref"]:
        if frame.get(name) is None and name in optional:
            continue
        if name not in frame:
            return Bad(ref, "malformed", f"{kind}: {name} is missing.")
        try:
            check = _number if name in _NUMBERS.get(known, ()) else CHECKS[name]
            values[name] = check(frame[name])
        except _Wrong as wrong:
            return Bad(ref, "malformed", f"{kind}: {name} {wrong}.")
    if frame.get("chat") not in (None, chat):
        return Bad(ref, "mismatch", "This frame is meant for another chat.")
    if "session" not in values and frame.get("session") not in (None, session):
        return Bad(ref, "mismatch", "The session has changed meanwhile.")
    return known(ref=ref, **values)


# --- To the client ------------------------------------------------------------------------------


def error(ref: str | None, code: str, message: str, *, retry: float | None = None) -> Error:
    """A refusal, or why something could not be done."""
    made: Error = {"type": "error", "code": code, "message": message}
    if ref is not None:
        made["ref"] = ref
    if retry is not None:
        made["retry"] = retry
    return made
