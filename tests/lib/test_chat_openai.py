"""The adapter against a real HTTP server: what is said, how it fails, how it is stopped."""

from __future__ import annotations

import json
import pickle
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from hermes.lib.chat import (
    ChatMessage,
    ChatModelError,
    ChatRequest,
    ErrorKind,
    Finished,
    FinishReason,
    Limits,
    ReasoningDelta,
    Role,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)
from hermes.lib.chat_openai import OpenAIChatModel
from hermes.lib.outbound_http import _tls
from tests.scripted import Behaviour, Call, ScriptedServer, expected_answer

KEY = "sk-test-ABC123xyz0987654321"
ASK = "say 5 words"
TEXT = "héllo 👩‍👩‍👧 wörld"


def model_of(base_url: str, **changes: Any) -> OpenAIChatModel:
    options: dict[str, Any] = {"limits": Limits(), "allow_loopback": True} | changes
    return OpenAIChatModel("test", 8192, base_url, options.pop("key", KEY), "fake-chat", **options)


def request_of(text: str = ASK, **changes: Any) -> ChatRequest:
    return ChatRequest([ChatMessage(Role.USER, text)], **changes)


class Heard:
    """All that came of one call."""

    def __init__(self, model: OpenAIChatModel, request: ChatRequest | None = None) -> None:
        self.events: list[Any] = []
        self.error: ChatModelError | None = None
        stream = model.open(request or request_of())
        try:
            for event in stream:
                self.events.append(event)
        except ChatModelError as error:
            self.error = error
        finally:
            stream.close()

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ReasoningDelta))

    @property
    def finished(self) -> Finished:
        assert self.error is None, self.error
        assert isinstance(self.events[-1], Finished)
        return self.events[-1]

    @property
    def kind(self) -> ErrorKind | None:
        assert not any(isinstance(e, Finished) for e in self.events)
        return self.error.kind if self.error else None


def hear(scripted: ScriptedServer, behaviour: Behaviour | None = None, **changes: Any) -> Heard:
    if behaviour is not None:
        scripted.script(default=behaviour)
    return Heard(model_of(scripted.base_url, **changes))


# --- What is said ---------------------------------------------------------------------------


def test_a_streamed_answer_arrives_byte_for_byte_with_its_usage(scripted: ScriptedServer) -> None:
    heard = hear(scripted)
    assert heard.text == expected_answer(ASK)
    assert heard.finished.reason is FinishReason.STOP
    assert isinstance(heard.finished.usage, Usage)
    assert scripted.violations() == []


def test_opening_a_call_does_no_io(scripted: ScriptedServer) -> None:
    model_of(scripted.base_url).open(request_of())
    assert scripted.requests() == []


def test_only_the_headers_that_the_protocol_needs_leave(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Leak: yes\nAuthorization: Bearer other")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-leak")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    hear(scripted)
    headers = scripted.requests()[0]["headers"]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert set(headers) == {
        *("host", "accept", "content-type", "user-agent", "content-length"),
        *("accept-encoding", "connection", "authorization"),
    }


