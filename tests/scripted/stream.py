"""The events of a streamed answer, as bytes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from .behaviour import Behaviour, Call

_WORD = re.compile(r"\s*\S+|\s+\Z")


def event(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def tokens(text: str, chunking: str) -> list[str]:
    """The text in the pieces that one delta each carries."""
    if chunking == "whole":
        return [text] if text else []
    return list(text) if chunking == "char" else _WORD.findall(text)


class Rendering:
    """The parts of one answer, in order."""

    def __init__(self, behaviour: Behaviour, text: str, request: dict[str, Any]) -> None:
        self.behaviour = behaviour
        self.text = text
        self.request = request
        last_is_result = request["messages"][-1].get("role") == "tool"
        wanted = behaviour.repeat_calls or not last_is_result
        self.calls = behaviour.calls if wanted else ()
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
        self.head = {**head, "model": request.get("model", "")}

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**self.head, "choices": [choice]})

    def tokens(self) -> Iterator[bytes]:
        """One event a token: reasoning first, then text."""
        behaviour = self.behaviour
        for piece in tokens(behaviour.reasoning, behaviour.chunking):
            yield self.chunk({behaviour.reasoning_field: piece})
        # Rendering once and filling in keeps 64 streams at 50 tokens a second cheap.
        before, after = self.chunk({"content": "\x01"}).split(b'"\\u0001"')
        if behaviour.endless:
            for number in itertools.count(1):
                yield before + json.dumps(f"w{number} ").encode() + after
        if not self.calls or behaviour.text is not None:
            for piece in tokens(self.text, behaviour.chunking):
                yield before + json.dumps(piece, ensure_ascii=False).encode() + after

    def tail(self) -> Iterator[bytes]:
        """What follows the text."""
        behaviour = self.behaviour
        for index, call in enumerate(self.calls):
            yield from self.call(index, call)
        if behaviour.error_after is not None:
            yield event({"error": behaviour.error_after})
            return
        if behaviour.finish_reason is not None:
            finish = behaviour.finish_reason
            yield self.chunk({}, "tool_calls" if self.calls and finish == "stop" else finish)
        if behaviour.usage and (self.request.get("stream_options") or {}).get("include_usage"):
            yield event({**self.head, "choices": [], "usage": self.usage()})
        if behaviour.done:
            yield b"data: [DONE]\n\n"

    def call(self, index: int, call: Call) -> Iterator[bytes]:
        first = {"index": index, "type": "function", "function": {"name": call.name}}
        if call.id is not None:
            first["id"] = call.id
        yield self.chunk({"tool_calls": [first]})
        size = max(1, -(-len(call.arguments) // max(1, call.pieces)))
        for start in range(0, len(call.arguments), size):
            piece = {"arguments": call.arguments[start : start + size]}
            yield self.chunk({"tool_calls": [{"index": index, "function": piece}]})

    def usage(self) -> dict[str, int]:
        given = [self.request["messages"], self.request.get("tools", [])]  # as providers count
        prompt = len(json.dumps(given)) // 4
        completion = max(1, len(self.text.split()))
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def whole(self) -> bytes:
        """The answer as one JSON body."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.behaviour.finish_reason}
        head = {**self.head, "object": "chat.completion"}
        return json.dumps({**head, "choices": [choice], "usage": self.usage()}).encode()
