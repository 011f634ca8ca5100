"""Every write path of a process and its news, with a writer that dies at each statement."""

from __future__ import annotations

import pytest

from hermes.lib.db import db_now
from processes_app import intake, runner, verdicts
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import endpoints, transcript
from tests import factories, states
from tests.faults import crash
from tests.processes import facts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


@pytest.fixture(autouse=True)
def _quick(monkeypatch, caplog, settings):
    settings.HERMES_PROCESSES_IN_ALL = 10_000
    caplog.set_level("WARNING")
    monkeypatch.setattr(endpoints, "model_for", lambda *_: states.SILENT)


def asking() -> facts.Background:
    """A started turn of a person who may have commands run."""
    state = facts.talked()
    state.turn = factories.say(state.chat, "run it")
    state.claimed = transcript.claim(state.turn.session_id)
    transcript.start(state.claimed)
    return state


def start(state):
    return intake.start_process(
        state.claimed.facts, "call-1", intake.Ask("echo done", is_foreground=False)
    )


def told_once(state, came_through: bool):
    assert len(facts.told(state.chat)) == 1
    assert len([turn for turn in facts.reporting(state.chat) if turn.started_at]) == 1
    assert CompletionEvent.objects.get(origin_chat=state.chat.key).status == "delivered"


def run_all(state):
    states.run_all(state)
    facts.run_turns(state)


def test_a_process_is_recorded_once():
    def check(state, came_through):
        row = ProcessRecord.objects.get(origin_chat=state.chat.key)
        assert (row.status, row.origin_session) == ("starting", state.turn.session.key)
        assert not start(state).is_new

    points = crash.crash_everywhere(asking, start, recover=start, check=check)
    print(f"\ncrash points of start_process: {points}")


def test_a_start_is_recorded_once():
    def setup():
        return facts.running(
            status="starting", pid=None, pid_start="", started_at=None, host="here"
        )

    def act(state):
        return intake.record_start(state.process.pk, pid=7, pid_start="1", started_at=db_now())

    def check(state, came_through):
        assert ProcessRecord.objects.get(pk=state.process.pk).status == "running"

    points = crash.crash_everywhere(setup, act, recover=act, check=check)
    print(f"\ncrash points of record_start: {points}")


def test_an_end_and_its_news_are_one():
    def recover(state):
        facts.end(state.process)  # the supervisor finds the file again
        facts.end(state.process)
        run_all(state)

    points = crash.crash_everywhere(
        facts.running, lambda state: facts.end(state.process), recover=recover, check=told_once
    )
    print(f"\ncrash points of record_end: {points}")


def test_settling_is_whole_or_not_at_all():
    points = crash.crash_everywhere(
        facts.ended,
        lambda state: verdicts.settle(state.chat.key),
        recover=run_all,
        check=told_once,
    )
    print(f"\ncrash points of settle: {points}")


def test_a_turn_that_reports_starts_once():
    points = crash.crash_everywhere(
        facts.held,
        lambda state: transcript.start(state.claimed),
        recover=run_all,
        check=told_once,
    )
    print(f"\ncrash points of start: {points}")


def test_what_was_started_is_delivered_once():
    def setup():
        state = facts.held()
        transcript.start(state.claimed)
        return state

    points = crash.crash_everywhere(
        setup, lambda state: verdicts.settle(state.chat.key), recover=run_all, check=told_once
    )
    print(f"\ncrash points of delivered: {points}")


def test_a_kill_is_asked_once():
    def setup():
        return facts.running(status="starting", host="", pid=None, pid_start="", started_at=None)

    def act(state):
        return intake.ask_kill(state.process.pk, by="person", actor="me")

    def recover(state):
        act(state)
        runner.deliver(state.chat.key)

    def check(state, came_through):
        assert ProcessRecord.objects.get(pk=state.process.pk).reason == "handed_back"
        assert state.event.status == "quiet"

    points = crash.crash_everywhere(setup, act, recover=recover, check=check)
    print(f"\ncrash points of ask_kill: {points}")


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ncrash points passed: {crash.total.points}")
    print(f"COMMITs without an answer: {crash.total.answers}")
