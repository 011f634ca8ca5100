"""Many sockets on a small database: opened and dropped again and again, none costs a connection."""

from __future__ import annotations

import asyncio
import os

import pytest
from django.conf import settings
from django.db import connection

from tests import factories

from .client import Client
from .conftest import APPLICATION, Web, rows, sign_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process, pytest.mark.fault]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
PEOPLE, EACH, ROUNDS = (10, 20, 10) if FULL else (4, 15, 3)


def people() -> list[tuple[str, str]]:
    """A chat with something in it for each person, and their login."""
    made = []
    for _ in range(PEOPLE):
        owner = factories.person()
        chat = factories.chat(owner)
        factories.say(chat, "is anybody there?")
        made.append((str(chat.uid), sign_in(owner)))
    return made


def connections() -> int:
    """How many database connections the web process has."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [APPLICATION]
        )
        return int(cursor.fetchone()[0])


async def test_sockets_that_come_and_go_keep_within_the_pool(own_web: Web):
    chats = await rows(people)()
    at_most, hellos = 0, 0
    refused: list[int] = []
    for _ in range(ROUNDS):
        clients = [
            Client(own_web.address, chat, cookie) for chat, cookie in chats for _ in range(EACH)
        ]
        greeted = asyncio.gather(*(client.greeted(refused) for client in clients))
        while not greeted.done():
            at_most = max(at_most, await rows(connections)())
            await asyncio.sleep(0.05)
        hellos += sum(len(hello["queue"]) == 1 for hello in await greeted)
        await asyncio.gather(*(client.close(rudely=True) for client in clients))
    (last,) = [Client(own_web.address, *chats[0])]
    await last.greeted(refused)
    settled = await rows(connections)()
    await last.close()

    print(
        f"  {PEOPLE * EACH} sockets, opened {ROUNDS} times: at most {at_most} connections, "
        f"{len(refused)} had to come again"
    )
    assert hellos == PEOPLE * EACH * ROUNDS
    assert 0 < at_most <= settings.DB_POOL
    assert settled <= settings.DB_POOL
    assert "too many clients" not in own_web.text()
    assert "Traceback" not in own_web.text()
