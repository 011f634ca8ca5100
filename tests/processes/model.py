"""A chat model of the tests' own: it says and calls what a list tells it, one entry a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes.lib.chat import ChatRequest, Finished, FinishReason, TextDelta, ToolCall


class ListedModel:
    """Answers from ``script``: a text, or (tool, arguments); ``ok`` when the list is used up."""

    name = "listed"
    window = 32_000

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.requests: list[ChatRequest] = []

    def open(self, request: ChatRequest) -> _Stream:
        """The next entry."""
        self.requests.append(request)
        return _Stream(self.script.pop(0) if self.script else "ok", len(self.requests))


class _Stream:
    def __init__(self, entry: Any, number: int) -> None:
        self.entry, self.number = entry, number

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.entry, str):
            yield TextDelta(self.entry)
            yield Finished(FinishReason.STOP)
            return
        name, arguments = self.entry
        call = ToolCall(f"call-{self.number}", name, json.dumps(arguments))
        yield Finished(FinishReason.TOOL_CALLS, (call,))

    def shutdown(self) -> None: ...

    def close(self) -> None: ...
