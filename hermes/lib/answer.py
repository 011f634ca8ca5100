"""What a model says, out of the events of its stream, and whether it said it to the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .chat import (
    ChatEvent,
    ChatModelError,
    ErrorKind,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from .event_stream import Event
from .provider_errors import Refusal
from .tool_calls import ToolCallDrafts
from .wire import clean

_DONE: Final = "[DONE]"
_REASONS: Final = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "recitation": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HIGH: Final = re.compile("[\ud800-\udbff]\\Z")


class _Joined:
    """Text in order, with what cannot be stored replaced.

    A character outside the basic plane may be cut into two surrogates, one at the end of a delta
    and one at the start of the next: the first waits for the second.
    """

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, text: str) -> str:
        text, self._waiting = self._waiting + text, ""
        if found := _HIGH.search(text):
            text, self._waiting = text[: found.start()], found[0]
        if _SURROGATE.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return clean(text)

    def rest(self) -> str:
        rest, self._waiting = self._waiting, ""
        return clean(rest)


class Answer:
    """One answer in the making. ``finished``: a finish mark came; ``done``: nothing may follow."""

    def __init__(self) -> None:
        self.finished = False
        self.done = False
        self.understood = False  # the last event was one of the protocol
        self._text = _Joined()
        self._reasoning = _Joined()
        self._calls = ToolCallDrafts()
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._spoke = False
        self._thought = False
        self._garbage = ""
        self._anything = False

    def take(self, event: Event, *, last: bool = False) -> list[ChatEvent]:
        """Take one event; return what it says. ``last``: the stream ended with it, maybe in it."""
        self.understood = False
        joined = "\n".join(event.data)
        if not joined.strip():
            return []
        if joined.strip() == _DONE:
            self.finished = self.done = self.understood = True
            return []
        chunks = _parsed((joined,)) or _parsed(event.data)
        if chunks is None:
            if event.name == "error":
                raise _said_no(joined)
            if not last:
                self._garbage = self._garbage or joined
            return []
        said: list[ChatEvent] = []
        for chunk in chunks:
            if chunk == _DONE:
                self.finished = self.done = True
            elif event.name == "error":
                raise _said_no(chunk)
            else:
                said += self._chunk(chunk)
        self.understood = True
        return said

    def whole(self, head: bytes, rest: Iterable[bytes]) -> list[ChatEvent]:
        """Take an answer that did not stream: JSON as one delta; all else is malformed."""
        body = (head + b"".join(rest)).decode("utf-8-sig", "replace")
        chunks = _parsed((body,))
        if not chunks or not isinstance(chunks[0], Mapping):
            kind = "an HTML page" if body.lstrip()[:1] == "<" else "neither a stream nor JSON"
            raise ChatModelError(ErrorKind.MALFORMED, f"The answer is {kind}.")
        said = self._chunk(chunks[0])
        if not isinstance(chunks[0].get("choices"), list):
            raise ChatModelError(ErrorKind.MALFORMED, "The answer is JSON, but no completion.")
        self.finished = self.done = True
        return said

    def held(self) -> list[ChatEvent]:
        """Text that still waited for its second half."""
        out: list[ChatEvent] = []
        if rest := self._reasoning.rest():
            out.append(ReasoningDelta(rest))
        if rest := self._text.rest():
            out.append(TextDelta(rest))
        return out

    def end(self) -> Iterator[ChatEvent]:
        """The stream is over: yield ``Finished``, or raise what is wrong with the answer."""
        yield from self.held()
        if self._garbage:
            raise ChatModelError(
                ErrorKind.MALFORMED, "A part of the answer could not be read and is missing."
            )
        if not self.finished:
            if not self._anything:
                raise ChatModelError(ErrorKind.CUT, "The stream ended before it said anything.")
            raise ChatModelError(ErrorKind.CUT, "The stream ended without a finish mark.")
        reason = self._reason or FinishReason.STOP
        calls = self._calls.finish(cut=reason is FinishReason.LENGTH)
        if not self._spoke and not self._calls:
            if reason is FinishReason.CONTENT_FILTER:
                raise ChatModelError(ErrorKind.REFUSED, "The provider's filter held it back.")
            what = "only reasoning, no answer" if self._thought else "nothing"
            if reason is FinishReason.LENGTH:
                what += ", and ran out of tokens"
            raise ChatModelError(ErrorKind.EMPTY, f"The model gave {what}.")
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        elif not calls and reason is FinishReason.TOOL_CALLS:
            if not self._spoke:
                raise ChatModelError(ErrorKind.EMPTY, "The model announced a call and made none.")
            reason = FinishReason.STOP
        yield Finished(reason, calls, self._usage)

    def _chunk(self, chunk: object) -> list[ChatEvent]:
        if not isinstance(chunk, Mapping):
            self._garbage = self._garbage or str(chunk)[:100]
            return []
        if chunk.get("error") or chunk.get("object") == "error":
            raise _said_no(chunk)
        self._anything = True
        if (usage := _usage(chunk.get("usage"))) is not None:
            self._usage = usage
        choices = chunk.get("choices")
        out: list[ChatEvent] = []
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and choice.get("index") in (0, None):
                out += self._choice(choice)
        return out

    def _choice(self, choice: Mapping[str, Any]) -> list[ChatEvent]:
        if choice.get("error"):
            raise _said_no(choice)
        delta = choice.get("delta") or choice.get("message") or {}
        out: list[ChatEvent] = []
        if isinstance(delta, Mapping):
            reasoning = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
            if reasoning and (text := self._reasoning.add(reasoning)):
                self._thought = True
                out.append(ReasoningDelta(text))
            said = _text(delta.get("content")) or _text(delta.get("refusal"))
            if said and (text := self._text.add(said)):
                self._spoke = self._spoke or bool(text.strip())
                out.append(TextDelta(text))
            calls = delta.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, Mapping):
                    self._calls.add(call)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise ChatModelError(ErrorKind.OVERLOADED, "The provider broke the answer off.")
            self.finished = True
            self._reason = _REASONS.get(reason.lower(), FinishReason.STOP)
        return out


def _parsed(texts: Iterable[str]) -> list[Any] | None:
    """Every text as JSON, or None where one of them is none."""
    out: list[Any] = []
    for text in texts:
        if not text.strip():
            continue
        if text.strip() == _DONE:
            out.append(_DONE)
            continue
        try:
            out.append(json.loads(text))
        except (ValueError, RecursionError):
            return None
    return out


def _said_no(body: object) -> ChatModelError:
    refusal = Refusal.of(body)
    return ChatModelError(refusal.kind(), f"Inside the stream: {refusal.words()}")


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    if type(prompt) is not int or prompt < 0:
        return None
    return Usage(prompt, completion if type(completion) is int and completion >= 0 else 0)


def _text(value: object) -> str:
    """Text, also where it comes as a list of parts."""
    if isinstance(value, list):
        return "".join(
            part["text"]
            for part in value
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return value if isinstance(value, str) else ""