def test_an_empty_key_sends_no_authorization(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment-000")
    assert hear(scripted, key="").text == expected_answer(ASK)
    assert "authorization" not in scripted.requests()[0]["headers"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_told_apart_from_the_answer(scripted: ScriptedServer, field: str) -> None:
    heard = hear(scripted, Behaviour(text="42", reasoning="let me see", reasoning_field=field))
    assert (heard.reasoning, heard.text) == ("let me see", "42")


def test_tool_calls_come_whole_and_in_order(scripted: ScriptedServer) -> None:
    calls = (Call("now", '{"zone": "UTC"}', "a", 5), Call("add", '{"x": [1, 2]}', "b", 3))
    finished = hear(scripted, Behaviour(calls=calls)).finished
    assert finished.reason is FinishReason.TOOL_CALLS
    assert finished.tool_calls == (
        ToolCall("a", "now", '{"zone": "UTC"}'),
        ToolCall("b", "add", '{"x": [1, 2]}'),
    )


def test_two_calls_with_one_id_or_none_get_ids_of_their_own(scripted: ScriptedServer) -> None:
    calls = (Call("f", id="same"), Call("f", id="same"), Call("f", id=None), Call("f", id=None))
    ids = [call.id for call in hear(scripted, Behaviour(calls=calls)).finished.tool_calls]
    assert ids[0] == "same"
    assert len(set(ids)) == 4
    assert all(ids)


@pytest.mark.parametrize(
    "arguments", ['{"path": "a', "", '{"a":1}{"a":1}', "null", "[1]", '{"a": "' + "x" * 200_000]
)
def test_broken_arguments_of_a_finished_answer_are_delivered_as_they_came(
    scripted: ScriptedServer, arguments: str
) -> None:
    finished = hear(scripted, Behaviour(calls=(Call("f", arguments),))).finished
    assert finished.tool_calls == (ToolCall("call_1", "f", arguments),)


def test_a_call_that_the_length_cut_in_half_is_dropped(scripted: ScriptedServer) -> None:
    calls = (Call("f", '{"a": 1}', "a"), Call("g", '{"b": "half', "b"))
    finished = hear(scripted, Behaviour(calls=calls, finish_reason="length")).finished
    assert finished.reason is FinishReason.LENGTH
    assert [call.name for call in finished.tool_calls] == ["f"]


def test_a_stream_cut_in_the_middle_of_a_call_delivers_no_call(scripted: ScriptedServer) -> None:
    behaviour = Behaviour(calls=(Call("f", '{"a": 1}', pieces=4),), cut_after=400)
    assert hear(scripted, behaviour).kind is ErrorKind.CUT


def deltas(*parts: dict[str, Any], finish: str = "tool_calls") -> Behaviour:
    chunks = [{"choices": [{"index": 0, "delta": part}]} for part in parts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return Behaviour(raw=f"{lines}data: [DONE]\n\n")


def test_calls_without_an_index_or_with_one_index_for_all_are_told_apart(
    scripted: ScriptedServer,
) -> None:
    def call(id_: str, name: str, text: str, **more: Any) -> dict[str, Any]:
        return {"id": id_, "function": {"name": name, "arguments": text}, **more}

    bare = deltas({"tool_calls": [call("a", "f", "{}")]}, {"tool_calls": [call("b", "g", "{}")]})
    zero = deltas(
        {"tool_calls": [call("a", "f", "{}", index=0)]},
        {"tool_calls": [call("b", "g", "{}", index=0)]},
    )
    for behaviour in (bare, zero):
        calls = hear(scripted, behaviour).finished.tool_calls
        assert [(c.id, c.name, c.arguments) for c in calls] == [("a", "f", "{}"), ("b", "g", "{}")]


def test_a_name_and_id_that_are_repeated_are_not_doubled(scripted: ScriptedServer) -> None:
    parts = [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "now", "arguments": piece}}]}
        for piece in ('{"a"', ": 1}")
    ]
    calls = hear(scripted, deltas(*parts)).finished.tool_calls
    assert calls == (ToolCall("a", "now", '{"a": 1}'),)


def test_calls_under_the_reason_stop_are_calls(scripted: ScriptedServer) -> None:
    part = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {}}}]}
    finished = hear(scripted, deltas(part, finish="stop")).finished
    assert (finished.reason, finished.tool_calls[0].arguments) == (FinishReason.TOOL_CALLS, "{}")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("eos", FinishReason.STOP),
    ],
)
def test_why_the_model_stopped_is_passed_on(
    scripted: ScriptedServer, said: str, reason: FinishReason
) -> None:
    assert hear(scripted, Behaviour(text="some", finish_reason=said)).finished.reason is reason


def test_nul_and_lone_surrogates_are_replaced_before_they_are_yielded(
    scripted: ScriptedServer,
) -> None:
    raw = deltas(
        {"content": "a\x00b\ud83d"}, {"content": "c"}, {"content": "\udc00"}, finish="stop"
    )
    assert hear(scripted, raw).text == "a�b�c�"


def test_a_character_cut_into_two_surrogates_is_put_together(scripted: ScriptedServer) -> None:
    raw = deltas({"content": "a\ud83d"}, {"content": "\ude00b"}, finish="stop")
    assert hear(scripted, raw).text == "a😀b"


def test_a_server_without_streaming_is_heard_as_one_delta(scripted: ScriptedServer) -> None:
    heard = hear(scripted, Behaviour(stream=False, headers={"Content-Type": "application/json"}))
    assert [type(event) for event in heard.events] == [TextDelta, Finished]
    assert heard.text == expected_answer(ASK)
    assert heard.finished.usage is not None


def test_what_is_sent_is_valid_for_a_strict_provider(scripted: ScriptedServer) -> None:
    messages = [
        ChatMessage(Role.SYSTEM, "be brief"),
        ChatMessage(Role.SYSTEM, "be kind"),
        ChatMessage(Role.USER, "a\x00\ud800"),
        ChatMessage(Role.USER, "b"),
        ChatMessage(Role.ASSISTANT, ""),
        ChatMessage(Role.ASSISTANT, "", (ToolCall("x", "f", '{"half'), ToolCall("x", "f", ""))),
        ChatMessage(Role.TOOL, "", tool_call_id="x"),
        ChatMessage(Role.TOOL, "orphan", tool_call_id="nobody"),
        ChatMessage(Role.USER, ASK),
    ]
    tools = [ToolSpec("f", "Does it.", {"type": "object"})]
    heard = Heard(model_of(scripted.base_url), ChatRequest(messages, tools, max_tokens=100))
    assert heard.text == expected_answer(ASK)
    body = scripted.requests()[0]["body"]
    assert body["max_tokens"] == 100
    assert body["tools"][0]["function"]["name"] == "f"
    assert scripted.violations() == []


