"""What the sweep finds, once, and without harm to what is well."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection

from hermes.lib.db import DbNow
from hermes.lib.leases import Owner
from sessions_app import intake, periodic, receivers, sweeps
from sessions_app.models import Chat, History, Message, Periodic, Session, Turn, TurnChunk
from tests import factories, states
from tests.races.explorer import race

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = "2020-01-01T00:00Z"


def test_a_queued_turn_whose_hint_was_lost_is_found():
    turn = factories.say(factories.chat(), "hello")
    assert list(sweeps.find_queued()) == []
    Turn.objects.update(created_at=LONG_AGO)
    assert list(sweeps.find_queued()) == [turn.session_id]


def test_what_waits_behind_a_running_turn_is_no_find():
    state = states.running()
    factories.say(state.chat, "later")
    Turn.objects.update(created_at=LONG_AGO)
    assert list(sweeps.find_queued()) == []


def test_a_run_whose_owner_is_gone_is_ended_at_once():
    state = states.running()
    assert list(sweeps.end_abandoned()) == []
    me = Owner.me()
    gone = Owner(me.host, me.boot, me.pid, "1")
    Turn.objects.filter(pk=state.turn.pk).update(lease_owner=str(gone))
    assert list(sweeps.end_abandoned()) == [state.turn.session_id]
    assert state.again().status == "interrupted"


def test_a_stop_that_nobody_carried_out_is_carried_out():
    state = states.running()
    intake.stop_turn(**state.who)
    assert list(sweeps.end_stopped()) == []
    Turn.objects.filter(pk=state.turn.pk).update(stop_asked_at=LONG_AGO)
    assert list(sweeps.end_stopped()) == [state.turn.session_id]
    assert (state.again().status, state.rows()[-1][1]) == ("cancelled", "so far so good")


def test_one_sweep_at_a_time_and_not_too_often(settings):
    settings.HERMES_SWEEP_SECONDS = 60
    began = race(6, lambda: _enter())
    assert sorted(began) == [False] * 5 + [True]
    with periodic.due("work", 60) as again:
        assert not again
    Periodic.objects.update(last_run_at=LONG_AGO)
    with periodic.due("work", 60) as again, periodic.due("work", 0, force=True) as beside:
        assert (again, beside) == (True, False)


def _enter() -> bool:
    with periodic.due("work", 60) as is_due:
        return is_due


def test_a_sweep_that_died_does_not_block_for_ever():
    with periodic.due("work", 0):
        Periodic.objects.update(busy_until=LONG_AGO)
        with periodic.due("work", 0) as is_due:
            assert is_due


def test_a_sweep_whose_process_was_killed_is_over():
    me = Owner.me()
    with periodic.due("work", 0):
        with periodic.due("work", 0) as beside:
            assert not beside
        Periodic.objects.update(busy_by=f"{Owner(me.host, me.boot, me.pid, '1')} 0a1b2c3d")
        with periodic.due("work", 60, force=True) as is_due:
            assert is_due


def test_a_sweep_whose_end_could_not_be_noted_holds_up_nothing():
    with periodic.due("work", 0) as is_due:
        assert is_due
        connection.connection.close()

    with periodic.due("work", 0) as is_due:
        assert is_due
    assert Periodic.objects.get(pk="work").busy_by == ""


def test_a_sweep_of_another_thread_of_this_process_goes_on_alone():
    at_work, over = threading.Event(), threading.Event()

    def other():
        with periodic.due("work", 0) as is_due:
            at_work.set()
            assert over.wait(10)
        connection.close()
        return is_due

    with ThreadPoolExecutor() as threads:
        done = threads.submit(other)
        assert at_work.wait(10)
        with periodic.due("work", 0) as beside:
            assert not beside
        over.set()
        assert done.result(10)


def test_a_run_that_began_between_look_and_claim_is_not_taken_over(monkeypatch):
    """Its thread came later than ours, which still holds itself for alone, and claimed sooner."""
    begin = periodic._begin
    inner: list[bool] = []

    def overtaken(*args, **kwargs):
        monkeypatch.setattr(periodic, "_begin", begin)
        with periodic.due("work", 0, force=True) as is_due:
            inner.append(is_due)
            inner.append(begin(*args, **kwargs))
        return inner[1]

    with periodic.due("work", 0):
        pass  # so that the row is there, and free
    monkeypatch.setattr(periodic, "_begin", overtaken)
    with periodic.due("work", 0, force=True):
        pass

    assert inner.count(True) == 1


def test_a_run_that_was_taken_over_does_not_end_the_next_one():
    with periodic.due("work", 0):
        Periodic.objects.update(busy_until=LONG_AGO)
        later = periodic.due("work", 0)
        assert later.__enter__()
    with periodic.due("work", 0, force=True) as beside:
        assert not beside
    later.__exit__(None, None, None)
    assert Periodic.objects.get(pk="work").busy_by == ""


def test_a_step_that_lost_its_connection_costs_the_next_ones_nothing():
    def loses() -> int:
        connection.connection.close()
        return Periodic.objects.count()

    def finds() -> int:
        return Periodic.objects.filter(name="work").count()

    assert periodic.run_due("work", 0, [loses, finds]) == 1


def test_the_whole_sweep_runs_and_hints(monkeypatch):
    hinted = []
    monkeypatch.setattr(sweeps.tasks, "hint_turns", hinted.append)
    turn = factories.say(factories.chat(), "hello")
    Turn.objects.update(created_at=LONG_AGO)
    assert sweeps.sweep() == [turn.session_id] == hinted
    assert sweeps.sweep() == []
    assert sweeps.sweep(force=True) == [turn.session_id]


def test_no_step_of_the_sweep_costs_another_its_finds(monkeypatch):
    def breaks() -> None:
        connection.ensure_connection()
        connection.connection.close()
        Turn.objects.exists()

    hinted: list[int] = []
    monkeypatch.setattr(sweeps.tasks, "hint_turns", hinted.append)
    for step in ("end_stopped", "_clean", "_end_idle"):
        monkeypatch.setattr(sweeps, step, breaks)
    turn = factories.say(factories.chat(), "hello")
    Turn.objects.update(created_at=LONG_AGO)

    assert sweeps.sweep() == [turn.session_id] == hinted


def test_a_sweep_that_fails_costs_the_other_sweeps_nothing(settings, monkeypatch):
    """And it is run at once again, while those that ran wait until they are due."""
    settings.HERMES_SWEEPS = ["first", "second", "third"]
    ran: list[tuple[str, bool]] = []

    def sweep_named(name: str) -> Callable[..., None]:
        def sweep(*, force: bool) -> None:
            ran.append((name, force))
            if name == "second" and force and len(ran) < 4:
                connection.connection.close()
                Turn.objects.exists()
            if len(ran) == 6:
                raise SystemExit

        return sweep

    connection.ensure_connection()
    monkeypatch.setattr(receivers, "import_string", sweep_named)
    monkeypatch.setattr(receivers.time, "sleep", lambda _seconds: None)
    with pytest.raises(SystemExit):
        receivers._sweep_for_ever(takes_turns=False)

    assert ran[:3] == [("first", True), ("second", True), ("third", True)]
    assert ran[3:] == [("first", False), ("second", True), ("third", False)]


def test_chunks_go_when_a_message_holds_their_text():
    state = states.running()
    TurnChunk.objects.update(created_at=LONG_AGO)
    sweeps._clean()
    assert TurnChunk.objects.exists()  # the turn still runs
    states.end_leases(state)
    sweeps._clean()
    assert not TurnChunk.objects.exists()


def test_what_was_deleted_long_ago_is_purged_and_leaves_its_history(settings):
    state, other = states.running(), states.fresh()
    intake.delete_chat(**state.who)
    Chat.objects.filter(pk=state.chat.pk).update(deleted_at=DbNow() - timedelta(days=31))
    sweeps._clean()
    assert list(Chat.objects.all()) == [other.chat]
    assert not Message.objects.filter(session__chat=state.chat.pk).exists()
    assert History.objects.filter(kind="purge", chat=state.chat.pk).exists()


def test_a_chat_brought_back_is_not_purged():
    state = states.fresh()
    intake.purge(state.chat.pk)
    assert Chat.objects.filter(pk=state.chat.pk).exists()


def test_idle_sessions_end_where_an_operator_asks_for_it(settings):
    state = states.fresh()
    Session.objects.update(touched_at=LONG_AGO)
    sweeps._end_idle()
    assert Session.objects.get(chat=state.chat).ended_at is None
    settings.HERMES_SESSION_IDLE_HOURS = 1
    sweeps._end_idle()
    assert Session.objects.get(chat=state.chat).end_reason == "idle_timeout"
