"""No connection held while waiting; whole transactions tried again."""

from __future__ import annotations

import time

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction

from hermes.lib.db import db_now, is_transient, released, retrying
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


def test_after_a_long_outage_the_pool_is_back_at_once(tmp_path, settings):
    """The pause between two tries does not grow with the time that the database was away."""
    folder = settings.DATABASES["default"]["HOST"]
    line = tmp_path / "line"  # the way to the server's socket, which can be taken away
    line.symlink_to(folder)
    away = connection.copy("away")
    away.settings_dict["HOST"] = str(line)
    away.pool.timeout = 0.25

    def ask() -> bool:
        try:
            with away.cursor() as cursor:
                cursor.execute("SELECT 1")
        except OperationalError:
            return False
        finally:
            away.close()
        return True

    try:
        assert ask()
        line.unlink()
        while ask():  # one that was just being opened is ended with the next look
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        until = time.monotonic() + 8  # doubled from one second, the next try would be 7 s later
        while time.monotonic() < until:
            assert not ask()
        line.symlink_to(folder)
        back = time.monotonic()
        while not ask():
            assert time.monotonic() - back < 3.5
    finally:
        away.close_pool()