def test_an_option_that_is_refused_is_left_out_once_and_for_all(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(refuse=("stream_options", "max_tokens")))
    model = model_of(scripted.base_url)
    for _ in range(2):
        heard = Heard(model, request_of(max_tokens=50))
        assert heard.text == expected_answer(ASK)
    bodies = [seen["body"] for seen in scripted.requests()]
    assert len(bodies) == 4  # two refusals, two answers
    assert bodies[-1]["max_completion_tokens"] == 50
    assert "stream_options" not in bodies[-1]


# --- Framing (B062) ---------------------------------------------------------------------------


def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"choices": [choice]}, ensure_ascii=False)


A, B, END = chunk({"content": TEXT[:9]}), chunk({"content": TEXT[9:]}), chunk({}, "stop")
PLAIN = f"data: {A}\n\ndata: {B}\n\ndata: {END}\n\ndata: [DONE]\n\n"
USAGE = '{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}'
TWO_LINES = A.replace('"delta"', '\ndata: "delta"', 1)

FRAMINGS = {
    "as usual": PLAIN,
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "CR": PLAIN.replace("\n", "\r"),
    "comments and blank lines": ": ping\n\n\n\n" + PLAIN.replace("data: ", ": x\ndata: "),
    "no blank behind data:": PLAIN.replace("data: ", "data:"),
    "unknown fields": PLAIN.replace("data: ", "id: 7\nretry: 10\nfoo\nevent: message\ndata: "),
    "two data lines of one event": PLAIN.replace(A, TWO_LINES),
    "two data lines of one event, CRLF": PLAIN.replace(A, TWO_LINES).replace("\n", "\r\n"),
    "two events without a blank line": f"data: {A}\ndata: {B}\ndata: {END}\n\n",
    "no [DONE]": PLAIN.removesuffix("data: [DONE]\n\n"),
    "[DONE] twice": PLAIN + "data: [DONE]\n\n",
    "only [DONE]": f"data: {A}\n\ndata: {B}\n\ndata: [DONE]\n\n",
    "no last line break": PLAIN.removesuffix("\n\n"),
    "no last line break, no [DONE]": f"data: {A}\n\ndata: {B}\n\ndata: {END}",
    "choices: []": PLAIN.replace(f"data: {A}", f'data: {{"choices": []}}\n\ndata: {A}'),
    "usage at the end": PLAIN.replace("data: [DONE]", f"data: {USAGE}\n\ndata: [DONE]"),
    "a byte order mark": "\ufeff" + PLAIN,
    "nulls": PLAIN.replace(
        f"data: {B}", f'data: {{"choices": null, "usage": null, "error": null}}\n\ndata: {B}'
    ),
}


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("form", FRAMINGS)
def test_every_legal_framing_gives_the_same_text(
    scripted: ScriptedServer, form: str, size: int
) -> None:
    heard = hear(scripted, Behaviour(raw=FRAMINGS[form], piece_bytes=size))
    assert heard.text == TEXT
    assert heard.finished.reason is FinishReason.STOP
    if "usage" in form:
        assert heard.finished.usage == Usage(7, 3)


def test_a_body_that_ends_with_the_connection_is_whole(scripted: ScriptedServer) -> None:
    assert hear(scripted, Behaviour(raw=PLAIN, framing="close")).finished
    half = PLAIN[: PLAIN.index(B)]
    assert hear(scripted, Behaviour(raw=half, framing="close")).kind is ErrorKind.CUT


@pytest.mark.parametrize("garbage", ['{"choices": [{', "]", "[" * 100_000, "nonsense", '"text"'])
def test_garbage_is_skipped_but_the_answer_is_not_called_complete(
    scripted: ScriptedServer, garbage: str
) -> None:
    raw = PLAIN.replace(f"data: {B}", f"data: {garbage}\n\ndata: {B}")
    heard = hear(scripted, Behaviour(raw=raw))
    assert heard.text == TEXT  # nothing of the rest is lost
    assert heard.kind is ErrorKind.MALFORMED


