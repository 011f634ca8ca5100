"""Who may open a socket, for how long, and what it does with what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
import zlib

import pytest
import websockets
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session as Login

from sessions_app import intake, transcript
from sessions_app.models import Chat, Message, Turn
from tests import factories

from .client import Client
from .conftest import Web, rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


async def refused(web, uid, cookie, **more) -> int:
    """The status of a handshake that is refused."""
    with pytest.raises(websockets.InvalidStatus) as told:
        await Client(web.address, str(uid), cookie, **more).open()
    return told.value.response.status_code


async def closed(web, uid, cookie) -> tuple[int, list[dict]]:
    """The code with which a socket is closed at once, and what was said before."""
    client = await Client(web.address, str(uid), cookie).open()
    await client.until(lambda: client.close_code)
    return client.close_code, client.frames


async def test_only_our_origins_may_open_a_socket(web):
    chat, cookie = await rows(someone)()
    ours = f"127.0.0.1:{web.port}"
    for origin in (
        "null",
        f"https://{ours}",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        f"http://{ours}.example.com",
        f"http://evil-{ours}",
        "http://xn--localhost-9za.example",
        "http://localhost:99999",
        "file://",
        f"http://user@evil.example:{web.port}",
    ):
        # 400: the server itself cannot read it
        assert await refused(web, chat.uid, cookie, origin=origin) in {400, 403}, origin
    async with Client(web.address, str(chat.uid), cookie, origin=f"HTTP://{ours}") as client:
        await client.frame("hello")


async def test_a_handshake_without_origin_is_refused(web):
    chat, cookie = await rows(someone)()
    with pytest.raises(websockets.InvalidStatus) as told:
        await websockets.connect(
            f"{web.address}/ws/chats/{chat.uid}/", additional_headers={"Cookie": cookie}
        )
    assert told.value.response.status_code == 403


async def test_nobody_gets_in_without_a_login(web):
    chat, cookie = await rows(someone)()
    for bad in ("", "sessionid=", "sessionid=nonsense", "sessionid=" + "x" * 5000, cookie + "x"):
        assert await refused(web, chat.uid, bad) == 403
    other = await Client(web.address, str(chat.uid), cookie).open()
    await other.frame("hello")
    await other.close()
    with pytest.raises(websockets.InvalidStatus):
        await websockets.connect(
            f"{web.address}/ws/elsewhere/",
            origin=f"http://127.0.0.1:{web.port}",
            additional_headers={"Cookie": cookie},
        )


async def test_a_foreign_chat_is_as_absent_as_one_that_is_not(web):
    chat, _cookie = await rows(someone)()
    _other, stranger = await rows(someone)()
    answers = [
        await closed(web, uid, stranger) for uid in (chat.uid, uuid.uuid4(), "nonsense", "%00")
    ]

    assert {code for code, _frames in answers} == {4404}
    assert [frames for _code, frames in answers] == [answers[0][1]] * 4


async def test_a_deleted_chat_closes_its_sockets(web):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        await rows(intake.delete_chat)(chat_id=chat.pk, user_id=chat.owner_id)
        await client.until(lambda: client.close_code, 5)
    assert client.close_code == 4404


async def sign_out(chat, cookie):
    await rows(Login.objects.all().delete)()


async def deactivate(chat, cookie):
    await rows(get_user_model().objects.filter(pk=chat.owner_id).update)(is_active=False)


async def change_password(chat, cookie):
    def change():
        owner = get_user_model().objects.get(pk=chat.owner_id)
        owner.set_password("another")
        owner.save()

    await rows(change)()


@pytest.mark.parametrize("how", [sign_out, deactivate, change_password])
async def test_a_login_that_ends_closes_the_socket(web, how):
    chat, cookie = await rows(someone)()
    client = await Client(web.address, str(chat.uid), cookie).open()
    await client.frame("hello")
    await how(chat, cookie)
    began = time.monotonic()
    await client.until(lambda: client.close_code, 6)

    assert client.close_code == 4401
    assert time.monotonic() - began <= 5


async def test_nothing_is_stored_after_the_login_has_ended(web):
    chat, cookie = await rows(someone)()
    client = await Client(web.address, str(chat.uid), cookie).open()
    await client.frame("hello")
    await sign_out(chat, cookie)
    await client.send("turn.submit", id="late", text="late")
    await client.until(lambda: client.close_code, 5)

    assert client.close_code == 4401
    assert not await rows(Turn.objects.exists)()


async def test_frames_that_cannot_be_read_are_answered_and_the_socket_stays(web):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        for bad in ("", "{", "[]", b"bytes", '{"type": "no"}', "[" * 60_000, '{"type": NaN}'):
            await client.connection.send(bad)
        await client.send("ping", nonce="still here")
        await client.frame("pong", nonce="still here")
        too_large = await client.submit("x" * (256 * 1024 + 1))
        whole = await client.submit("x\x00" + "\U0001f600" * 10)
        await client.send("turn.stop", ref="m", chat=str(uuid.uuid4()))
        mismatch = await client.frame("error", ref="m")

    errors = [frame["code"] for frame in client.frames if frame["type"] == "error"]
    assert errors[:7] == ["malformed"] * 4 + ["unknown_type"] + ["malformed"] * 2
    assert (too_large["code"], whole["type"]) == ("too_large", "turn.accepted")
    assert mismatch["code"] == "mismatch"
    assert await rows(lambda: Turn.objects.get().text)() == "x\ufffd" + "\U0001f600" * 10


async def test_what_belongs_to_others_cannot_be_steered(web):
    theirs, cookie = await rows(someone)()
    ours, _mine = await rows(someone)()
    other = await rows(factories.say)(ours, "ours")
    async with Client(web.address, str(theirs.uid), cookie) as client:
        await client.frame("hello")
        for kind, fields in (
            ("queue.edit", {"turn": other.pk, "text": "stolen"}),
            ("queue.delete", {"turn": other.pk}),
            ("queue.promote", {"turn": other.pk}),
            ("turn.edit", {"turn": other.pk, "id": "e", "text": "stolen"}),
            ("chat.branch", {"session": other.session_id, "seq": 1, "id": "b"}),
            ("rewind.undo", {"rewind": 2**60}),
        ):
            await client.send(kind, ref=kind, **fields)
            assert (await client.frame("error", ref=kind))["code"] == "not_found", kind
        await client.send("read", session=other.session_id, seq=2**62)
        await client.send("turn.regenerate", id="r", turn=other.pk, ref="r")
        told = await client.frame("error", ref="r")

    assert told["code"] in {"not_found", "nothing_to_redo"}
    assert await rows(lambda: Turn.objects.get(pk=other.pk).text)() == "ours"
    assert await rows(Chat.objects.count)() == 2


async def test_a_frame_that_is_too_big_closes_with_1009(web):
    chat, cookie = await rows(someone)()
    client = await Client(web.address, str(chat.uid), cookie).open()
    await client.frame("hello")
    with contextlib.suppress(websockets.ConnectionClosed):
        await client.connection.send("x" * (2 * 1024 * 1024 + 1))
    await client.until(lambda: client.close_code)
    assert client.close_code == 1009
    async with Client(web.address, str(chat.uid), cookie) as again:
        await again.frame("hello")


def _long_answers() -> tuple[Chat, str]:
    chat, cookie = someone()
    for number in range(3):
        turn = factories.say(chat, f"question {number}")
        claimed = transcript.claim(turn.session_id)
        transcript.start(claimed)
        transcript.finish(claimed, transcript.Step(text=f"{number}" + " word" * 200_000))
    return chat, cookie


@pytest.mark.parametrize("html", [True, False])
async def test_a_chat_with_more_than_a_frame_of_clients_can_be_opened(web, html):
    chat, cookie = await rows(_long_answers)()
    async with Client(web.address, str(chat.uid), cookie, html=html) as client:
        hello = await client.frame("hello")
    text = hello["html"] if html else hello["messages"][-1]["text"]
    assert text.count(" word") >= 200_000


async def test_a_deflate_bomb_is_not_unpacked(web):
    chat, cookie = await rows(someone)()
    client = await Client(web.address, str(chat.uid), cookie).open(compression="deflate")
    await client.frame("hello")

    assert client.connection.protocol.extensions == []  # the server agrees to no compression
    bomb = zlib.compress(b"\0" * 50_000_000)[2:-4]
    transport = client.connection.transport
    head = bytes([0x80 | 0x40 | 0x2, 0x80 | 127]) + len(bomb).to_bytes(8, "big")
    transport.write(head + b"\0\0\0\0" + bomb)
    await client.until(lambda: client.close_code)
    assert client.close_code == 1002


async def test_a_person_may_have_so_many_sockets_and_sends(socket_environment, processes, tmp_path):
    limits = {"HERMES_SOCKETS_A_PERSON": "2", "HERMES_SENDS_A_MINUTE": "3"}
    web = Web({**socket_environment, **limits}, tmp_path / "web.log")
    processes.append(web)
    web.start()
    chat, cookie = await rows(someone)()
    other, others = await rows(someone)()
    held = [await Client(web.address, str(chat.uid), cookie).open() for _ in range(2)]
    for client in held:
        await client.frame("hello")
    code, frames = await closed(web, chat.uid, cookie)
    assert (code, frames[-1]["code"], frames[-1]["retry_after"] > 0) == (4429, 4429, True)

    answers = [await held[n % 2].submit(f"m{n}") for n in range(5)]
    kinds = [answer.get("code", answer["type"]) for answer in answers]
    assert kinds == ["turn.accepted"] * 3 + ["rate"] * 2
    assert answers[-1]["retry"] > 0
    async with Client(web.address, str(other.uid), others) as free:
        assert (await free.submit("hello"))["type"] == "turn.accepted"
    await held[0].close()
    again = await Client(web.address, str(chat.uid), cookie).open()
    await again.frame("hello")
    for client in (*held, again):
        await client.close()


async def test_a_flood_of_frames_closes_the_socket(web):
    chat, cookie = await rows(someone)()
    client = await Client(web.address, str(chat.uid), cookie).open()
    await client.frame("hello")
    try:
        for n in range(8_000):
            await client.connection.send(json.dumps({"type": "ping", "nonce": str(n)}))
    except websockets.ConnectionClosed:
        pass
    await client.until(lambda: client.close_code, 20)
    assert client.close_code == 4429


async def test_an_idle_socket_stays(web):
    import os

    seconds = 120 if os.environ.get("HERMES_TEST_SIZE") == "full" else 6
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        await asyncio.sleep(seconds)
        await client.send("ping", nonce="n")
        await client.frame("pong")
    assert [frame["type"] for frame in client.frames] == ["hello", "pong"]
    assert not await rows(Message.objects.exists)()
