"""The scripted server itself: what other tests rely on."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from hermes.lib.chat import ChatMessage, ChatRequest, Limits, Role, TextDelta, ToolCall
from hermes.lib.chat_openai import OpenAIChatModel
from tests.scripted import (
    Behaviour,
    Call,
    RemoteScripted,
    Rule,
    ScriptedServer,
    expected_answer,
    expected_summary,
    scripted_process,
)
from tests.scripted.strict import violations


def answer(base_url: str, text: str, model: str = "fake-chat") -> str:
    chat = OpenAIChatModel("m", 8192, base_url, "key", model, Limits(), allow_loopback=True)
    events = chat.open(ChatRequest([ChatMessage(Role.USER, text)]))
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def post(url: str, body: bytes) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=5) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_answers_follow_from_the_question(scripted: ScriptedServer) -> None:
    assert answer(scripted.base_url, "say 500 words") == expected_answer("say 500 words")
    assert expected_answer("a") != expected_answer("b")
    assert answer(scripted.base_url, "x", "fake-sum") == expected_summary("x")
    until = time.monotonic() + 5  # the answer is here a moment before the server has counted it
    expected = {"open": 0, "closed": 1}
    while (counts := scripted.report()["counts"])["fake-sum"] != expected:
        assert time.monotonic() < until, counts
    assert counts["fake-chat"] == expected


def test_queue_before_rules_before_default(scripted: ScriptedServer) -> None:
    scripted.script(
        default=Behaviour(text="default"),
        queue=[Behaviour(text="queued")],
        rules=[Rule("magic", Behaviour(text="ruled"), times=1)],
    )
    said = [answer(scripted.base_url, "magic words") for _ in range(3)]
    assert said == ["queued", "ruled", "default"]
    scripted.reset()
    assert answer(scripted.base_url, "x") == expected_answer("x")


def test_calls_are_made_once_and_then_the_answer_is_given(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(calls=(Call("now"),)))
    model = OpenAIChatModel("m", 8192, scripted.base_url, "", "fake-chat", allow_loopback=True)
    question = ChatMessage(Role.USER, "time?")
    first = list(model.open(ChatRequest([question])))
    calls: tuple[ToolCall, ...] = first[-1].tool_calls  # type: ignore[union-attr]
    result = ChatMessage(Role.TOOL, "noon", tool_call_id=calls[0].id)
    again = [question, ChatMessage(Role.ASSISTANT, "", calls), result]
    said = [e.text for e in model.open(ChatRequest(again)) if isinstance(e, TextDelta)]
    assert "".join(said) == expected_answer("time?")


def test_a_barrier_holds_until_it_is_released(scripted: ScriptedServer) -> None:
    scripted.script(default=Behaviour(hold="gate", hold_at=2))
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(answer(scripted.base_url, "x")))
    thread.start()
    seen = scripted.wait(lambda r: r["requests"] and r["requests"][0]["sent"] == 2 and r)
    assert seen["counts"]["fake-chat"]["open"] == 1
    assert said == []
    scripted.release("gate")
    thread.join(5)
    assert said == [expected_answer("x")]
    assert scripted.requests()[0]["end"] == "done"


def test_strict_mode_refuses_and_counts(scripted: ScriptedServer) -> None:
    url = f"{scripted.base_url}/chat/completions"

    def say(*messages: dict[str, Any]) -> int:
        return post(url, json.dumps({"model": "fake-chat", "messages": messages}).encode())[0]

    user = {"role": "user", "content": "x"}
    assert say(user, user) == 400
    assert post(url, b'{"model": "\xff"}')[0] == 400
    assert post(url, b'{"model": "fake-chat", "messages": [{"content": "\\ud800"}]}')[0] == 400
    assert scripted.report()["violations"] == 3
    assert scripted.violations() == ["message 1 (user): neighbour of the same role"]
    scripted.strict(False)
    scripted.script(default=Behaviour(stream=False))
    assert say(user, user) == 200


def test_what_strict_mode_knows() -> None:
    def call(arguments: str = "{}", id_: str = "a") -> dict[str, Any]:
        return {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}

    user = {"role": "user", "content": "x"}
    result = {"role": "tool", "tool_call_id": "a", "content": "ok"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call()]}
    said = {"role": "assistant", "content": "ok"}
    assert violations({"messages": [user, calling, result, said, user]}) == []
    for messages in (
        [],
        [{"role": "user", "content": " "}],
        [{"role": "owner", "content": "x"}],
        [user, {"role": "system", "content": "x"}, user],
        [user, result],
        [user, calling, user],
        [user, calling],
        [user, said],
        [user, said, said, user],
        [user, calling, result, result],
        [user, {**calling, "tool_calls": [call("{half")]}, result],
        [user, {**calling, "tool_calls": [call("[]")]}, result],
        [user, {**calling, "tool_calls": [call(), call()]}, result, result],
    ):
        assert violations({"messages": messages}), messages


def test_the_models_are_listed_and_other_addresses_are_not_found(scripted: ScriptedServer) -> None:
    with urllib.request.urlopen(f"{scripted.base_url}/models", timeout=5) as reply:
        assert [m["id"] for m in json.load(reply)["data"]] == ["fake-chat", "fake-sum"]
    assert post(f"{scripted.address}/other", b"{}")[0] == 404


def test_a_process_of_its_own_serves_many_streams_at_their_rate() -> None:
    with scripted_process() as server:
        assert isinstance(server, RemoteScripted)
        server.script(default=Behaviour(tokens_per_second=50, hold="all are here"))
        said: dict[str, str] = {}

        def ask(question: str) -> None:
            said[question] = answer(server.base_url, question)

        questions = [f"say 49 words {n}" for n in range(64)]
        threads = [threading.Thread(target=ask, args=(question,)) for question in questions]
        for thread in threads:
            thread.start()
        server.wait(lambda seen: seen["counts"].get("fake-chat", {}).get("open") == 64, 30)
        started = time.monotonic()
        server.release("all are here")
        for thread in threads:
            thread.join(30)
        seconds = time.monotonic() - started
        print(f"64 streams of 50 tokens at 50/s took {seconds:.2f} s")
        assert said == {question: expected_answer(question) for question in questions}
        report = server.report()
        assert report["counts"]["fake-chat"] == {"open": 0, "closed": 64}
        assert report["most_open"] == 64
        # One after the other they would take 64 seconds.
        assert 1.0 <= seconds < 16
        server.release("anything")
        server.strict(True)
        server.reset()
        assert server.requests() == []
        assert server.violations() == []
        server.wait(lambda seen: seen["violations"] == 0)
