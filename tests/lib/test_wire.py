"""Whatever the rows say, what is sent is valid for a strict provider."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.lib.chat import ChatMessage, Role, ToolCall
from hermes.lib.wire import NO_OUTPUT, NO_RESULT, wire
from tests.scripted.strict import violations

TEXTS = st.sampled_from(["", " \n", "a", "b\x00", "\ud800", "long text"])
IDS = st.sampled_from(["", "a", "b", "c"])
ARGUMENTS = st.sampled_from(["", "{}", '{"a": 1}', '{"a', "null", "[1]", '{"a":1}{"a":1}', "\x00"])
CALLS = st.builds(ToolCall, IDS, st.sampled_from(["f", "g"]), ARGUMENTS)
MESSAGES = st.lists(
    st.one_of(
        st.builds(ChatMessage, st.sampled_from([Role.SYSTEM, Role.USER, Role.ASSISTANT]), TEXTS),
        st.builds(
            ChatMessage,
            st.just(Role.ASSISTANT),
            TEXTS,
            st.lists(CALLS, min_size=1, max_size=3).map(tuple),
        ),
        st.builds(ChatMessage, st.just(Role.TOOL), TEXTS, st.just(()), IDS),
    ),
    max_size=8,
)


@settings(max_examples=400, deadline=None)
@given(MESSAGES)
def test_any_rows_become_a_valid_request(messages: list[ChatMessage]) -> None:
    sent = wire([*messages, ChatMessage(Role.USER, "and now?")])
    assert violations({"messages": sent}) == []
    json.dumps(sent, ensure_ascii=False).encode("utf-8")


@settings(max_examples=100, deadline=None)
@given(MESSAGES)
def test_no_text_of_a_person_is_lost(messages: list[ChatMessage]) -> None:
    sent = wire(messages)
    said = "".join(m["content"] or "" for m in sent if m["role"] == "user")
    for message in messages:
        if message.role is Role.USER and message.text.strip("\x00\ud800 \n"):
            assert message.text.strip("\x00\ud800") in said


def test_valid_messages_are_sent_as_they_are() -> None:
    call = ToolCall("c1", "now", '{"zone": "UTC"}')
    sent = wire(
        [
            ChatMessage(Role.SYSTEM, "be brief"),
            ChatMessage(Role.USER, "what time is it?"),
            ChatMessage(Role.ASSISTANT, "let me look", (call,)),
            ChatMessage(Role.TOOL, "noon", tool_call_id="c1"),
            ChatMessage(Role.ASSISTANT, "It is noon."),
        ]
    )
    function = {"name": "now", "arguments": '{"zone": "UTC"}'}
    assert sent == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "what time is it?"},
        {
            "role": "assistant",
            "content": "let me look",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "assistant", "content": "It is noon."},
    ]


def test_a_result_belongs_to_the_call_before_it_and_to_no_other() -> None:
    calls = (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))
    sent = wire(
        [
            ChatMessage(Role.TOOL, "too early", tool_call_id="a"),
            ChatMessage(Role.ASSISTANT, "", calls),
            ChatMessage(Role.USER, "hurry"),
            ChatMessage(Role.TOOL, "", tool_call_id="b"),
            ChatMessage(Role.ASSISTANT, "done"),
            ChatMessage(Role.TOOL, "too late", tool_call_id="a"),
        ]
    )
    assert [m["role"] for m in sent] == ["assistant", "tool", "tool", "user", "assistant"]
    assert [m["content"] for m in sent[1:3]] == [NO_RESULT, NO_OUTPUT]


def test_broken_arguments_are_shown_to_the_model_and_not_repaired() -> None:
    sent = wire([ChatMessage(Role.ASSISTANT, "", (ToolCall("a", "f", '{"path": "a'),))])
    arguments = json.loads(sent[0]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"not_json": '{"path": "a'}
