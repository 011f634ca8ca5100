"""What other applications hang in through settings: gates and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from hermes.lib.chat import ToolSpec

from .states import TurnSource


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
    window: int  # tokens of the model that will answer; 0 where that is not known
    context_tokens: int  # of the request before its input
    input_tokens: int  # of the input, while it is not a message yet
    live_messages: int


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
