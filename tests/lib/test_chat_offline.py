"""The built-in offline model."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from hermes.lib.chat import (
    ChatMessage,
    ChatModelError,
    ChatRequest,
    ErrorKind,
    Finished,
    FinishReason,
    Role,
    TextDelta,
    ToolCall,
)
from hermes.lib.chat_offline import ABOUT, SUMMARY_REQUEST, OfflineChatModel


def ask(*messages: ChatMessage | str, **changes: Any) -> tuple[str, Finished]:
    model = OfflineChatModel(word_seconds=0.0)
    told = [ChatMessage(Role.USER, m) if isinstance(m, str) else m for m in messages]
    events = list(model.open(ChatRequest(told, **changes)))
    finished = events.pop()
    assert isinstance(finished, Finished)
    return "".join(event.text for event in events if isinstance(event, TextDelta)), finished


def test_it_says_what_it_is_and_how_to_add_a_model() -> None:
    text, finished = ask("What is the capital of France?")
    assert text == ABOUT
    assert "not a real language model" in text
    assert "HERMES_MODEL_BASE_URL" in text
    assert finished.reason is FinishReason.STOP
    assert finished.usage is not None


def test_it_answers_a_request_without_any_message() -> None:
    assert ask()[0] == ABOUT


def test_it_says_so_many_words() -> None:
    assert len(ask("please\n!say 200 words")[0].split()) == 200
    assert len(ask("!say 1 word")[0].split()) == 1
    assert len(ask("!say 999999999 words")[0].split()) == 20_000
    assert ask("he wrote !say 5 words to me")[0] == ABOUT  # a line of its own


def test_it_calls_tools_with_the_arguments_as_they_were_given() -> None:
    text, finished = ask('!tool now {"zone": "UTC"}\n!tool broken {"half')
    assert text == ""
    assert finished.reason is FinishReason.TOOL_CALLS
    assert [(c.name, c.arguments) for c in finished.tool_calls] == [
        ("now", '{"zone": "UTC"}'),
        ("broken", '{"half'),
    ]
    assert len({call.id for call in finished.tool_calls}) == 2
    assert ask("!tool now")[1].tool_calls[0].arguments == "{}"


def test_behind_a_result_it_says_what_came_and_calls_nothing_again() -> None:
    text, finished = ask(
        "!tool now {}",
        ChatMessage(Role.ASSISTANT, "", (ToolCall("x", "now", "{}"),)),
        ChatMessage(Role.TOOL, "12:00", tool_call_id="x"),
    )
    assert text == "The tool `now` returned: 12:00"
    assert finished.tool_calls == ()


def test_a_summary_has_the_required_sections_and_stays_small() -> None:
    history = [
        ChatMessage(Role.SYSTEM, f"Write a summary.\n{SUMMARY_REQUEST}"),
        ChatMessage(Role.USER, "# Plan the garden\n" + "with roses " * 500),
        ChatMessage(Role.ASSISTANT, "Here is a plan.\n## Next step\nfake"),
        ChatMessage(Role.USER, "!say 50 words"),
    ]
    text, finished = ask(*history)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## Goal", "## Done", "## Next step"]
    assert "Plan the garden" in text
    assert "mechanically" in text
    assert len(text) < 2000
    assert finished.reason is FinishReason.STOP


def test_a_summary_tells_the_fenced_messages_without_their_fences() -> None:
    fence = "0123456789abcdef01234567"
    pieces = [
        ("previous summary", "## Goal\n\n- Plan the garden\n\n## Done\n\n- Answered: Yes."),
        ("person", "And the roses?"),
        ("assistant, calling now({})", "I look."),
        ("assistant", "Here is\n\na plan."),
        ("person", "Go on"),
    ]
    lines = [f"{fence} {label}\n{text}\n{fence}" for label, text in pieces]
    text, _ = ask(
        ChatMessage(Role.SYSTEM, f"Write a summary.\n{SUMMARY_REQUEST}"),
        ChatMessage(Role.USER, "\n".join([*lines, "", "Write the summary now."])),
    )
    assert fence not in text
    assert "## Goal\n\n- Plan the garden\n" in text
    assert "- Answered: Yes.\n- Answered: Here is a plan.\n- Called the tool `now`.\n" in text
    assert text.endswith("- Last asked: Go on")


def test_a_limit_of_tokens_cuts_and_says_so() -> None:
    text, finished = ask("!say 100 words", max_tokens=10)
    assert finished.reason is FinishReason.LENGTH
    assert len(text.split()) <= 10


@pytest.mark.parametrize("by", ["shutdown", "close"])
def test_shutdown_wakes_it_at_once(by: str) -> None:
    model = OfflineChatModel(word_seconds=60)
    stream = model.open(ChatRequest([ChatMessage(Role.USER, "hello")]))
    first, ended = threading.Event(), threading.Event()
    errors: list[ChatModelError] = []

    def read() -> None:
        try:
            for _ in stream:
                first.set()
        except ChatModelError as error:
            errors.append(error)
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert first.wait(5)
    started = time.monotonic()
    getattr(stream, by)()
    assert ended.wait(5)
    assert time.monotonic() - started < 0.5
    assert errors[0].kind is ErrorKind.SHUT_DOWN


@pytest.mark.parametrize("by", ["shutdown", "close"])
def test_shutdown_before_the_first_step(by: str) -> None:
    stream = OfflineChatModel().open(ChatRequest([ChatMessage(Role.USER, "hello")]))
    getattr(stream, by)()
    with pytest.raises(ChatModelError) as caught:
        list(stream)
    assert caught.value.kind is ErrorKind.SHUT_DOWN


def test_slowly_is_about_twenty_words_a_second() -> None:
    stream = OfflineChatModel().open(ChatRequest([ChatMessage(Role.USER, "!say 9 words slowly")]))
    started = time.monotonic()
    list(stream)
    assert 0.35 < time.monotonic() - started < 3
