"""The start command as a real process: start, ask, kill, start again, stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psycopg
import pytest
import redis

from hermes import env
from hermes.management.servers.embedded import EmbeddedServers
from hermes.management.servers.identity import Identity
from hermes.management.servers.valkey import free_port
from tests.product import Up
from tests.servers import Run, data_folder

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
own_servers = pytest.mark.own_servers


@pytest.fixture
def up() -> Iterator[Up]:
    """A start command that is not started; whatever it leaves is ended."""
    made = Up(data_folder(), free_port())
    yield made
    made.end()


@own_servers
def test_start_use_and_stop(up: Up) -> None:
    up.start().until_up()
    assert up.status() == 200
    # The login is told once, and works.
    password = re.search(r"user admin, password (\S+) ", up.output)
    assert password
    kept = up.var / "admin_password"
    assert kept.read_text().strip() == password.group(1)
    private = ["admin_password", "secret_key", "field_key", "embedded.env", "valkey/password"]
    private += ["valkey/valkey.conf", "postgres/password", "postgres/superuser_password"]
    assert {name: oct((up.var / name).stat().st_mode & 0o777) for name in private} == dict.fromkeys(
        private, "0o600"
    )
    # Another start on the same folder is refused in one line.
    second = Up(up.var, free_port()).start()
    assert second.process.wait(30) == 1
    second.reader.join(5)
    assert len(second.lines) == 1
    assert "already runs" in second.output
    assert f"pid {up.process.pid}" in second.output
    # Other commands find the servers.
    written = (up.var / "embedded.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in written if "=" in line)
    with psycopg.connect(given["DATABASE_URL"].strip()) as connection:
        found = connection.execute("SELECT count(*) FROM auth_user WHERE is_superuser").fetchone()
    assert found == (1,)
    with redis.Redis.from_url(given["REDIS_URL"].strip()) as client:
        told = client.config_get("*")
    assert (told["appendonly"], told["maxmemory-policy"]) == ("yes", "noeviction")
    identities = up.identities()
    assert all(identity and identity.is_alive() for identity in identities.values())

    began = time.monotonic()
    assert up.stop() == 0, up.output
    assert time.monotonic() - began < 15
    assert not any(identity and identity.is_alive() for identity in identities.values())
    servers = EmbeddedServers(up.var)
    assert servers.postgres
    assert servers.valkey
    assert servers.postgres.identity() is servers.valkey.identity() is None
    assert not (up.var / "embedded.env").exists()

    # The second start keeps data and does not show the password again.
    up.lines.clear()
    up.start().until_up()
    assert password.group(1) not in up.output
    assert str(kept) in up.output
    assert up.stop(signal.SIGINT) == 0


@own_servers
def test_a_killed_start_is_taken_over(up: Up) -> None:
    up.start().until_up()
    left = up.identities()
    servers = EmbeddedServers(up.var)
    assert servers.postgres
    assert servers.valkey
    database, broker = servers.postgres.identity(), servers.valkey.identity()
    up.stop(signal.SIGKILL)
    assert database
    assert database.is_alive()

    up.lines.clear()
    up.start().until_up()
    assert up.status() == 200
    assert not any(identity and identity.is_alive() for identity in left.values())
    assert (servers.postgres.identity(), servers.valkey.identity()) == (database, broker)
    assert "Ended web, which an earlier start had left." in up.output

    # And if the servers were killed with it, they recover.
    up.stop(signal.SIGKILL)
    assert broker
    database.send(signal.SIGKILL)
    broker.send(signal.SIGKILL)
    up.lines.clear()
    up.start().until_up()
    assert up.status() == 200
    assert up.stop() == 0


@own_servers
def test_what_dies_is_started_again(up: Up) -> None:
    up.start().until_up()
    servers = EmbeddedServers(up.var)
    assert servers.postgres
    assert servers.valkey
    for name in ("web", "turns"):
        killed = up.identities()[name]
        assert killed
        killed.send(signal.SIGKILL)

        def again(name: str = name, killed: Identity = killed) -> bool:
            now = up.identities()[name]
            return bool(now and now != killed and now.is_alive())

        up.until(again)
    for server in (servers.postgres, servers.valkey):
        gone = server.identity()
        assert gone
        gone.send(signal.SIGKILL)
        up.until(lambda server=server, gone=gone: server.identity() not in {None, gone})

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return up.status() == 200
        return False

    up.until(answers)
    assert up.stop() == 0


def manage(up: Up, *words: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(env.BASE / "manage.py"), *words],
        env={
            **{k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "REDIS_URL"}},
            **{"HERMES_VAR": str(up.var), "HERMES_PORT": str(up.port)},
        },
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_servers_of_ones_own_are_used(up: Up, redis_url: str) -> None:
    assert Run.servers
    given = Run.servers.environment()["DATABASE_URL"]
    name = f"own_{os.getpid()}"
    with psycopg.connect(given, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    try:
        own = given.rpartition("/")[0] + f"/{name}"
        up.settings = {"DATABASE_URL": own, "REDIS_URL": redis_url, "HERMES_REDIS_PREFIX": name}
        up.start().until_up()
        assert up.status() == 200
        assert not (up.var / "postgres").exists()
        assert not (up.var / "valkey").exists()
        with psycopg.connect(own) as connection:
            found = connection.execute("SELECT username FROM auth_user").fetchall()
        assert found == [("admin",)]
        assert up.stop() == 0
    finally:
        with psycopg.connect(given, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


@own_servers
def test_doctor_and_reset(up: Up) -> None:
    told = manage(up, "doctor")
    assert told.returncode == 1
    assert "database: none is set or running. Start Hermes: make run" in told.stdout
    up.start().until_up()
    told = manage(up, "doctor")
    assert re.search(r"ok    database: PostgreSQL 18\S*, \d+ ms", told.stdout)
    assert re.search(r"broker: valkey 9\S*, \d+ ms", told.stdout)
    assert "DATABASE_URL = (secret) (from var/embedded.env)" in told.stdout
    assert "Traceback" not in told.stderr

    refused = manage(up, "reset_data", "--yes")
    assert refused.returncode == 1
    assert "already runs" in refused.stderr
    assert up.stop() == 0
    assert manage(up, "reset_data", answer="no\n").returncode == 1
    assert (up.var / "postgres").exists()
    key = (up.var / "secret_key").read_text()
    assert manage(up, "reset_data", answer="yes\n").returncode == 0
    assert not (up.var / "postgres").exists()
    assert (up.var / "secret_key").read_text() == key


@own_servers
def test_a_busy_port_is_one_clear_line(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", up.port))
        taken.listen(1)
        up.start()
        assert up.process.wait(30) == 1
    up.reader.join(5)
    assert f"Port {up.port} on 127.0.0.1 cannot be used" in up.lines[-1]
    assert f"HERMES_PORT={up.port + 1}" in up.lines[-1]
    assert "Traceback" not in up.output
    assert not (up.var / "postgres").exists()


@own_servers
def test_bad_settings_are_told_together_and_nothing_starts(up: Up) -> None:
    up.settings = {"HERMES_DB_POOL": "-1", "HERMES_ORIGINS": "chat.test"}
    up.start()
    assert up.process.wait(30) == 1
    up.reader.join(5)
    assert "HERMES_DB_POOL='-1' (from environment) is not a whole number from 2 to 200" in up.output
    assert "'chat.test' is not a full origin" in up.output
    assert "Traceback" not in up.output


@own_servers
def test_a_weak_first_password_is_refused(up: Up) -> None:
    up.settings = {"HERMES_ADMIN_PASSWORD": "password"}
    up.start()
    assert up.process.wait(60) == 1
    up.reader.join(5)
    assert "HERMES_ADMIN_PASSWORD: This password is too common." in up.lines[-1]
    assert EmbeddedServers(up.var).postgres.identity() is None  # type: ignore[union-attr]


@own_servers
def test_given_login_and_second_signal(up: Up) -> None:
    up.settings = {"HERMES_ADMIN_USERNAME": "ann", "HERMES_ADMIN_PASSWORD": "q8-Harbour-lamp"}
    up.start().until_up()
    assert "user ann, with the password that you set" in up.output
    assert "q8-Harbour-lamp" not in up.output
    assert not (up.var / "admin_password").exists()
    web = up.identities()["web"]
    assert web
    os.kill(web.pid, signal.SIGSTOP)  # it will not leave by itself
    up.process.send_signal(signal.SIGTERM)
    up.until(lambda: "Stopping." in up.output)
    began = time.monotonic()
    assert up.stop(signal.SIGTERM) == 0
    assert time.monotonic() - began < 7
    assert not web.is_alive()


@own_servers
def test_prepare_prints_what_the_start_command_reads(up: Up) -> None:
    up.start().until_up()
    told = manage(up, "prepare", "--json")
    assert json.loads(told.stdout) == {
        "username": "admin",
        "new_password": "",
        "password_file": str(up.var / "admin_password"),
    }
    assert up.stop() == 0
