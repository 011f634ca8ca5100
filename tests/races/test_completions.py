"""Writers of news against each other and against people, in every order of two preemptions."""

from __future__ import annotations

import os

import pytest

from hermes.lib import hints
from processes_app import intake, runner, verdicts
from processes_app.domain import KillBy
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import endpoints, transcript
from sessions_app import intake as chats
from tests import states
from tests.processes import facts
from tests.races import explorer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

EVERY = 1 if os.environ.get("HERMES_TEST_SIZE") == "full" else 149


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch, caplog, settings):
    settings.HERMES_PROCESSES_IN_ALL = 10_000
    caplog.set_level("WARNING")
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)
    monkeypatch.setattr(endpoints, "model_for", lambda *_: states.SILENT)


def _settle(state):
    return verdicts.settle(state.chat.key)


def _new(state):
    return chats.new_session(**state.who, client_id="n")


def _start(state):
    return transcript.start(state.claimed)


def _end(state):
    return facts.end(state.process)


def _kill(state):
    return intake.ask_kill(state.process.pk, by=KillBy.PERSON, actor="me")


def _one(state) -> tuple[str, str]:
    event = CompletionEvent.objects.get(process=state.process)
    return event.status, event.reason or event.quiet_because


def test_settle_and_new():
    def check(state, one, two):
        facts.run_turns(state)
        assert facts.told(state.chat) == []
        assert _one(state) == ("dropped", "closed_by_user")

    explorer.explore("settle × /new", facts.ended, _settle, _new, check, every=EVERY)


def test_settle_and_settle():
    def check(state, one, two):
        assert sorted([one.result.accepted, two.result.accepted]) == [0, 1]
        assert len(facts.reporting(state.chat)) == 1

    explorer.explore("settle × settle", facts.ended, _settle, _settle, check, every=EVERY)


def test_start_and_new():
    def check(state, one, two):
        facts.run_turns(state)
        assert len(facts.told(state.chat)) == (1 if one.result else 0)
        assert _one(state) == (("delivered", "") if one.result else ("dropped", "closed_by_user"))

    explorer.explore("start × /new", facts.held, _start, _new, check, every=EVERY)


def test_end_and_kill():
    def check(state, one, two):
        assert one.result is True
        row = ProcessRecord.objects.get(pk=state.process.pk)
        assert (row.status, row.reason) == ("ended", "exited")
        assert CompletionEvent.objects.filter(process=state.process).count() == 1

    explorer.explore("end × kill", facts.running, _end, _kill, check, every=EVERY)


def test_end_and_end():
    def check(state, one, two):
        assert sorted([one.result, two.result]) == [False, True]
        assert CompletionEvent.objects.filter(process=state.process).count() == 1

    explorer.explore("end × end", facts.running, _end, _end, check, every=EVERY)


def test_settle_and_start():
    def check(state, one, two):
        assert two.result
        facts.run_turns(state)
        assert _one(state) == ("delivered", "")
        assert len(facts.told(state.chat)) == 1

    explorer.explore("settle × start", facts.held, _settle, _start, check, every=EVERY)


def test_start_process_and_new():
    from tests.faults.test_completion_crashes import asking, start

    def check(state, one, two):
        rows = ProcessRecord.objects.filter(origin_chat=state.chat.key)
        assert rows.count() == (1 if isinstance(one.result, intake.Started) else 0)
        assert set(rows.values_list("origin_session", flat=True)) <= {state.turn.session.key}

    explorer.explore("start_process × /new", asking, start, _new, check, every=EVERY)


@pytest.mark.parametrize("count", [2, 8, 16])
def test_one_of_many_deliverers_delivers(count):
    completions = 200 if EVERY == 1 else 4
    for _ in range(completions):
        state = facts.ended()
        event = state.event
        answers = explorer.race(count, lambda: runner.deliver_event(event.pk))  # noqa: B023

        assert sorted(answers, key=str) == sorted([True, *[None] * (count - 1)], key=str)
        facts.run_turns(state)
        assert len(facts.told(state.chat)) == 1
        assert facts.violations(state) == []
    print(f"\ndeliverers: {count} x {completions} completions, each delivered exactly once")


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ninterleavings explored: {explorer.total.schedules} {explorer.total.by_pair}")
