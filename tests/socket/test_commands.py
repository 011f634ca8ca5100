"""What a person can type instead of a message."""

from __future__ import annotations

import pytest

from sessions_app.models import Chat, Session, Turn

from .client import Client
from .conftest import rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


async def test_commands_are_answered_by_notices_and_are_no_messages(web, worker):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        early = await client.submit("/status")
        nothing = await client.submit("/undo", key="u0")
        turn = (await client.submit("!say 3 words"))["turn"]
        await client.ended(turn)
        told = {
            name: await client.submit(text)
            for name, text in {
                "status": "/status",
                "help": "/help",
                "stop": "/stop",
                "title": "/title Ours",
                "none": "/title",
                "unknown": "/etc/passwd\nis a file",
            }.items()
        }
        retried = await client.submit("/retry")
        await client.ended(retried["turn"])
        undone = await client.submit("/undo")
        escaped = (await client.submit("//new is a command"))["turn"]
        await client.ended(escaped)
        renamed = await rows(lambda: Chat.objects.get(pk=chat.pk).title)()
        texts = await rows(lambda: set(Turn.objects.values_list("text", flat=True)))()

    assert {reply["type"] for reply in told.values()} == {"notice"}
    assert (early["code"], nothing["code"]) == ("status", "nothing_to_redo")
    assert "tokens" in told["status"]["text"]
    assert "/undo" in told["help"]["text"]
    assert told["stop"]["code"] == "nothing_runs"
    assert (told["title"]["code"], renamed) == ("renamed", "Ours")
    assert told["none"]["level"] == "warn"
    assert told["unknown"]["code"] == "unknown_command"
    assert told["unknown"]["drafts"] == ["/etc/passwd\nis a file"]
    assert undone["drafts"] == ["!say 3 words"]
    assert texts == {"!say 3 words", "", "/new is a command"}
    assert client.faults == []


@pytest.mark.parametrize("command", ["/new", "/undo", "/title A name", "/nonsense"])
async def test_a_command_that_is_sent_again_is_carried_out_once(web, worker, command):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        for n in range(2):
            turn = (await client.submit(f"!say {n + 1} words"))["turn"]
            await client.ended(turn)
        first = await client.submit(command, key="once")
        await client.close(rudely=True)
        client.frames.clear()
        await client.open()
        again = await client.submit(command, key="once")
        other = await client.submit("something else", key="once")

    names = ("code", "level", "text", "drafts", "rewind")
    assert [first.get(name) for name in names] == [again.get(name) for name in names]
    assert other["code"] == "id_reused"
    assert await rows(Session.objects.count)() == (2 if command == "/new" else 1)


async def test_the_meter_counts(web, worker):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        turn = (await client.submit("!say 50 words"))["turn"]
        await client.ended(turn)
        meter = await client.frame("meter")
    assert meter["used"] > meter["system"] + meter["tools"] > 0
    assert meter["free"] == meter["window"] - meter["reserve"] - meter["used"]
    assert meter["turns_left"] > 10
    assert meter["is_estimate"] in {True, False}
