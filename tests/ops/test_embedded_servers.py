"""The embedded servers themselves: made, adopted, recovered, refused; as every kind of user."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from hermes import env
from hermes.lib.db import LIFE
from hermes.management.servers import CannotStart, postgres, privileges
from hermes.management.servers.files import own_folder
from hermes.management.servers.identity import Identity, start_time
from hermes.management.servers.postgres import Postgres
from hermes.management.servers.valkey import Valkey

pytestmark = [pytest.mark.process, pytest.mark.own_servers]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Postgres]:
    """A server that is not started yet."""
    made = Postgres(tmp_path / "postgres", max_connections=30, options={"fsync": "off"})
    yield made
    made.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Valkey]:
    """A server that is not started yet."""
    made = Valkey(tmp_path / "valkey")
    yield made
    made.stop()


def ask(database: Postgres, query: str) -> tuple[object, ...]:
    with psycopg.connect(database.url) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row


def test_postgresql_is_private(database: Postgres) -> None:
    database.start()
    assert ask(
        database,
        "SELECT r.rolsuper, r.rolcreaterole, r.rolcreatedb, current_setting('listen_addresses'),"
        " current_setting('data_checksums'), d.datcollate"
        " FROM pg_roles r, pg_database d WHERE r.rolname = current_user"
        " AND d.datname = current_database()",
    ) == (False, False, False, "", "on", postgres.LOCALE)
    assert ask(database, "SELECT 'Ä' ILIKE 'ä'") == (True,)  # search sees beyond ASCII
    sockets = database._sockets()
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert len(str(sockets / ".s.PGSQL.5432")) < 100
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(re.sub(r":[0-9a-f]{40,}@", ":wrong@", database.url))


def test_a_crash_ends_what_is_known_of_transactions(database: Postgres) -> None:
    """The life that ``hermes.lib.db`` notes ends with a crash, and not with a clean restart."""
    database.start()
    (life,) = ask(database, f"SELECT {LIFE}")
    assert life
    database.stop()
    database.start()
    assert ask(database, f"SELECT {LIFE}") == (life,)
    with psycopg.connect(database.url) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while True:
            try:
                (now,) = ask(database, f"SELECT {LIFE}")
                break
            except psycopg.OperationalError:  # it starts again
                assert time.monotonic() < deadline
                time.sleep(0.1)
        with contextlib.suppress(psycopg.OperationalError):
            connection.rollback()
    assert now != life


def test_postgresql_keeps_data_and_is_adopted(database: Postgres) -> None:
    database.start()
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    again = Postgres(database.folder)
    again.start()
    assert again.adopted
    assert again.identity() == database.identity()
    database.stop()
    assert database.identity() is None
    database.start()
    assert not database.adopted
    assert ask(database, "SELECT n FROM kept") == (42,)


def test_postgresql_recovers_from_kill(database: Postgres) -> None:
    database.start()
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    running = database.identity()
    assert running
    running.send(signal.SIGKILL)
    database.start()
    assert database.identity() != running
    assert ask(database, "SELECT n FROM kept") == (42,)


def test_a_pid_file_that_names_a_stranger_is_no_hindrance(database: Postgres) -> None:
    database.start()
    running = database.identity()
    assert running
    file = database.data / "postmaster.pid"
    kept = file.read_text()
    database.stop()
    # After a restart of the machine the pid belongs to somebody else: here, to this test.
    file.write_text(kept.replace(str(running.pid), str(os.getpid()), 1))
    assert database.identity() is None
    database.start()
    assert ask(database, "SELECT 1") == (1,)
    assert start_time(os.getpid())


def test_an_interrupted_first_start_is_made_good(database: Postgres) -> None:
    half = database.folder / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    database.start()
    assert ask(database, "SELECT 1") == (1,)
    assert not half.exists()


def test_data_of_another_major_version_is_refused(database: Postgres) -> None:
    database.data.mkdir(parents=True)
    (database.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(CannotStart, match=r"data of PostgreSQL 17.*is PostgreSQL 18.*pg_dump"):
        database.start()
    assert [path.name for path in database.data.iterdir()] == ["PG_VERSION"]


def test_a_lost_socket_folder_comes_back(database: Postgres) -> None:
    database.start()
    shutil.rmtree(database._sockets())
    database.start()
    assert ask(database, "SELECT 1") == (1,)


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    for name, make in {
        "open": lambda path: path.mkdir(mode=0o755),
        "link": lambda path: path.symlink_to(tmp_path),
        "file": lambda path: path.touch(),
    }.items():
        make(tmp_path / name)
        with pytest.raises(CannotStart, match="belongs to somebody else"):
            own_folder(tmp_path / name, os.geteuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_without_namespaces_runs_as_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Path("/tmp") / f"hermes-reach-{os.getpid()}"  # reachable for others, unlike pytest's
    folder.mkdir(mode=0o755)
    database = Postgres(folder / "postgres", options={"fsync": "off"}, namespaces=False)
    try:
        reachable = database._bin.stat().st_mode & 0o001
        database.start()
        assert reachable
        running = database.identity()
        assert running
        assert Path(f"/proc/{running.pid}").stat().st_uid == privileges.NOBODY
        assert ask(database, "SELECT 1") == (1,)
    finally:
        database.stop()
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_without_any_way_is_told_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(CannotStart, match=r"does not run as root.*DATABASE_URL") as refused:
        Postgres(tmp_path / "x" / "postgres", namespaces=False).start()
    assert "\n" not in str(refused.value)


def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        user=65534,
        group=65534,
        extra_groups=[],
        env={"PYTHONPATH": ":".join([str(env.BASE), *sys.path])},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


START_AND_ASK = """
import sys, psycopg, pathlib
from hermes.management.servers.embedded import EmbeddedServers
servers = EmbeddedServers(pathlib.Path(sys.argv[1]), for_tests=True)
servers.start()
with psycopg.connect(servers.environment()["DATABASE_URL"]) as connection:
    print(connection.execute("SELECT 7").fetchone()[0], servers.valkey.answers())
