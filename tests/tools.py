"""Tools of the tests' own."""

from __future__ import annotations

from typing import ClassVar

from hermes.lib.chat import ToolSpec
from sessions_app.domain import Done, ToolCallFacts, Wait


class Counter:
    """Adds one; or waits for a key until ``ready`` holds it."""

    calls: ClassVar[list[str]] = []
    ready: ClassVar[set[str]] = set()
    asked: ClassVar[list[str]] = []

    spec = ToolSpec(
        name="count",
        description="Adds one to a counter.",
        parameters={
            "type": "object",
            "properties": {"wait": {"type": "string"}, "fail": {"type": "boolean"}},
            "additionalProperties": False,
        },
    )

    @classmethod
    def reset(cls) -> None:
        """Back to zero."""
        cls.calls.clear()
        cls.ready.clear()
        cls.asked.clear()

    def __call__(self, call: ToolCallFacts) -> Done | Wait:
        """Count, wait or fail, as asked."""
        if call.arguments.get("fail"):
            raise RuntimeError("a tool that breaks")
        key = call.arguments.get("wait")
        self.asked.append(call.call_id)
        if key and key not in self.ready:
            return Wait(key)
        self.calls.append(call.call_id)
        return Done(f"counted to {len(self.calls)}")