def test_bytes_that_are_no_utf8_are_replaced(scripted: ScriptedServer) -> None:
    raw = PLAIN.encode().replace("ö".encode(), b"\xff")
    assert hear(scripted, Behaviour(raw_hex=raw.hex())).text == TEXT.replace("ö", "�")


def test_odd_types_in_a_chunk_do_no_harm(scripted: ScriptedServer) -> None:
    odd = (
        '{"choices": [7, {"index": {}, "delta": 3}, {"delta": {"content": 5, "tool_calls": [1]}}]}'
    )
    raw = PLAIN.replace(f"data: {B}", f"data: {odd}\n\ndata: {B}")
    assert hear(scripted, Behaviour(raw=raw)).finished


# --- Every way to fail (B057, B059) ---------------------------------------------------------


def refusal(status: int, message: str = "no", **more: Any) -> Behaviour:
    headers = more.pop("headers", {})
    body = json.dumps({"error": {"message": message, **more}})
    return Behaviour(status=status, body=body, headers=headers)


TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    "input length and `max_tokens` exceed context limit: 199999 + 8192 > 200000",
    "the request exceeds the available context size, try increasing it",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
    "context length",
    "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "Please reduce the length of the messages or completion.",
    "Input is too long for requested model.",
    "Range of input length should be [1, 30720]; input exceeds the model's max tokens",
]
STATUSES: list[tuple[Behaviour, ErrorKind]] = [
    (refusal(401, "Incorrect API key provided"), ErrorKind.AUTHENTICATION),
    (refusal(400, "API key not valid. Please pass a valid API key."), ErrorKind.AUTHENTICATION),
    (refusal(403, "no access to this model"), ErrorKind.PERMISSION),
    (refusal(402, "Insufficient Balance"), ErrorKind.QUOTA),
    (refusal(404, "no such model", code="model_not_found"), ErrorKind.NOT_FOUND),
    (refusal(400, "The model `x` does not exist"), ErrorKind.NOT_FOUND),
    (Behaviour(status=404, body="<html>nginx</html>"), ErrorKind.NOT_FOUND),
    (refusal(429, "Rate limit reached"), ErrorKind.RATE),
    (refusal(429, "You exceeded your current quota", code="insufficient_quota"), ErrorKind.QUOTA),
    (refusal(400, "Your credit balance is too low to access the API."), ErrorKind.QUOTA),
    (refusal(500, "oops"), ErrorKind.OVERLOADED),
    (refusal(503, "busy"), ErrorKind.OVERLOADED),
    (refusal(529, "Overloaded", type="overloaded_error"), ErrorKind.OVERLOADED),
    (Behaviour(status=502, body="<html>bad gateway</html>"), ErrorKind.OVERLOADED),
    (Behaviour(status=500, body=""), ErrorKind.OVERLOADED),
    (refusal(400, "x", code="context_length_exceeded"), ErrorKind.TOO_LONG),
    (Behaviour(status=413, body="too large"), ErrorKind.TOO_LONG),
    (refusal(400, "bad parameter"), ErrorKind.REFUSED),
    (Behaviour(status=422, body='{"detail": [{"loc": ["x"], "msg": "bad"}]}'), ErrorKind.REFUSED),
    (refusal(400, "The response was filtered", code="content_filter"), ErrorKind.REFUSED),
    (Behaviour(status=302, headers={"Location": "http://169.254.169.254/"}), ErrorKind.BLOCKED),
    (Behaviour(status=200, body="<html>Log in</html>"), ErrorKind.MALFORMED),
    (Behaviour(status=200, body="{}"), ErrorKind.MALFORMED),
    (Behaviour(status=200, body='{"error": {"message": "overloaded"}}'), ErrorKind.OVERLOADED),
    *((refusal(400, words), ErrorKind.TOO_LONG) for words in TOO_LONG),
]


@pytest.mark.parametrize(("behaviour", "kind"), STATUSES, ids=lambda v: str(v)[-60:])
def test_every_refusal_has_its_kind_and_is_asked_once(
    scripted: ScriptedServer, behaviour: Behaviour, kind: ErrorKind
) -> None:
    assert hear(scripted, behaviour).kind is kind
    assert len(scripted.requests()) == 1


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "4", 4),
        (503, "3", 3),
        (429, "86400", 86400),
        (429, "-5", 0),
        (429, "soon", None),
        (429, "nan", None),
        (429, None, None),
    ],
)
def test_retry_after_is_passed_on_in_seconds(
    scripted: ScriptedServer, status: int, header: str | None, seconds: float | None
) -> None:
    headers = {} if header is None else {"Retry-After": header}
    error = hear(scripted, refusal(status, headers=headers)).error
    assert error is not None
    assert error.retry_after == seconds