servers.stop()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="runs as an ordinary user anyhow")
def test_an_ordinary_user_can_start_them() -> None:
    try:
        reach = as_nobody("import redis, psycopg, hermes.management.servers.embedded")
    except PermissionError:
        pytest.skip("this Python is reachable for root only")
    if reach.returncode:
        pytest.skip("these packages are reachable for root only")
    folder = Path("/tmp") / f"hermes-user-{os.getpid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    try:
        ended = as_nobody(START_AND_ASK, str(folder))
        assert ended.stdout.split() == ["7", "True"], ended.stderr
    finally:
        as_nobody(START_AND_ASK.replace("servers.start()", "sys.exit(servers.stop())"), str(folder))
        shutil.rmtree(folder)


def test_valkey_is_private_keeps_data_and_is_adopted(broker: Valkey) -> None:
    broker.start()
    with redis.Redis.from_url(broker.url) as client:
        told = client.config_get("*")
        client.set("kept", "yes")
    wanted = {
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
    }
    assert {name: told[name] for name in wanted} == wanted
    port = broker._port()
    with (
        redis.Redis(port=port) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    again = Valkey(broker.folder)
    again.start()
    assert again.adopted
    broker.stop()
    assert broker.identity() is None
    broker.start()
    assert broker._port() == port
    with redis.Redis.from_url(broker.url) as client:
        assert client.get("kept") == b"yes"


def test_valkey_takes_another_port_if_its_own_is_taken(broker: Valkey) -> None:
    broker.start()
    before = broker._port()
    broker.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", before))
        taken.listen(1)
        broker.start()
    assert broker._port() != before
    assert broker.answers()


def test_an_identity_is_not_a_pid() -> None:
    own = Identity.of(os.getpid())
    assert own
    assert own.is_alive()
    assert not Identity(own.pid, "1", own.boot).is_alive()
    assert not Identity(own.pid, own.started, "another boot").is_alive()
