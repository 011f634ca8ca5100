"""Tool calls out of the fragments in which they stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .chat import ToolCall


def is_arguments(text: str) -> bool:
    """Whether this is the JSON text of an object, as arguments of a call must be.

    >>> [is_arguments(text) for text in ('{"a": 1}', "", "null", '{"a":1}{"a":1}')]
    [True, False, False, False]
    """
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@dataclass
class _Draft:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.arguments)


class ToolCallDrafts:
    """The calls of one answer, told apart by index.

    Providers differ: some send no index, some the same one for every call, some repeat id and
    name with every fragment.
    """

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._at: dict[int, _Draft] = {}

    def __bool__(self) -> bool:
        return bool(self._drafts)

    def add(self, fragment: Mapping[str, Any]) -> None:
        """Take one fragment, as it stands in a delta or in a whole message."""
        function = fragment.get("function")
        function = function if isinstance(function, Mapping) else {}
        id_, name = _text(fragment.get("id")), _text(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments, ensure_ascii=False)
        draft = self._draft(fragment.get("index"), id_, name)
        draft.id = draft.id or id_
        if not draft.name:
            draft.name = name
        elif name and name != draft.name and not id_ and not draft.arguments:
            draft.name += name  # a name in pieces; a repeated one is not doubled
        if text := _text(arguments):
            draft.arguments.append(text)

    def _draft(self, index: object, id_: str, name: str) -> _Draft:
        known = self._at.get(index) if isinstance(index, int) else None
        if known is None and not isinstance(index, int) and self._drafts:
            same = [draft for draft in self._drafts if id_ and draft.id == id_]
            if same or not (id_ or name):
                return (same or self._drafts)[-1]
        # One index for several whole calls: another id, and the arguments so far are complete.
        if known is not None and not (
            id_ and name and known.id and id_ != known.id and is_arguments(known.text)
        ):
            return known
        draft = _Draft()
        self._drafts.append(draft)
        if isinstance(index, int):
            self._at[index] = draft
        return draft

    def finish(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """The calls, each with an id of its own.

        A call without a name cannot be answered and is left out. ``cut`` says that the answer ran
        into its length: then arguments that are no JSON object are half ones, and the call is
        left out. Otherwise they are the model's own mistake, and stay for it to be told.
        """
        calls: list[ToolCall] = []
        taken: set[str] = set()
        for number, draft in enumerate(self._drafts, 1):
            if not draft.name or (cut and not is_arguments(draft.text)):
                continue
            id_ = draft.id or f"call_{number}"
            while id_ in taken:
                id_ += f"-{number}"
            taken.add(id_)
            calls.append(ToolCall(id_, draft.name, draft.text))
        return tuple(calls)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
