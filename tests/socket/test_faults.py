"""The broker, the database and the processes go away and come back."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psycopg
import pytest
import redis

from sessions_app.models import Message, Turn
from tests.servers import Run

from .client import Client
from .conftest import APPLICATION, Web, Worker, free_port, rows, someone

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process, pytest.mark.fault]


async def test_without_a_broker_a_message_is_stored_and_answered_later(
    socket_environment, processes, tmp_path
):
    nowhere = {**socket_environment, "REDIS_URL": f"redis://127.0.0.1:{free_port()}"}
    web = Web(nowhere, tmp_path / "web.log")
    processes.append(web)
    web.start()
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello", seconds=3)
        for n in range(3):
            began = time.monotonic()
            accepted = await client.submit(f"!say {n + 1} words")
            assert accepted["type"] == "turn.accepted"
            assert time.monotonic() - began <= 3
        worker = Worker(socket_environment, tmp_path / "worker.log")
        processes.append(worker)
        worker.start()  # it has a broker; the hint is lost, its sweep finds the turn
        await client.until(lambda: client.turns, 30)
        done = await client.ended(accepted["turn"], 30)
    assert done.answer == "one more word"
    assert [len(client.turns[t].answer.split()) for t in sorted(client.turns)] == [1, 2, 3]
    assert client.faults == []


async def test_hints_come_again_when_the_broker_does(own_web, own_worker, redis_url):
    chat, cookie = await rows(someone)()
    async with Client(own_web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        await client.ended((await client.submit("!say 5 words"))["turn"])
        with redis.Redis.from_url(redis_url) as broker:
            broker.client_kill_filter(_type="pubsub")
            broker.client_kill_filter(_type="normal", skipme=True)
        turn = (await client.submit("!say 40 words slowly"))["turn"]
        done = await client.ended(turn, 30)
        deltas = [f for f in client.frames if f["type"] == "turn.delta" and f["turn"] == turn]
    assert len(done.answer.split()) == 40
    assert len(deltas) >= 3
    assert client.faults == []


async def test_the_database_connections_are_cut(own_web, own_worker):
    chat, cookie = await rows(someone)()
    uid = str(chat.uid)
    clients = [await Client(own_web.address, uid, cookie).open() for _ in range(5)]
    turn = (await clients[0].submit("!say 60 words slowly"))["turn"]
    await clients[0].until(lambda: clients[0].turn(turn).text)

    def cut():
        servers = Run.servers
        with psycopg.connect(servers.environment()["DATABASE_URL"], autocommit=True) as admin:
            found = admin.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = %s AND pid <> pg_backend_pid()",
                [APPLICATION],
            ).fetchone()
            return found[0]

    assert await asyncio.to_thread(cut) > 0
    for number, client in enumerate(clients):
        told = await client.submit(f"!say {number + 1} words", key=f"after{number}")
        if told["type"] == "error":
            assert told["code"] == "unavailable"
            await asyncio.sleep(told["retry"])
            client.frames.clear()
            told = await client.submit(f"!say {number + 1} words", key=f"after{number}")
        assert told["type"] == "turn.accepted"
    for client in clients:
        await client.until(lambda c=client: len(c.turns) >= 6, 30)
        for pk in list(client.turns):
            await client.ended(pk, 30)
        await client.close()
        assert client.faults == []
    texts = {tuple(sorted((k, v.answer) for k, v in c.turns.items())) for c in clients}
    assert len(texts) == 1


async def test_with_the_database_away_a_socket_stays_and_says_so(
    socket_environment, processes, tmp_path
):
    """A proxy in front of the database refuses for a while."""
    gate = Gate(socket_environment["DATABASE_URL"])
    async with gate:
        web = Web({**socket_environment, "DATABASE_URL": gate.url}, tmp_path / "web.log")
        processes.append(web)
        await asyncio.to_thread(web.start)
        chat, cookie = await rows(someone)()
        async with Client(web.address, str(chat.uid), cookie) as client:
            await client.frame("hello")
            await gate.shut()
            told = await client.submit("lost?", key="k", seconds=15)
            assert (told["code"], told["retry"] > 0) == ("unavailable", True)
            other = await Client(web.address, str(chat.uid), cookie).open(open_timeout=15)
            await other.until(lambda: other.close_code, 10)
            assert other.close_code == 1012
            assert other.frames[-1]["retry_after"] > 0
            await gate.unshut()
            await asyncio.sleep(1)
            client.frames.clear()
            for _ in range(10):
                told = await client.submit("lost?", key="k", seconds=15)
                if told["type"] == "turn.accepted":
                    break
                client.frames.clear()
                await asyncio.sleep(1)
            assert told["type"] == "turn.accepted"
        assert client.close_code == 1000
        await asyncio.to_thread(web.stop)
    assert await rows(Turn.objects.count)() == 1


class Gate:
    """Passes connections on to the database, or cuts and refuses them."""

    def __init__(self, url: str) -> None:
        self.parts = psycopg.conninfo.conninfo_to_dict(url.partition("?")[0])
        self.port = free_port()
        self.url = (
            f"postgresql://{self.parts['user']}:{self.parts.get('password', '')}"
            f"@127.0.0.1:{self.port}/{self.parts['dbname']}"
        )
        self.server: asyncio.Server | None = None
        self.writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Gate:
        await self.unshut()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def unshut(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)

    async def shut(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        for writer in list(self.writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.parts["host"], self.parts.get("port", "5432")
        if host.startswith("/"):
            theirs = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            theirs = await asyncio.open_connection(host, int(port))
        self.writers |= {writer, theirs[1]}

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            finally:
                sink.close()
                self.writers.discard(sink)

        await asyncio.gather(pump(reader, theirs[1]), pump(theirs[0], writer))


async def test_a_process_that_is_stopped_says_good_bye(own_web, own_worker):
    chat, cookie = await rows(someone)()
    clients = [await Client(own_web.address, str(chat.uid), cookie).open() for _ in range(20)]
    turn = (await clients[0].submit("!say 60 words slowly"))["turn"]
    await clients[0].until(lambda: clients[0].turn(turn).text)
    took = await asyncio.to_thread(own_web.stop)
    for client in clients:
        await client.until(lambda c=client: c.close_code)
        told = client.frames[-1]
        assert (client.close_code, told["type"]) == (1012, "bye"), clients.index(client)
        assert (told["type"], told["code"], told["retry_after"] > 0) == ("bye", 1012, True)
    assert took <= 8
    await asyncio.to_thread(own_web.start)
    client = await clients[0].open()
    done = await client.ended(turn)  # nobody's going away has stopped it
    await client.close()
    assert len(done.answer.split()) == 60
    assert client.faults == []


async def test_stop_ends_a_turn_whose_worker_is_frozen(own_web, own_worker):
    chat, cookie = await rows(someone)()
    async with Client(own_web.address, str(chat.uid), cookie) as client:
        turn = (await client.submit("!say 200 words slowly"))["turn"]
        await client.until(lambda: len(client.turn(turn).text) > 30)
        own_worker.signal(signal.SIGSTOP)
        began = time.monotonic()
        await client.send("turn.stop")
        try:
            done = await client.ended(turn, 6)
        finally:
            own_worker.signal(signal.SIGCONT)
        took = time.monotonic() - began
    assert done.status == "cancelled"
    assert done.answer
    assert took < 5
    assert await rows(Message.objects.filter(is_partial=True).count)() == 1
    assert client.faults == []


async def test_stop_keeps_what_was_written(web, worker):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        turn = (await client.submit("!say 200 words slowly"))["turn"]
        await client.until(lambda: len(client.turn(turn).text) > 30)
        began = time.monotonic()
        await client.send("turn.stop")
        done = await client.ended(turn, 6)
        took = time.monotonic() - began
        await client.send("turn.stop", ref="again")
        nothing = await client.frame("error", ref="again")
    assert (done.status, nothing["code"]) == ("cancelled", "nothing_runs")
    assert len(done.answer) > 30
    assert took < 2
    assert client.faults == []


async def test_a_tool_call_is_told_as_a_step(web, worker):
    chat, cookie = await rows(someone)()
    async with Client(web.address, str(chat.uid), cookie) as client:
        turn = (await client.submit("!tool current_time {}"))["turn"]
        done = await client.ended(turn)
    assert [m["role"] for m in done.messages] == ["user", "assistant", "tool", "assistant"]
    assert client.faults == []


def test_the_processes_wrote_no_traceback(own_web, own_worker):
    """Quiet ends: a process that is stopped leaves without a fault in its log."""
    assert os.path.exists(own_web.log)  # noqa: PTH110
    own_web.stop()
    own_worker.stop()
    assert "Traceback" not in own_web.text()
