"""When a socket reads: not before it subscribes, and not in the moment in which its turn begins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator

import pytest
from channels_redis.pubsub import RedisPubSubLoopLayer
from django.conf import settings

from hermes.web import consumers, poller, reading, requests
from sessions_app import intake, transcript
from tests import factories, states

from .conftest import rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


class Seat:
    """A socket without a server or a client, and what it was told."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[dict] = asyncio.Queue()
        self.said: asyncio.Queue[dict] = asyncio.Queue()
        self.told: list[dict] = []

    def say(self, **frame: object) -> None:
        self.said.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})

    async def until(self, kind: str) -> list[dict]:
        """All frames so far, once one of this kind is there; or after 8 seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(8):
                while kind not in [frame["type"] for frame in self.told]:
                    message = await self.heard.get()
                    if "text" in message:
                        self.told.append(json.loads(message["text"]))
        return self.told


@contextlib.asynccontextmanager
async def seated(chat, cookie) -> AsyncIterator[Seat]:
    """A person's socket at a chat, which leaves afterwards, and the hub with it."""
    seat = Seat()
    scope = {
        "type": "websocket",
        "cookies": {settings.SESSION_COOKIE_NAME: cookie.partition("=")[2]},
        "url_route": {"kwargs": {"uid": str(chat.uid)}},
        "query_string": b"html=0",
    }
    seat.said.put_nowait({"type": "websocket.connect"})
    socket = asyncio.create_task(consumers.ChatSocket()(scope, seat.said.get, seat.heard.put))
    try:
        yield seat
    finally:
        seat.said.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await socket
        for task in list(poller.hub()._tasks):
            task.cancel()


async def never(_hub) -> None:
    """In the place of the poll, which would find the change a second later."""
    await asyncio.Event().wait()


async def test_what_changes_during_the_first_look_is_told(monkeypatch):
    chat, cookie = await rows(someone)()
    look, looks = reading.look, []
    send, is_sent = RedisPubSubLoopLayer.group_send, threading.Event()

    async def sent(layer, group, message):
        await send(layer, group, message)
        is_sent.set()

    def looked(*args, **kwargs):
        seen = look(*args, **kwargs)
        looks.append(seen)
        if len(looks) == 1:  # after the snapshot, before it is told
            intake.rename(chat_id=chat.pk, user_id=chat.owner_id, title="Renamed meanwhile")
            assert is_sent.wait(5)  # who is not in the group by now never hears of it
        return seen

    monkeypatch.setattr(RedisPubSubLoopLayer, "group_send", sent)
    monkeypatch.setattr(reading, "look", looked)
    monkeypatch.setattr(poller.Hub, "_clock", never)

    async with seated(chat, cookie) as seat:
        told = await seat.until("chat.changed")

    assert [frame["type"] for frame in told] == ["hello", "chat.changed"]
    assert told[0]["chat"]["title"] == ""
    assert told[1]["chat"]["title"] == "Renamed meanwhile"


async def _ignored(*_args) -> None:
    """In the place of a push, which may be lost."""


async def test_a_turn_that_does_not_begin_is_shown_though_every_hint_is_lost(monkeypatch):
    chat, cookie = await rows(someone)()
    monkeypatch.setattr(RedisPubSubLoopLayer, "group_send", _ignored)
    monkeypatch.setattr(poller.Hub, "_clock", never)

    async with seated(chat, cookie) as seat:
        await seat.until("hello")
        seat.say(type="turn.submit", id="one", text="hello?")
        told = await seat.until("session.changed")

    kinds = [frame["type"] for frame in told]
    assert kinds[1:] == ["turn.accepted", "session.changed"]


def _begun(session: int) -> transcript.Claimed:
    """The queued turn of a session, as a worker starts it."""
    claimed = transcript.claim(session)
    assert claimed is not None
    assert transcript.start(claimed)
    return claimed


@pytest.mark.parametrize("is_early", [False, True], ids=["answer first", "hint first"])
async def test_a_turn_that_begins_at_once_is_looked_at_once(monkeypatch, is_early):
    """Its queueing and its start are told together: a look in between would hold up the start."""
    chat, cookie = await rows(someone)()
    # The first turn opens the session; who looks at another session reads everything anew.
    session = (await rows(factories.say)(chat, "before")).session_id
    assert await rows(transcript.finish)(await rows(_begun)(session), states.answer("yes?"))
    monkeypatch.setattr(poller.Hub, "_clock", never)
    monkeypatch.setattr(consumers, "BEGIN_SECONDS", 60.0)
    look, looks = reading.look, []
    hint, hinted, is_hinted = poller.Hub.hint, asyncio.Event(), threading.Event()
    carry_out = requests.carry_out

    def looked(*args, **kwargs):
        looks.append(seen := look(*args, **kwargs))
        return seen

    def told_of(hub, event):
        hint(hub, event)
        if event["type"] == "session.moved":
            hinted.set()
            is_hinted.set()

    def carried_out(*args):
        done = carry_out(*args)
        assert not is_early or is_hinted.wait(5)
        return done

    monkeypatch.setattr(requests, "carry_out", carried_out)
    monkeypatch.setattr(poller.Hub, "hint", told_of)
    async with seated(chat, cookie) as seat:
        await seat.until("hello")
        monkeypatch.setattr(reading, "look", looked)
        seat.say(type="turn.submit", id="one", text="hello?")
        async with asyncio.timeout(5):
            await hinted.wait()  # of the queueing
            await seat.until("turn.accepted")
        await rows(_begun)(session)
        told = await seat.until("turn.started")

    kinds = [frame["type"] for frame in told]
    assert kinds[1:] == ["turn.accepted", "turn.started"]
    assert len(looks) == 1


async def test_what_is_queued_in_a_new_session_is_shown_though_every_hint_is_lost(monkeypatch):
    """Versions begin again with a session: the one before was further."""
    chat, cookie = await rows(someone)()
    for word in ("one", "two", "three"):
        session = (await rows(factories.say)(chat, word)).session_id
        assert await rows(transcript.finish)(await rows(_begun)(session), states.answer("yes?"))
    monkeypatch.setattr(RedisPubSubLoopLayer, "group_send", _ignored)
    monkeypatch.setattr(poller.Hub, "_clock", never)

    async with seated(chat, cookie) as seat:
        await seat.until("hello")
        who = {"chat_id": chat.pk, "user_id": chat.owner_id}
        await rows(intake.new_session)(**who, client_id="from another tab")
        seat.say(type="turn.submit", id="four", text="hello?")
        told = await seat.until("session.changed")

    assert [frame["type"] for frame in told][1:] == ["turn.accepted", "session.changed"]
