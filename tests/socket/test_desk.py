"""The socket of the dashboard: what it shows to whom, and when it shows nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time

import pytest
import websockets
from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session as Login
from django.db import connection

from hermes.dashboard import roles
from tests import factories

from .client import Client
from .conftest import APPLICATION, Web, rows, sign_in
from .test_faults import Gate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


class Watcher(Client):
    """A page that shows the dashboard."""

    def __init__(self, base: str, cookie: str, **more):
        super().__init__(base, "", cookie, **more)
        self.url = f"{base}/ws/desk/"
        self.parts: dict[str, str] = {}

    def on_parts(self, frame):
        self.parts |= frame["parts"]

    async def watch(self, range_: str = "24h", zone: str = "utc") -> Watcher:
        await self.open()
        await self.send("watch", range=range_, zone=zone)
        await self.until(lambda: self.parts)
        return self


def an_operator(name: str = ""):
    """A person of the group that acts, and the cookie header of their login."""
    roles.grant(apps)
    person = factories.person(name, is_staff=True)
    person.groups.add(Group.objects.get(name="Operator"))
    return person, sign_in(person)


def queries_of_web() -> int:
    """How many connections of the web process were busy for a round, told by the server."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            " AND state_change > clock_timestamp() - interval '2500 ms'",
            [APPLICATION],
        )
        return cursor.fetchone()[0]


async def test_first_all_of_it_then_what_changes_within_three_seconds(web: Web):
    _person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).watch()
    assert {"now", "verdict", "health", "turns", "streaks", "completions"} <= set(page.parts)
    await rows(lambda: factories.say(factories.chat(), "waits"))()
    began = time.monotonic()
    await page.until(lambda: "1 waits" in page.parts["verdict"], 5)
    assert time.monotonic() - began <= 3.0
    assert len(page.frames[-1]["parts"]) < len(page.parts)  # not those that are as they were
    assert page.faults == []
    await page.close()


async def test_nothing_is_shown_before_it_is_asked_for_nor_while_it_is_paused(web: Web):
    _person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).open()
    await asyncio.sleep(2.5)
    assert page.frames == []
    await page.send("watch", range="1h", zone="local")
    await page.until(lambda: page.parts)
    await page.send("pause")
    await asyncio.sleep(0.5)
    count = len(page.frames)
    await asyncio.sleep(4.5)  # two rounds
    assert len(page.frames) == count
    # Beside its sign of life, every five seconds, the process asks nothing.
    until = time.monotonic() + 15
    while await rows(queries_of_web)():
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
    assert len(page.frames) == count
    await page.send("resume")
    await page.until(lambda: len(page.frames) > count, 1)
    assert "streaks" not in page.frames[-1]["parts"]  # it has not changed meanwhile
    await page.close()


async def test_no_token_goes_over_it(web: Web):
    (_one, cookie), (_other, others) = await rows(an_operator)(), await rows(an_operator)()
    pages = [await Watcher(web.address, each).watch() for each in (cookie, others)]
    for page in pages:
        whole = "".join(page.parts.values())
        tokens = re.findall(r'csrfmiddlewaretoken" value="([^"]*)"', whole)
        assert set(tokens) <= {"of-the-page"}
        await page.close()


async def lose_the_group(person):
    await rows(person.groups.clear)()


async def be_no_staff(person):
    await rows(get_user_model().objects.filter(pk=person.pk).update)(is_staff=False)


async def sign_out(person):
    await rows(Login.objects.all().delete)()


async def be_deactivated(person):
    await rows(get_user_model().objects.filter(pk=person.pk).update)(is_active=False)


@pytest.mark.parametrize(
    ("how", "code"),
    [(lose_the_group, 4403), (be_no_staff, 4403), (sign_out, 4401), (be_deactivated, 4401)],
)
async def test_who_may_not_look_any_more_is_shown_nothing_after_five_seconds(web: Web, how, code):
    person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).watch()
    await how(person)
    began = time.monotonic()
    await page.until(lambda: page.close_code, 6)
    assert page.close_code == code
    assert time.monotonic() - began <= 5
    assert (page.frames[-1]["type"], page.frames[-1]["code"]) == ("bye", code)


async def test_after_a_pause_it_is_asked_before_anything_is_shown(web: Web):
    person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).watch()
    await page.send("pause")
    await asyncio.sleep(0.3)
    await lose_the_group(person)
    await rows(lambda: factories.say(factories.chat(), "unseen"))()
    count = len(page.frames)
    await page.send("resume")
    await page.until(lambda: page.close_code, 3)
    assert [frame["type"] for frame in page.frames[count:]] == ["bye"]
    assert page.close_code == 4403