def test_retry_after_as_a_date_is_measured_by_the_clock_of_the_provider(
    scripted: ScriptedServer,
) -> None:
    there = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    date = format_datetime(there, usegmt=True)
    later = format_datetime(there + timedelta(seconds=30), usegmt=True)
    error = hear(scripted, refusal(429, headers={"Retry-After": later, "Date": date})).error
    assert error is not None
    assert error.retry_after == 30
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    error = hear(scripted, refusal(429, headers={"Retry-After": soon})).error
    assert error is not None
    assert error.retry_after == pytest.approx(30, abs=3)


def test_words_of_an_empty_account_with_a_time_to_come_again_are_a_rate_limit(
    scripted: ScriptedServer,
) -> None:
    words = "You exceeded your current quota, please check your plan"
    assert hear(scripted, refusal(429, words)).kind is ErrorKind.QUOTA
    assert hear(scripted, refusal(429, words, headers={"Retry-After": "9"})).kind is ErrorKind.RATE


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("after", [0, 40, 900])
def test_a_stream_that_is_cut_is_no_answer(
    scripted: ScriptedServer, after: int, reset: bool
) -> None:
    heard = hear(scripted, Behaviour(cut_after=after, reset=reset))
    assert heard.kind is ErrorKind.CUT
    assert expected_answer(ASK).startswith(heard.text)
    if after == 900 and not reset:
        assert heard.text


def test_an_end_without_a_finish_mark_is_a_cut(scripted: ScriptedServer) -> None:
    heard = hear(scripted, Behaviour(finish_reason=None, done=False, usage=False))
    assert (heard.kind, heard.text) == (ErrorKind.CUT, expected_answer(ASK))


def test_a_connection_that_breaks_behind_the_finish_mark_does_not_matter(
    scripted: ScriptedServer,
) -> None:
    raw = FRAMINGS["no [DONE]"]
    heard = hear(scripted, Behaviour(raw=raw + ": more", cut_after=len(raw.encode())))
    assert (heard.text, heard.finished.reason) == (TEXT, FinishReason.STOP)


def test_a_connection_left_open_behind_done_is_not_waited_for() -> None:
    started = time.monotonic()
    with listener(lambda sock: sock.sendall(http(PLAIN.encode(), length=10**6))) as url:
        assert Heard(model_of(url)).text == TEXT
    assert time.monotonic() - started < 2


def test_an_empty_answer_and_one_of_reasoning_only_are_empty(scripted: ScriptedServer) -> None:
    assert hear(scripted, Behaviour(text="")).kind is ErrorKind.EMPTY
    assert hear(scripted, Behaviour(text=" \n")).kind is ErrorKind.EMPTY
    heard = hear(scripted, Behaviour(text="", reasoning="hmm, well"))
    assert (heard.kind, heard.reasoning) == (ErrorKind.EMPTY, "hmm, well")
    filtered = hear(scripted, Behaviour(text="", finish_reason="content_filter"))
    assert filtered.kind is ErrorKind.REFUSED


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Rate limit exceeded", "code": 429}, ErrorKind.RATE),
        ({"message": "Overloaded", "type": "overloaded_error"}, ErrorKind.OVERLOADED),
        ({"message": "maximum context length is 8 tokens"}, ErrorKind.TOO_LONG),
        ({"message": "something else"}, ErrorKind.OVERLOADED),
        ({"message": "bad key", "code": "401"}, ErrorKind.AUTHENTICATION),
    ],
)
def test_an_error_inside_the_stream_keeps_the_text_and_has_its_kind(
    scripted: ScriptedServer, error: dict[str, Any], kind: ErrorKind
) -> None:
    heard = hear(scripted, Behaviour(error_after=error))
    assert (heard.kind, heard.text) == (kind, expected_answer(ASK))


def test_silence_in_the_stream_ends_by_the_idle_limit(scripted: ScriptedServer) -> None:
    heard = hear(scripted, Behaviour(stall_after=3), limits=Limits(idle=0.3))
    assert (heard.kind, heard.text) == (ErrorKind.STALLED, "w1 w2 w3")
    assert "0.3 seconds" in str(heard.error)


@pytest.mark.parametrize("filler", [": ping\n\n", "data:\n\n", "event: ping\n\n"])
def test_what_says_nothing_is_no_sign_of_life(scripted: ScriptedServer, filler: str) -> None:
    behaviour = Behaviour(raw=filler * 20_000, piece_bytes=1)
    heard = hear(scripted, behaviour, limits=Limits(idle=0.3))
    assert heard.kind is ErrorKind.STALLED


