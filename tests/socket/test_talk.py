"""Saying something and being answered, over the socket."""

from __future__ import annotations

import pytest

from .client import Client
from .conftest import rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


async def test_a_message_is_streamed_to_the_end(web, worker):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        hello = await client.frame("hello")
        accepted = await client.submit("!say 200 words")
        done = await client.ended(accepted["turn"])
        await client.frame("meter")

    assert (hello["session"], hello["turn"]) == (None, None)
    assert accepted["type"] == "turn.accepted"
    assert done.answer.split()[:3] == ["one", "more", "word"]
    assert len(done.answer.split()) == 200
    assert sum(frame["type"] == "turn.delta" for frame in client.frames) > 2
    assert client.faults == []
