"""No connection held while waiting; whole transactions tried again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction

from hermes.lib.db import db_now, is_transient, released, retrying
from hermes.pool import try_again
from tests.races.explorer import race

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_waiting_thread_holds_no_connection():
    db_now()
    with released():
        assert connection.connection is None


def test_inside_a_transaction_there_is_nothing_to_give_back():
    with (
        pytest.raises(RuntimeError, match="inside a transaction"),
        transaction.atomic(),
        released(),
    ):
        pass


def test_a_lost_connection_is_tried_again():
    calls = []

    @retrying
    @transaction.atomic
    def look():
        calls.append(1)
        if len(calls) == 1:
            backend = connection.connection.info.backend_pid
            race(1, lambda: _end(backend))
        return db_now()

    assert look()
    assert len(calls) == 2


def _end(backend: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [backend])


def test_what_cannot_succeed_is_not_tried_again():
    calls = []

    @retrying
    def fail():
        calls.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT nonsense")

    with pytest.raises(Exception, match="nonsense"):
        fail()
    assert len(calls) == 1


def test_it_gives_up_after_three():
    calls = []

    @retrying
    def fail():
        calls.append(1)
        raise OperationalError("away")

    with pytest.raises(OperationalError):
        fail()
    assert len(calls) == 3


def test_within_a_transaction_of_the_caller_nothing_is_tried_again():
    calls = []

    @retrying
    def fail():
        calls.append(1)
        raise OperationalError("away")

    with pytest.raises(OperationalError), transaction.atomic():
        fail()
    assert len(calls) == 1


def test_which_errors_pass():
    assert is_transient(InterfaceError("closed"))
    assert not is_transient(ValueError())


@pytest.fixture
def line(tmp_path, settings):
    """The way to the server's socket, which can be taken away; and a pool that goes this way."""
    folder = settings.DATABASES["default"]["HOST"]
    if not folder.startswith("/"):
        pytest.skip("the server is not reached by a socket in a folder")
    way = tmp_path / "line"
    way.symlink_to(folder)
    away = connection.copy("away")
    away.settings_dict["HOST"] = str(way)
    away.settings_dict["OPTIONS"]["application_name"] = AWAY
    yield way, away
    away.close()
    away.close_pool()


AWAY = "hermes-away"


def end_all() -> None:
    """The server ends the connections of that pool."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            [AWAY],
        )


def answers(away) -> bool:
    try:
        with away.cursor() as cursor:
            cursor.execute("SELECT 1")
    except OperationalError:
        return False
    finally:
        away.close()
    return True


def take_away(way, away) -> None:
    """No connection is left, and none can be made."""
    away.pool.timeout = 0.25
    assert answers(away)
    way.unlink()
    while answers(away):  # one that was just being opened is ended with the next look
        end_all()


@pytest.mark.parametrize("is_asked", [True, False])
def test_after_a_long_outage_the_pool_is_back_at_once(line, settings, is_asked: bool):
    """The pause between two tries does not grow with the time that the database was away, and
    who waits for a connection all that time gets one too.
    """
    way, away = line
    take_away(way, away)
    until = time.monotonic() + 8  # doubled from one second, the next try would be 7 s later
    if is_asked:
        while time.monotonic() < until:
            assert not answers(away)
    else:
        waiting = ThreadPoolExecutor(1).submit(away.pool.getconn, 20)
        time.sleep(8)
        assert not waiting.done()
    way.symlink_to(settings.DATABASES["default"]["HOST"])
    back = time.monotonic()
    if is_asked:
        while not answers(away):
            assert time.monotonic() - back < 3.5
    else:
        away.pool.putconn(waiting.result(3.5))


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_restart_of_the_server_costs_no_request_however_many_were_idle(
    line, settings, seconds: float
):
    """Broken connections are not thrown away one by one, with pauses that double."""
    way, away = line
    assert answers(away)
    pool = away.pool
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: pool.getconn(10), range(8)))
    for one in taken:
        pool.putconn(one)
    assert pool.get_stats()["pool_available"] == 8
    if seconds:
        way.unlink()
    end_all()
    time.sleep(seconds)
    if seconds:
        way.symlink_to(settings.DATABASES["default"]["HOST"])
    back = time.monotonic()
    assert answers(away)
    assert time.monotonic() - back < 3.5


def test_a_pool_that_nobody_has_asked_leaves_the_server_alone(line):
    _way, away = line
    assert answers(away)
    pool = away.pool
    connections = pool.get_stats()["connections_num"]
    idle = pool.getconn(1)
    try_again(pool)  # nothing is idle, so this would begin a new one
    pool.putconn(idle)
    time.sleep(0.2)
    assert pool.get_stats()["connections_num"] == connections