def test_no_answer_at_all_is_unreachable(scripted: ScriptedServer) -> None:
    heard = hear(scripted, Behaviour(delay=30), limits=Limits(idle=0.3))
    assert heard.kind is ErrorKind.UNREACHABLE
    assert hear(scripted, Behaviour(hang_up=True)).kind is ErrorKind.UNREACHABLE


def test_an_endless_answer_ends_by_the_total_limit(scripted: ScriptedServer) -> None:
    behaviour = Behaviour(endless=True, tokens_per_second=50)
    heard = hear(scripted, behaviour, limits=Limits(total=0.5))
    assert heard.kind is ErrorKind.STALLED
    assert "in all" in str(heard.error)
    assert heard.text.startswith("w1 w2 ")


def test_time_that_the_reader_takes_is_not_the_silence_of_the_provider(
    scripted: ScriptedServer,
) -> None:
    stream = model_of(scripted.base_url, limits=Limits(idle=0.3)).open(request_of())
    said = ""
    for event in stream:
        if isinstance(event, TextDelta):
            said += event.text
            if event.text == "w1":
                time.sleep(0.5)
    assert said == expected_answer(ASK)


def test_lines_and_bodies_are_bounded(scripted: ScriptedServer) -> None:
    limits = Limits(line_bytes=2000, body_bytes=20_000)
    line = hear(scripted, Behaviour(raw="data: " + "x" * 10_000), limits=limits)
    assert (line.kind, "One line" in str(line.error)) == (ErrorKind.MALFORMED, True)
    event = hear(scripted, Behaviour(raw=("data: " + "x" * 500 + "\n") * 20), limits=limits)
    assert event.kind is ErrorKind.MALFORMED
    body = hear(scripted, Behaviour(endless=True), limits=limits)
    assert (body.kind, "20000 bytes" in str(body.error)) == (ErrorKind.MALFORMED, True)
    assert body.text.startswith("w1 w2 ")


def test_a_huge_error_body_is_not_read_to_its_end(scripted: ScriptedServer) -> None:
    behaviour = Behaviour(status=500, body="x" * 5_000_000)
    heard = hear(scripted, behaviour, limits=Limits(line_bytes=1000))
    assert heard.kind is ErrorKind.OVERLOADED
    assert len(str(heard.error)) < 600


def test_a_compressed_answer_is_not_unpacked(scripted: ScriptedServer) -> None:
    headers = {"Content-Encoding": "gzip"}
    assert hear(scripted, Behaviour(raw="x", headers=headers)).kind is ErrorKind.MALFORMED
    refused = hear(scripted, Behaviour(status=401, body="x", headers=headers))
    assert refused.kind is ErrorKind.AUTHENTICATION


# --- Connections --------------------------------------------------------------------------------


