"""Several views of one chat agree, whenever they come and however slowly they read."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from hermes.lib.db import DbNow
from sessions_app import intake
from sessions_app.models import Chat, Session, Turn

from .client import Client
from .conftest import rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]
FULL = os.environ.get("HERMES_TEST_SIZE") == "full"


def resident(process) -> int:
    """Bytes that a process holds in memory."""
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_views_that_come_in_the_middle_see_a_prefix_and_the_same_end(web, worker):
    chat, cookie = await rows(someone)()
    uid = str(chat.uid)
    async with Client(web.address, uid, cookie) as first:
        turn = (await first.submit("!say 60 words slowly"))["turn"]
        views = []
        for count in (10, 100, 200):
            await first.until(lambda n=count: len(first.turn(turn).text) >= n)
            view = await Client(web.address, uid, cookie).open()
            hello = await view.frame("hello")
            shown = hello["turn"]["text"]
            assert first.turn(turn).text.startswith(shown) or shown.startswith(
                first.turn(turn).text
            )
            assert len(shown) >= count - 15  # nothing that was shown elsewhere is missing
            views.append(view)
        done = await first.ended(turn)
        for view in views:
            assert (await view.ended(turn)).answer == done.answer
            await view.close()
            assert view.faults == []
    assert len(done.answer.split()) == 60
    assert first.faults == []


async def test_coming_back_repeats_nothing(web, worker):
    chat, cookie = await rows(someone)()
    client = Client(web.address, str(chat.uid), cookie)
    await client.open()
    for n in range(3):
        turn = (await client.submit(f"!say {n + 1} words"))["turn"]
        await client.ended(turn)
    shown = None
    for _ in range(10):
        await client.close(rudely=True)
        hellos = client.hellos
        await client.open()
        await client.until(lambda h=hellos: client.hellos > h)
        if shown is not None:
            assert client.messages == shown
        shown = dict(client.messages)
    await client.close()
    assert len(shown) == 6
    assert client.faults == []


async def test_a_message_that_is_sent_again_is_one_turn(own_web, own_worker):
    chat, cookie = await rows(someone)()
    client = await Client(own_web.address, str(chat.uid), cookie).open()
    await client.frame("hello")
    await client.send("turn.submit", id="only-once-3", text="only-once-3", ref="a")
    await client.close(rudely=True)
    answers = []
    for n in range(3):
        async with Client(own_web.address, str(chat.uid), cookie) as again:
            await again.send("turn.submit", id="only-once-3", text="only-once-3", ref=str(n))
            answers.append(await again.frame("turn.accepted", ref=str(n)))
            if n == 1:
                own_web.kill()
                await asyncio.to_thread(own_web.start)
    async with Client(own_web.address, str(chat.uid), cookie) as other:
        reused = await other.submit("other text", key="only-once-3")
        fresh = await other.submit("only-once-3", key="another")
        await other.ended(fresh["turn"])

    assert len({answer["turn"] for answer in answers}) == 1
    assert [answer["known"] for answer in answers[1:]] == [True, True]
    assert reused["code"] == "id_reused"
    assert await rows(Turn.objects.count)() == 2


async def test_two_tabs_queue_behind_each_other(web, worker):
    chat, cookie = await rows(someone)()
    uid = str(chat.uid)
    async with Client(web.address, uid, cookie) as one, Client(web.address, uid, cookie) as two:
        first = (await one.submit("!say 40 words slowly"))["turn"]
        await one.until(lambda: one.turn(first).text)
        second = (await two.submit("!say 2 words"))["turn"]
        await one.until(lambda: [item["turn"] for item in one.queue] == [second])
        await two.until(lambda: [item["turn"] for item in two.queue] == [second])
        await one.send("queue.edit", turn=second, text="!say 3 words")
        await two.until(lambda: two.queue and two.queue[0]["text"] == "!say 3 words")
        await one.ended(second)
        done = await two.ended(second)
        await one.until(lambda: not one.queue)
        assert one.turns[second].answer == done.answer == "one more word"
        assert one.turns[first].answer == two.turns[first].answer
    assert one.faults == two.faults == []


async def test_new_in_one_tab_is_new_in_the_other(web, worker):
    chat, cookie = await rows(someone)()
    uid = str(chat.uid)
    async with Client(web.address, uid, cookie) as one, Client(web.address, uid, cookie) as two:
        turn = (await one.submit("!say 400 words slowly"))["turn"]
        waiting = await one.submit("waits")
        await two.until(lambda: two.turn(turn).text)
        reply = await one.submit("/new", key="n")
        again = await one.submit("/new", key="n")
        await two.frame("session.changed", reason="new", seconds=5)
        await one.until(lambda: one.session and one.session["number"] == 2)
        await two.until(lambda: two.session and two.session["number"] == 2)
        assert two.turns[turn].status == "cancelled"
        assert two.turns[waiting["turn"]].status == "cancelled"
    assert (reply["code"], reply["drafts"]) == ("session_new", ["waits"])
    assert again["drafts"] == ["waits"]
    assert one.faults == two.faults == []


async def test_regenerating_replaces_the_log_and_the_older_answer_comes_back(web, worker):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        turn = (await client.submit("!say 3 words"))["turn"]
        await client.ended(turn)
        await client.send("turn.regenerate", id="r", ref="r")
        again = (await client.frame("turn.accepted", ref="r"))["turn"]
        await client.frame("session.changed", reason="rewind")
        await client.ended(again)
        undone = await client.submit("/undo")
        await client.until(lambda: not client.messages)
        await client.send("rewind.undo", rewind=undone["rewind"])
        await client.until(lambda: len(client.messages) == 2)
    assert undone["drafts"] == ["!say 3 words"]
    assert client.faults == []


async def test_an_idle_chat_says_nothing(web):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        await asyncio.sleep(3)
    assert [frame["type"] for frame in client.frames] == ["hello"]


async def test_the_sidebar_moves_also_before_the_first_look(web):
    """A person whom the process has not seen: what their page shows is from before the socket."""
    other, others = await rows(someone)()
    async with Client(web.address, str(other.uid), others) as keeps_the_clock_busy:
        await keeps_the_clock_busy.frame("hello")
        for _ in range(3):  # whenever in its second the clock is
            chat, cookie = await rows(someone)()
            async with Client(web.address, str(chat.uid), cookie) as client:
                await client.frame("hello")
                await rows(intake.rename)(chat_id=chat.pk, user_id=chat.owner_id, title="Named")
                await client.frame("sidebar", seconds=3)


async def test_the_sidebar_moves_at_the_first_change_after_a_long_rest(web):
    """Whoever has rested when the process first sees them: no look tells where they stand."""
    chat, cookie = await rows(someone)()
    await rows(rested)(chat)
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        await asyncio.sleep(1.2)
        await rows(intake.rename)(chat_id=chat.pk, user_id=chat.owner_id, title="Named")
        await client.frame("sidebar", seconds=3)


def rested(chat: Chat) -> None:
    """Nothing of this chat has moved for an hour."""
    long_ago = DbNow() - timedelta(hours=1)
    Chat.objects.filter(pk=chat.pk).update(touched_at=long_ago)
    Session.objects.filter(chat=chat).update(touched_at=long_ago)


async def test_the_sidebar_moves_for_the_owner_alone(web):
    chat, cookie = await rows(someone)()
    other, others = await rows(someone)()
    async with (
        Client(web.address, str(chat.uid), cookie) as client,
        Client(web.address, str(other.uid), others) as stranger,
    ):
        await client.frame("hello")
        await stranger.frame("hello")
        await asyncio.sleep(1.2)
        elsewhere = await rows(intake.create_chat)(user_id=chat.owner_id)
        await rows(intake.rename)(chat_id=elsewhere.pk, user_id=chat.owner_id, title="Named")
        await client.frame("sidebar", seconds=3)
        await rows(intake.rename)(chat_id=chat.pk, user_id=chat.owner_id, title="This one")
        changed = await client.frame("chat.changed", seconds=3)
    assert changed["chat"]["title"] == "This one"
    assert "sidebar" not in {frame["type"] for frame in stranger.frames}


async def test_one_that_acks_slowly_is_not_sent_what_it_cannot_take(web, worker):
    """From its first ack on, a client is sent no more than it takes, and then the present."""
    chat, cookie = await rows(someone)()
    slow = await Client(web.address, str(chat.uid), cookie).open()
    await slow.frame("hello")
    await slow.send("ack", n=1)
    for n in range(300):
        await slow.send("ping", nonce=str(n))
    await slow.frame("pong", nonce="299")
    turn = (await slow.submit("!say 100 words"))["turn"]
    async with Client(web.address, str(chat.uid), cookie) as other:
        whole = await other.ended(turn)
    await asyncio.sleep(0.5)
    assert turn not in slow.turns
    await slow.send("ack", n=slow.frames[-1]["n"])
    assert (await slow.ended(turn)).answer == whole.answer
    await slow.close()
    assert slow.faults == []


@pytest.mark.skipif(not FULL, reason="takes 35 seconds")
async def test_one_that_acks_and_falls_silent_is_let_go(web, worker):
    chat, cookie = await rows(someone)()
    client = await Client(web.address, str(chat.uid), cookie).open()
    await client.frame("hello")
    await client.send("ack", n=1)
    await client.submit("!say 3 words")
    began = time.monotonic()
    await client.until(lambda: client.close_code, 45)
    assert client.close_code == 4408
    assert time.monotonic() - began > 25


async def test_many_idle_sockets_do_not_slow_a_stream(web, worker, capsys):
    count = 1000 if FULL else 60
    people = []
    for _ in range(count // 40 + 1):
        people.append(await rows(someone)())
    clients = []
    for n in range(count):
        chat, cookie = people[n % len(people)]
        clients.append(await Client(web.address, str(chat.uid), cookie).open())
    for client in clients:
        await client.frame("hello", seconds=30)
    before = resident(web)
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as active:
        began = time.monotonic()
        turn = (await active.submit("!say 200 words"))["turn"]
        await active.ended(turn)
        took = time.monotonic() - began
    for client in clients:
        await client.close()
    with capsys.disabled():
        grown = (resident(web) - before) / 1e6
        print(f"\n  {count} idle sockets: 200 words in {took:.2f} s, {grown:.1f} MB more")
    assert took < 6
    assert all(len(client.frames) == 1 for client in clients)
