"""A socket hears of what changes while it makes its first look: it subscribes before it reads."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from channels_redis.pubsub import RedisPubSubLoopLayer
from django.conf import settings

from hermes.web import consumers, poller, reading
from sessions_app import intake

from .conftest import rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


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
    heard: asyncio.Queue[dict] = asyncio.Queue()
    said: asyncio.Queue[dict] = asyncio.Queue()
    scope = {
        "type": "websocket",
        "cookies": {settings.SESSION_COOKIE_NAME: cookie.partition("=")[2]},
        "url_route": {"kwargs": {"uid": str(chat.uid)}},
        "query_string": b"html=0",
    }
    said.put_nowait({"type": "websocket.connect"})
    socket = asyncio.create_task(consumers.ChatSocket()(scope, said.get, heard.put))
    told = []
    try:
        async with asyncio.timeout(8):
            while "chat.changed" not in [frame["type"] for frame in told]:
                message = await heard.get()
                if "text" in message:
                    told.append(json.loads(message["text"]))
    except TimeoutError:
        pass
    said.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await socket
    for task in list(poller.hub()._tasks):
        task.cancel()
    assert [frame["type"] for frame in told] == ["hello", "chat.changed"]
    assert told[0]["chat"]["title"] == ""
    assert told[1]["chat"]["title"] == "Renamed meanwhile"
