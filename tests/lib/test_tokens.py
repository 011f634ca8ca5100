"""The estimate of tokens, against counts of two public tokenizers."""

# ruff: noqa: E501 - a sample is easier to count on one line
from __future__ import annotations

import time

import pytest

from hermes.lib.chat import ChatMessage, Role, ToolCall, ToolSpec
from hermes.lib.tokens import PER_MESSAGE, estimate, message_tokens, tools_tokens

# Name, text, and its tokens in cl100k_base and o200k_base.
SAMPLES = [
    (
        "english",
        "People hold long conversations with an assistant, and every one of them expects that nothing they said last week has been forgotten. The system keeps what was written, summarises what is old, and says honestly what it left out.",
        45,
        45,
    ),
    (
        "python",
        'def advance(self, pk: int, to: str) -> bool:\n    """Move one row; report whether the write landed."""\n    sources = [s for s, targets in self.MOVES.items() if to in targets]\n    return self.filter(pk=pk, status__in=sources).update(status=to) == 1\n',
        70,
        71,
    ),
    (
        "json",
        '{"id": 4711, "name": "worker-3", "score": 0.8731, "tags": ["alpha", "beta"], "ok": true, "parent": null, "path": "/var/lib/hermes/data.json"}',
        54,
        54,
    ),
    (
        "russian",
        "Сегодня утром мы обсуждали план работы на следующую неделю и решили, что сначала нужно исправить ошибки в программе.",
        47,
        23,
    ),
    (
        "chinese",
        "今天早上我们讨论了下周的工作计划,决定先修复程序中的错误,然后再添加新的功能。如果您有任何问题,请写信给我们。",
        51,
        37,
    ),
    (
        "log",
        "2026-11-30T16:34:07.123456Z INFO [worker-3] req=9f86d081884c7d65 took 1834ms path=/api/v1/items/48213 status=200\n2026-11-30T16:34:07.123456Z INFO [worker-3] req=9f86d081884c7d65 took 1834ms path=/api/v1/items/48213 status=200\n2026-11-30T16:34:07.123456Z INFO [worker-3] req=9f86d081884c7d65 took 1834ms path=/api/v1/items/48213 status=200\n",
        156,
        156,
    ),
    (
        "german",
        "Heute Morgen besprachen wir den Arbeitsplan für die nächste Woche und beschlossen, zuerst die Fehler im Programm zu beheben.",
        32,
        25,
    ),
    ("emoji", "Great 👍🎉 let's go 🚀 family 👩\u200d👩\u200d👧 done ✅", 28, 19),
]


@pytest.mark.parametrize(("name", "text", "older", "newer"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_the_estimate_lies_between_the_tokenizers_or_close(
    name: str, text: str, older: int, newer: int
) -> None:
    low, high = sorted((older, newer))
    assert 0.85 * low <= estimate(text) <= 1.2 * high


def test_nothing_is_nothing_and_anything_is_something() -> None:
    assert estimate("") == 0
    for text in (" ", "\n", "a", "_", "\x00", "\ud800", "é", "١"):
        assert estimate(text) >= 1


def test_a_megabyte_takes_a_moment() -> None:
    times = []
    for _, text, _, _ in SAMPLES:
        size = len(text.encode("utf-8"))
        big = text * (1_000_000 // size)
        started = time.process_time()
        estimate(big)
        times.append(time.process_time() - started)
    print("seconds for 1 MB:", [round(seconds, 3) for seconds in times])
    assert sorted(times)[len(times) // 2] < 0.4  # 0.07 on a machine of one's own
    assert max(times) < 0.8


def test_no_text_makes_it_slow() -> None:
    started = time.process_time()
    for text in ("\n \n" * 100_000, " " * 500_000, "A" * 500_000, "é" * 500_000, "_" * 500_000):
        estimate(text)
    assert time.process_time() - started < 2


def test_messages_count_their_calls_and_requests_their_tools() -> None:
    plain = ChatMessage(Role.USER, "hello there")
    assert message_tokens(plain) == PER_MESSAGE + estimate("hello there")
    call = ToolCall("a", "now", '{"zone": "UTC"}')
    assert message_tokens(ChatMessage(Role.ASSISTANT, "", (call,))) > PER_MESSAGE + 8
    tool = ToolSpec("now", "The time in a zone.", {"type": "object", "properties": {}})
    assert 15 < tools_tokens([tool]) < 80