def http(body: bytes, *, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


@contextmanager
def listener(answer: Callable[[socket.socket], Any]) -> Iterator[str]:
    """A bare socket that answers as it is told, for what no HTTP server does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                accepted.append(sock)
                try:
                    sock.recv(65536)
                    answer(sock)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            for sock in accepted:
                sock.close()
            thread.join(5)


def test_a_closed_port_and_an_unknown_name_are_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refused = Heard(model_of(f"http://127.0.0.1:{port}/v1"))
    assert refused.kind is ErrorKind.UNREACHABLE
    assert "refused" in str(refused.error)
    unknown = Heard(model_of("https://no-such-host.invalid/v1"))
    assert unknown.kind is ErrorKind.UNREACHABLE
    assert "not known" in str(unknown.error)


def test_a_connection_that_never_comes_about_is_unreachable_in_time() -> None:
    with full_backlog() as url:
        started = time.monotonic()
        heard = Heard(model_of(url, limits=Limits(connect=0.4)))
        assert heard.kind is ErrorKind.UNREACHABLE
        assert time.monotonic() - started < 1.5


def test_what_is_no_http_is_malformed() -> None:
    with listener(lambda sock: sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")) as url:
        assert Heard(model_of(url)).kind is ErrorKind.MALFORMED


def test_an_early_refusal_is_heard_although_the_request_was_not_read_to_its_end() -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def refuse(sock: socket.socket) -> None:
        sock.sendall(answer)
        sock.close()  # with most of the request unread: a reset

    with listener(refuse) as url:
        heard = Heard(model_of(url), request_of("x" * 3_000_000))
    assert heard.kind is ErrorKind.TOO_LONG


def test_tls_is_checked_against_the_host_of_the_base_url(tls_server: TLSServer) -> None:
    trusted = Heard(model_of(tls_server.url, tls=tls_server.context()))
    assert trusted.text == TEXT
    assert tls_server.names == ["localhost"]  # SNI is the name, though an address is connected to
    unknown = Heard(model_of(tls_server.url))
    assert unknown.kind is ErrorKind.UNREACHABLE
    assert "certificate" in str(unknown.error)
    other = Heard(
        model_of(tls_server.url.replace("localhost", "127.0.0.1"), tls=tls_server.context())
    )
    assert other.kind is ErrorKind.UNREACHABLE
    plain = Heard(model_of(tls_server.url.replace("https", "http")))
    assert plain.kind in {ErrorKind.UNREACHABLE, ErrorKind.MALFORMED}


def test_an_authority_of_the_operators_own_is_trusted_by_the_environment(
    tls_server: TLSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", tls_server.certificate)
    _tls.cache_clear()
    try:
        assert Heard(model_of(tls_server.url)).text == TEXT
    finally:
        _tls.cache_clear()


def test_a_server_without_tls_is_unreachable_over_https(scripted: ScriptedServer) -> None:
    heard = Heard(model_of(scripted.base_url.replace("http:", "https:"), limits=Limits(connect=1)))
    assert heard.kind is ErrorKind.UNREACHABLE
    assert "TLS" in str(heard.error) or "answer" in str(heard.error)


# --- Stopping -------------------------------------------------------------------------------


class Reader(threading.Thread):
    """Reads one call in a thread of its own."""

    def __init__(self, model: OpenAIChatModel) -> None:
        super().__init__(daemon=True)
        self.stream = model.open(request_of())
        self.events: list[Any] = []
        self.error: BaseException | None = None
        self.first = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            for event in self.stream:
                self.events.append(event)
                self.first.set()
        except BaseException as error:
            self.error = error

    def stopped_within(self, seconds: float = 0.5, *, by: str = "shutdown") -> None:
        started = time.monotonic()
        getattr(self.stream, by)()
        self.join(5)
        assert time.monotonic() - started < seconds
        assert isinstance(self.error, ChatModelError)
        assert self.error.kind is ErrorKind.SHUT_DOWN


@contextmanager
def full_backlog() -> Iterator[str]:
    """An address on which no connection comes about: its queue is full."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        try:
            yield f"http://127.0.0.1:{address[1]}/v1"
        finally:
            for filler in fillers:
                filler.close()


@pytest.mark.parametrize("by", ["shutdown", "close"])
def test_shutdown_before_the_first_step(scripted: ScriptedServer, by: str) -> None:
    stream = model_of(scripted.base_url).open(request_of())
    getattr(stream, by)()
    stream.shutdown()
    with pytest.raises(ChatModelError) as caught:
        list(stream)
    assert caught.value.kind is ErrorKind.SHUT_DOWN
    assert scripted.requests() == []


def test_shutdown_while_the_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        asked.set()
        answer.wait(10)
        raise socket.gaierror

    monkeypatch.setattr("hermes.lib.outbound.socket.getaddrinfo", slow)
    reader = Reader(model_of("https://slow.example.org/v1", limits=Limits(connect=30)))
    assert asked.wait(5)
    reader.stopped_within()
    answer.set()


def test_shutdown_while_connecting() -> None:
    with full_backlog() as url:
        reader = Reader(model_of(url, limits=Limits(connect=30)))
        time.sleep(0.2)  # it has nothing to tell: no connection comes about
        assert reader.is_alive()
        reader.stopped_within()


def test_shutdown_in_the_handshake() -> None:
    begun = threading.Event()
    with listener(lambda sock: begun.set()) as url:
        reader = Reader(model_of(url.replace("http:", "https:"), limits=Limits(connect=30)))
        assert begun.wait(5)
        reader.stopped_within()


def test_shutdown_while_waiting_for_the_headers(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(hold="never"))
    reader = Reader(model_of(scripted.base_url))
    scripted.wait(lambda seen: seen["counts"]["fake-chat"]["open"] == 1)
    reader.stopped_within()
    scripted.wait(lambda seen: seen["counts"]["fake-chat"]["open"] == 0)
    assert scripted.requests()[0]["end"] == "gone"


@pytest.mark.parametrize("by", ["shutdown", "close"])
def test_shutdown_in_a_silent_stream(scripted: ScriptedServer, by: str) -> None:
    scripted.script(default=Behaviour(stall_after=2))
    reader = Reader(model_of(scripted.base_url))
    assert reader.first.wait(5)
    reader.stopped_within(by=by)
    assert reader.events[0] == TextDelta("w1")
    scripted.wait(lambda seen: seen["counts"]["fake-chat"]["open"] == 0)


def test_shutdown_in_a_silent_stream_over_tls(tls_server: TLSServer) -> None:
    tls_server.body = http(f"data: {A}\n\n".encode(), length=10**6)
    reader = Reader(model_of(tls_server.url, tls=tls_server.context()))
    assert reader.first.wait(5)
    reader.stopped_within()


def test_shutdown_in_a_busy_stream(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(endless=True))
    reader = Reader(model_of(scripted.base_url))
    assert reader.first.wait(5)
    reader.stopped_within()


def test_shutdown_by_the_reader_itself_ends_at_the_next_step(scripted: ScriptedServer) -> None:
    stream = model_of(scripted.base_url).open(request_of())
    events = iter(stream)
    assert next(events) == TextDelta("w1")
    stream.shutdown()
    with pytest.raises(ChatModelError) as caught:
        next(events)
    assert caught.value.kind is ErrorKind.SHUT_DOWN


def test_shutdown_at_any_moment_of_a_call(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(tokens_per_second=2000))
    for step in range(40):
        reader = Reader(model_of(scripted.base_url))
        time.sleep(step * 0.0002)  # another moment each time; every one of them must do
        started = time.monotonic()
        reader.stream.shutdown()
        reader.join(5)
        assert time.monotonic() - started < 0.5
        assert reader.error is None or getattr(reader.error, "kind", None) is ErrorKind.SHUT_DOWN
    scripted.wait(lambda seen: seen["counts"]["fake-chat"]["open"] == 0)


def test_closing_after_the_end_and_twice_is_harmless(scripted: ScriptedServer) -> None:
    stream = model_of(scripted.base_url).open(request_of())
    assert isinstance(list(stream)[-1], Finished)
    stream.close()
    stream.close()
    stream.shutdown()


def test_leaving_a_call_in_the_middle_gives_its_connection_back(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(endless=True, tokens_per_second=100))
    stream = model_of(scripted.base_url).open(request_of())
    next(iter(stream))
    stream.close()
    scripted.wait(lambda seen: seen["counts"]["fake-chat"]["open"] == 0)


# --- Secrets (B048) -------------------------------------------------------------------------


def test_the_key_is_in_no_text_that_leaves_the_adapter(
    scripted: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    model = model_of(scripted.base_url)
    stream = model.open(request_of())
    texts = [repr(model), repr(stream), str(model)]
    scripted.script(
        queue=[
            Behaviour(key="another"),  # the provider repeats the key that it refuses
            Behaviour(error_after={"message": f"bad key {KEY}"}),
            refusal(400, "x" * 480 + KEY),  # where the message is cut
            Behaviour(hang_up=True),
        ]
    )
    for _ in range(4):
        try:
            list(model.open(request_of()))
        except ChatModelError as error:
            texts += ["".join(traceback.format_exception(error)), repr(error)]
    texts += [caplog.text, *(str(vars(record)) for record in caplog.records)]
    assert len(texts) > 10
    for text in texts:
        assert KEY not in text
        assert KEY[:12] not in text
    with pytest.raises(TypeError):
        pickle.dumps(model)


def test_a_key_that_cannot_be_one_is_refused_without_a_call(scripted: ScriptedServer) -> None:
    for key in ("sk-one\r\nX-Evil: 1", "schlüssel", "two words"):
        assert hear(scripted, key=key).kind is ErrorKind.AUTHENTICATION
    assert scripted.requests() == []


def test_a_blocked_address_is_not_connected_to(scripted: ScriptedServer) -> None:
    assert hear(scripted, allow_loopback=False).kind is ErrorKind.BLOCKED
    assert Heard(model_of("http://169.254.169.254/v1")).kind is ErrorKind.BLOCKED
    assert Heard(model_of("nonsense")).kind is ErrorKind.BLOCKED
    assert scripted.requests() == []


# --- A server with TLS ------------------------------------------------------------------------


class TLSServer:
    """Answers every request over TLS with ``body``, under a certificate for ``localhost``."""

    def __init__(self, folder: Any) -> None:
        self.names: list[str | None] = []
        self.body = http(PLAIN.encode())
        self.certificate = str(folder / "certificate.pem")
        make_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, str(folder / "key.pem"))
        context.sni_callback = lambda sock, name, context: self.names.append(name)
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self._server.getsockname()[1]}/v1"
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self._server.accept()
            except OSError:
                return
            raw.settimeout(5)
            self._kept.append(raw)
            try:
                sock = self._context.wrap_socket(raw, server_side=True)
                self._kept.append(sock)
                sock.recv(65536)
                sock.sendall(self.body)
            except OSError:
                raw.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(6)
        for sock in self._kept:
            sock.close()


def make_certificate(folder: Any) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


@pytest.fixture
def tls_server(tmp_path: Any) -> Iterator[TLSServer]:
    server = TLSServer(tmp_path)
    yield server
    server.close()