async def test_only_who_may_see_the_desk_gets_in(web: Web):
    cookies = {"none": ""}
    for name, more in (("person", {}), ("staff", {"is_staff": True})):
        person = await rows(factories.person)(f"a-{name}", **more)
        cookies[name] = await rows(sign_in)(person)
    with pytest.raises(websockets.InvalidStatus) as told:
        await Watcher(web.address, cookies["none"]).open()
    assert told.value.response.status_code == 403
    for name in ("person", "staff"):
        page = await Watcher(web.address, cookies[name]).open()
        await page.until(lambda page=page: page.close_code)
        assert (page.close_code, page.parts) == (4403, {})
    _person, cookie = await rows(an_operator)()
    with pytest.raises(websockets.InvalidStatus) as told:
        await Watcher(web.address, cookie, origin="http://evil.example").open()
    assert told.value.response.status_code == 403


@pytest.mark.parametrize(
    "bad",
    [
        *("", "{", "[]", b"bytes", '{"type": "no"}', '{"type": "resume"}', "[" * 900),
        '{"type": "watch"}',
        '{"type": "watch", "range": "all", "zone": "utc"}',
        '{"type": "watch", "range": "24h", "zone": "Europe/Berlin"}',
        '{"type": "watch", "range": ["24h"], "zone": "utc"}',
    ],
)
async def test_what_cannot_be_read_closes_it(web: Web, bad):
    _person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).open()
    await page.connection.send(bad)
    await page.until(lambda: page.close_code)
    assert (page.close_code, page.parts) == (4400, {})


@pytest.mark.parametrize("size", [1_001, 3 * 1024 * 1024])
async def test_what_is_too_big_closes_it(web: Web, size: int):
    _person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).watch()
    frame = json.dumps({"type": "pause", "more": "x" * size})
    with contextlib.suppress(websockets.ConnectionClosed):
        await page.connection.send(frame)
    await page.until(lambda: page.close_code)
    assert page.close_code == 1009


async def test_a_flood_closes_it(web: Web):
    _person, cookie = await rows(an_operator)()
    page = await Watcher(web.address, cookie).watch()
    try:
        for _ in range(200):
            await page.send("pause")
    except websockets.ConnectionClosed:
        pass
    await page.until(lambda: page.close_code)
    assert page.close_code == 4429


async def test_it_counts_among_the_sockets_of_a_person(socket_environment, processes, tmp_path):
    web = Web({**socket_environment, "HERMES_SOCKETS_A_PERSON": "2"}, tmp_path / "web.log")
    processes.append(web)
    web.start()
    person, cookie = await rows(an_operator)()
    chat = await rows(factories.chat)(person)
    pages = [await Watcher(web.address, cookie).watch()]
    pages.append(await Client(web.address, str(chat.uid), cookie).open())
    await pages[1].frame("hello")
    third = await Watcher(web.address, cookie).open()
    await third.until(lambda: third.close_code)
    assert third.close_code == 4429
    for page in pages:
        await page.close()


async def test_a_process_that_leaves_says_so(own_web: Web):
    _person, cookie = await rows(an_operator)()
    page = await Watcher(own_web.address, cookie).watch()
    await asyncio.to_thread(own_web.stop)
    await page.until(lambda: page.close_code)
    assert page.close_code == 1012
    assert page.frames[-1]["retry_after"] > 0


async def test_with_the_database_away_it_stays_and_goes_on(socket_environment, processes, tmp_path):
    gate = Gate(socket_environment["DATABASE_URL"])
    async with gate:
        web = Web({**socket_environment, "DATABASE_URL": gate.url}, tmp_path / "web.log")
        processes.append(web)
        await asyncio.to_thread(web.start)
        _person, cookie = await rows(an_operator)()
        page = await Watcher(web.address, cookie).watch()
        await gate.shut()
        await asyncio.sleep(5)  # two rounds: the page hears nothing, and says so by itself
        count = len(page.frames)
        await asyncio.sleep(2.5)
        assert (len(page.frames), page.close_code) == (count, None)
        await gate.unshut()
        await page.until(lambda: len(page.frames) > count, 15)
        assert page.faults == []
        await page.close()
        await asyncio.to_thread(web.stop)
