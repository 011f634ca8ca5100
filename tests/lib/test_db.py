"""No connection held while waiting; whole transactions tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction

from hermes.lib.db import (
    InDoubt,
    TransactionId,
    Unknowable,
    _Sent,
    db_now,
    insist,
    is_transient,
    released,
    retrying,
    transacted,
)
from hermes.pool import try_again
from sessions_app.models import Session
from tests import factories
from tests.faults.crash import losing
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

    @transacted
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


def own_rows():
    """Those of these tests: a fresh database has the roles as groups."""
    return Group.objects.filter(name__startswith="own")


@transacted
def write_a_row() -> int:
    return Group.objects.create(name=f"own {Group.objects.count()}").pk


@contextmanager
def unreachable(times: int) -> Iterator[None]:
    """A server that cannot be asked, so many times, what became of a transaction."""
    asks, away = _Sent.took_effect, [OperationalError("away")] * times

    def took_effect(sent):
        if away:
            raise away.pop()
        return asks(sent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Sent, "took_effect", took_effect)
        yield


def test_a_commit_without_an_answer_is_asked_after_and_not_run_again():
    with losing():
        pk = write_a_row()

    assert list(own_rows().values_list("pk", flat=True)) == [pk]


def test_a_commit_that_did_not_arrive_is_run_again():
    with losing(arrives=False):
        pk = write_a_row()

    assert list(own_rows().values_list("pk", flat=True)) == [pk]


def test_a_lock_notes_the_transaction_so_that_nobody_has_to_ask(django_assert_num_queries):
    pk = factories.say(factories.chat(), "hello").session_id

    @transacted
    def work():
        Session.objects.lock(pk)
        Session.objects.lock_with_summary(pk)
        Session.objects.filter(pk=pk).update(version=7)

    with django_assert_num_queries(5):  # BEGIN and COMMIT with them
        work()


def test_a_commit_that_is_under_way_is_waited_for():
    """Its backend may still be at work, while we have lost the connection."""
    written, asked = threading.Event(), threading.Event()
    numbers = []

    def other():
        with transaction.atomic():
            Group.objects.create(name="own")
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {TransactionId.template}")
                numbers.extend(cursor.fetchone())
            written.set()
            assert asked.wait(10)
        connection.close()

    def asks(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        asked.set()  # it was in progress at this look
        return result

    with ThreadPoolExecutor() as threads:
        done = threads.submit(other)
        assert written.wait(10)
        with connection.execute_wrapper(asks):
            assert _Sent(numbers[0], "result").took_effect()
        done.result(10)


def test_in_doubt_is_said_and_asked_later(monkeypatch):
    runs = []

    @transacted
    def work():
        runs.append(Group.objects.create(name="own").pk)
        return runs[-1]

    with losing(), unreachable(3), pytest.raises(InDoubt) as doubt:
        work()

    assert doubt.value.again() == runs[0]
    assert len(runs) == own_rows().count() == 1


def test_who_insists_asks_and_does_not_run_again(monkeypatch):
    runs = []

    @transacted
    def work():
        runs.append(Group.objects.create(name="own").pk)
        return runs[-1]

    with losing(), unreachable(4):
        assert insist(work, seconds=10, what="row") == runs[0]

    assert len(runs) == own_rows().count() == 1


def test_it_is_asked_after_also_at_the_last_try():
    runs = []

    @transacted
    def work():
        runs.append(1)
        if len(runs) < 3:
            raise OperationalError("away")
        return Group.objects.create(name="own").pk

    with losing():
        assert work() == own_rows().get().pk
    assert len(runs) == 3


def test_it_gives_up_where_no_commit_arrives():
    @transacted
    def work():
        Group.objects.create(name="own")

    def away():
        connection.connection.close()
        raise OperationalError("server closed the connection unexpectedly")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_commit", away)
        with pytest.raises(OperationalError, match="before COMMIT"):
            work()
    assert not own_rows().exists()


def test_another_life_of_the_server_tells_nothing():
    """Numbers are handed out anew after a crash: 'committed' may be said of another transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT {TransactionId.template}")
        (known,) = cursor.fetchone()

    assert _Sent(known, "result").took_effect()
    with pytest.raises(Unknowable):
        _Sent(known + "1", "result").took_effect()


def test_what_cannot_be_known_is_not_run_again(monkeypatch):
    runs = []

    @transacted
    def work():
        runs.append(Group.objects.create(name="own").pk)

    def crashed(sent):
        raise Unknowable("the server has crashed since")

    monkeypatch.setattr(_Sent, "took_effect", crashed)
    with losing(), pytest.raises(Unknowable):
        insist(work, seconds=10, what="row")
    assert len(runs) == 1


def test_a_connection_that_the_body_closed_is_not_taken_for_a_commit():
    @transacted
    def work():
        Group.objects.create(name="own")
        connection.close()

    with pytest.raises(transaction.TransactionManagementError):
        work()
    assert not own_rows().exists()


def test_a_closed_connection_is_tried_again():
    calls = []

    @retrying
    def look():
        calls.append(1)
        if len(calls) == 1:
            raise InterfaceError("the connection is closed")
        return db_now()

    assert look()


def test_what_is_refused_is_refused_at_once(monkeypatch):
    """Also at COMMIT, where deferred constraints speak."""
    runs = []

    @transacted
    def work():
        runs.append(Group.objects.create(name="own").pk)

    def refuse():
        monkeypatch.undo()
        raise IntegrityError("a deferred constraint")

    monkeypatch.setattr(connection, "_commit", refuse)

    with pytest.raises(IntegrityError):
        work()
    assert len(runs) == 1
    assert not own_rows().exists()


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
