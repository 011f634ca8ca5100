"""Messages as a provider takes them: whatever the rows say, what is sent is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from .chat import ChatMessage, Role, ToolCall, ToolSpec
from .tool_calls import is_arguments

WireMessage: TypeAlias = "dict[str, Any]"

NO_RESULT: Final = "The call was interrupted; whether it had an effect is not known."
NO_OUTPUT: Final = "(no output)"
SHOWN: Final = 500  # characters of broken arguments that the model is shown again

_UNSENDABLE: Final = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with NUL and lone surrogates replaced: no provider and no database takes them.

    >>> clean("a\\x00b\\ud83d")
    'a�b�'
    """
    return _UNSENDABLE.sub("\ufffd", text)


def arguments(text: str) -> str:
    """Arguments as a JSON object.

    Broken ones are not repaired by a guess: the model is shown what it wrote, as a string.

    >>> arguments('{"path": "a"}'), arguments(""), arguments('{"path": "a')
    ('{"path": "a"}', '{}', '{"not_json": "{\\\\"path\\\\": \\\\"a"}')
    """
    text = clean(text)
    if not text.strip():
        return "{}"
    return text if is_arguments(text) else json.dumps({"not_json": text[:SHOWN]})


def wire(messages: Sequence[ChatMessage]) -> list[WireMessage]:
    """The messages of a request, in the form of the wire.

    System texts that open the request become one message; later ones speak as the user. No
    message is empty, neighbours of one role are one message, every call is followed by its result
    (``NO_RESULT`` where there is none), a result without its call is left out, and arguments are
    JSON objects.

    >>> wire([ChatMessage(Role.USER, "a"), ChatMessage(Role.USER, "b"), ChatMessage(Role.USER)])
    [{'role': 'user', 'content': 'a\\n\\nb'}]
    """
    out: list[WireMessage] = []
    for position, message in enumerate(messages):
        if message.role is Role.TOOL:
            continue  # taken along with its call
        calls = message.tool_calls if message.role is Role.ASSISTANT else ()
        text = clean(message.text)
        if not text.strip():
            text = ""
        if not (text or calls):
            continue
        role = message.role
        if role is Role.SYSTEM and any(sent["role"] != Role.SYSTEM for sent in out):
            role = Role.USER
        sent = _open(out, role)
        if text:
            sent["content"] = "\n\n".join(part for part in (sent["content"], text) if part)
        if calls:
            own = _with_own_ids(calls)
            sent["tool_calls"] = [_call(call, id_) for call, id_ in own]
            results = _results(messages[position + 1 :], calls)
            out.extend(
                {"role": Role.TOOL.value, "tool_call_id": id_, "content": result}
                for (_, id_), result in zip(own, results, strict=True)
            )
    return out


def _open(out: list[WireMessage], role: Role) -> WireMessage:
    """The last message if it can take more of this role, else a new one behind it."""
    if not out or out[-1]["role"] != role.value:
        out.append({"role": role.value, "content": None})
    return out[-1]


def _with_own_ids(calls: Sequence[ToolCall]) -> list[tuple[ToolCall, str]]:
    own: dict[str, ToolCall] = {}
    for number, call in enumerate(calls, 1):
        id_ = clean(call.id) or "call"
        while id_ in own:
            id_ += f"-{number}"
        own[id_] = call
    return [(call, id_) for id_, call in own.items()]


def _call(call: ToolCall, id_: str) -> WireMessage:
    function = {"name": clean(call.name), "arguments": arguments(call.arguments)}
    return {"id": id_, "type": "function", "function": function}


def _results(after: Iterable[ChatMessage], calls: Sequence[ToolCall]) -> list[str]:
    """The result of each call: the first of its id, before the model speaks again."""
    found: dict[str, list[str]] = {}
    for message in after:
        if message.role is Role.ASSISTANT and (message.text.strip() or message.tool_calls):
            break
        if message.role is Role.TOOL and message.tool_call_id is not None:
            found.setdefault(message.tool_call_id, []).append(clean(message.text))
    texts: list[str] = []
    for call in calls:
        waiting = found.get(call.id)
        text = waiting.pop(0) if waiting else NO_RESULT
        texts.append(text if text.strip() else NO_OUTPUT)
    return texts


def wire_tools(tools: Sequence[ToolSpec]) -> list[WireMessage]:
    """The tools of a request, in the form of the wire.

    >>> wire_tools([ToolSpec("now", "The time.", {})])[0]["function"]["name"]
    'now'
    """
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters) or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]
