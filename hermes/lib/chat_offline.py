"""The built-in model: it answers without a key and without a network, and says that it does.

It exists so that everything around a model can be tried: a stream, tools, approvals, compaction.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import Final

from .chat import (
    DEFAULT_LIMITS,
    ChatEvent,
    ChatMessage,
    ChatModelError,
    ChatRequest,
    ErrorKind,
    Finished,
    FinishReason,
    Limits,
    Role,
    TextDelta,
    ToolCall,
    Usage,
)
from .tokens import estimate, message_tokens, tools_tokens
from .wire import clean

# A system text with this line asks for a summary; whoever writes such a request puts it in.
SUMMARY_REQUEST: Final = "Request: summary of the conversation so far."

NAME: Final = "Offline"
WINDOW: Final = 32_768
WORD_SECONDS: Final = 0.004
SLOW_WORD_SECONDS: Final = 0.05
MOST_WORDS: Final = 20_000
SHOWN: Final = 400  # characters of a tool's result, or of a message in a summary

ABOUT: Final = (
    "I am the built-in offline model of Hermes, not a real language model: I cannot answer "
    "questions. I am here so that you can try everything else.\n\n"
    "To talk to a real model, an operator adds one under **Operator pages → Model endpoints** "
    "(or sets `HERMES_MODEL_BASE_URL`, `HERMES_MODEL_NAME` and `HERMES_MODEL_API_KEY` and starts "
    "Hermes again).\n\n"
    "Until then you can write me:\n\n"
    "- `!say 200 words` — a long answer that streams; `!say 200 words slowly` gives you time to "
    "press Stop.\n"
    "- `!tool current_time {}` — a call of a tool, with its arguments as JSON.\n"
    '- `!tool run_command {"command": "sleep 20; echo done", "background": true}` — a command in '
    "the background, once you have allowed it."
)

_TOOL: Final = re.compile(r"^[ \t]*!tool[ \t]+(\S+)[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_SAY: Final = re.compile(
    r"^[ \t]*!say[ \t]+(\d{1,9})[ \t]+words?(?:[ \t]+(slowly))?[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
# How whoever asks for a summary fences each message: a nonce and who it is of, text, the nonce.
_FENCED: Final = re.compile(r"^([0-9a-f]{24}) ([^\n]*)\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)
_CALLED: Final = re.compile(r"^assistant, calling (\w+)\(")
_WORDS: Final = ("one", "more", "word", "of", "a", "long", "answer", "that", "only", "streams")


class OfflineChatModel:
    """The offline model; ``word_seconds`` is the pause between two words."""

    def __init__(
        self,
        name: str = NAME,
        window: int = WINDOW,
        limits: Limits = DEFAULT_LIMITS,
        *,
        word_seconds: float = WORD_SECONDS,
    ) -> None:
        self.name = name
        self.window = window
        self.limits = limits
        self.word_seconds = word_seconds

    def open(self, request: ChatRequest) -> OfflineChatStream:
        """Return the call."""
        return OfflineChatStream(self, request)


class OfflineChatStream:
    """One call of the offline model; see ``ChatStream``."""

    def __init__(self, model: OfflineChatModel, request: ChatRequest) -> None:
        self._model = model
        self._request = request
        self._ended = threading.Event()
        self._complete = False
        self._events = self._run()

    def __iter__(self) -> Iterator[ChatEvent]:
        yield from self._events
        if not self._complete:
            raise ChatModelError(ErrorKind.SHUT_DOWN)

    def shutdown(self) -> None:
        """Wake the reader at once; the iteration raises ``SHUT_DOWN``."""
        self._ended.set()

    def close(self) -> None:
        """End the call; there is no connection to give back."""
        self.shutdown()
        with suppress(ValueError):  # another thread is in it, and has been woken
            self._events.close()

    def _run(self) -> Generator[ChatEvent]:
        messages = self._request.messages
        text, calls, pause = reply(messages)
        end = time.monotonic() + self._model.limits.total
        pause = self._model.word_seconds if pause is None else pause
        words = re.findall(r"\s*\S+\s*?|\s+", text)
        most = self._request.max_tokens
        reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        if most is not None and estimate(text) > most:
            words, calls, reason = words[: max(1, most)], (), FinishReason.LENGTH
        for number, word in enumerate(words):
            if self._ended.wait(pause if number else 0):
                raise ChatModelError(ErrorKind.SHUT_DOWN)
            if time.monotonic() > end:
                raise ChatModelError(ErrorKind.STALLED, "The call took too long in all.")
            yield TextDelta(word)
        if self._ended.is_set():
            raise ChatModelError(ErrorKind.SHUT_DOWN)
        self._complete = True
        prompt = sum(map(message_tokens, messages)) + tools_tokens(self._request.tools)
        usage = Usage(prompt, estimate("".join(words)))
        yield Finished(reason, calls, usage)


def reply(
    messages: Sequence[ChatMessage],
) -> tuple[str, tuple[ToolCall, ...], float | None]:
    """What the model says: text, calls, and the pause between words where it is a special one."""
    if any(m.role is Role.SYSTEM and SUMMARY_REQUEST in m.text for m in messages):
        return summary(messages), (), None
    if messages and messages[-1].role is Role.TOOL:
        return _after_tools(messages), (), None
    asked = next((m.text for m in reversed(messages) if m.role is Role.USER), "")
    calls = tuple(
        ToolCall(f"offline_{len(messages)}_{number}", name, arguments or "{}")
        for number, (name, arguments) in enumerate(_TOOL.findall(asked), 1)
    )
    if calls:
        return "", calls, None
    if said := _SAY.search(asked):
        count = min(int(said[1]), MOST_WORDS)
        words = (_WORDS[n % len(_WORDS)] for n in range(count))
        return " ".join(words) or "(no words)", (), SLOW_WORD_SECONDS if said[2] else None
    return ABOUT, (), None


def _after_tools(messages: Sequence[ChatMessage]) -> str:
    names = {call.id: call.name for m in messages for call in m.tool_calls}
    results: list[ChatMessage] = []
    for message in reversed(messages):
        if message.role is not Role.TOOL:
            break
        results.insert(0, message)
    return "\n\n".join(
        f"The tool `{names.get(m.tool_call_id or '', 'unknown')}` returned: {_short(m.text)}"
        for m in results
    )


def summary(messages: Sequence[ChatMessage]) -> str:
    """A mechanical summary: what was asked first and last, and what came of it, in extracts."""
    told = [
        (whose, text)
        for m in messages
        if m.role is not Role.SYSTEM
        for whose, text in _unfenced(m)
        if text.strip()
    ]
    asked = [text for whose, text in told if whose == "person"]
    answers = [text for whose, text in told if whose == "assistant"]
    tools = [call.name for m in messages for call in m.tool_calls]
    tools += [name for whose, _ in told for name in _CALLED.findall(whose)]
    earlier = "\n".join(text for whose, text in told if whose == "previous summary")
    asked = re.findall(r"^## Goal\s+- (.*)$", earlier, re.MULTILINE) + asked
    done = re.findall(r"^- Answered: .*$", earlier, re.MULTILINE)
    done = [*done, *(f"- Answered: {_short(text, 160)}" for text in answers)][-8:]
    done += [f"- Called the tool `{name}`." for name in dict.fromkeys(tools)]
    lines = [
        "_Written mechanically by the offline model: extracts, not a summary that understands._",
        "",
        "## Goal",
        "",
        f"- {_short(asked[0])}" if asked else "- Nothing was asked yet.",
        "",
        "## Done",
        "",
        *(done or ["- Nothing yet."]),
        "",
        "## Next step",
        "",
        f"- Last asked: {_short(asked[-1])}" if asked else "- Wait for the next message.",
    ]
    return "\n".join(lines)


def _unfenced(message: ChatMessage) -> list[tuple[str, str]]:
    """Whose and what: the fenced messages in a text, else the text as its own role's."""
    if fenced := _FENCED.findall(message.text):
        return [(label, text) for _nonce, label, text in fenced]
    return [("person" if message.role is Role.USER else message.role.value, message.text)]


def _short(text: str, most: int = SHOWN) -> str:
    # As one line: a heading or a list inside of it would read as one of ours.
    line = clean(" ".join(text.split()).lstrip("#>-* "))
    return line if len(line) <= most else f"{line[:most]}…"
