"""Pairs of writers, statement by statement, in every order with at most two preemptions."""

from __future__ import annotations

import os

import pytest

from hermes.lib import hints
from sessions_app import intake, transcript
from sessions_app.domain import TurnStatus
from sessions_app.models import Message, Session, Turn
from tests import states
from tests.races import explorer
from tests.states import State

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

EVERY = 1 if os.environ.get("HERMES_TEST_SIZE") == "full" else 23


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch):
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)


def _submit(state: State):
    return intake.accept_turn(**state.who, client_turn_id="a", text="hello again")


def _claim(state: State):
    session = Session.objects.get(chat=state.chat, number=1)
    return transcript.claim(session.pk)


def _new(state: State):
    return intake.new_session(**state.who, client_id="n")


def _start(state: State):
    return transcript.start(state.claimed)


def _finish(state: State):
    return transcript.finish(state.claimed, states.answer("so far so good, and done"))


def _stop(state: State):
    turn = intake.stop_turn(**state.who)
    if turn is None:
        return None
    return transcript.end_unheld(
        turn.pk,
        TurnStatus.CANCELLED,
        session_id=turn.session_id,
        reason="stopped",
        token=turn.fence_token,
    )


def test_submit_and_claim():
    def check(state, one, two):
        turn = Turn.objects.get(client_turn_id="a", chat=state.chat)
        claimed = two.result
        assert turn.status == ("running" if claimed and claimed.turn.pk == turn.pk else "queued")

    explorer.explore("submit × claim", states.fresh, _submit, _claim, check, every=EVERY)


def test_submit_and_submit_of_one_id():
    def check(state, one, two):
        assert one.result.turn.pk == two.result.turn.pk
        assert one.result.is_new != two.result.is_new
        assert Turn.objects.filter(chat=state.chat, client_turn_id="a").count() == 1

    explorer.explore("submit × submit", states.fresh, _submit, _submit, check, every=EVERY)


def test_claim_and_claim():
    def check(state, one, two):
        assert sum(each.result is not None for each in (one, two)) == 1
        assert state.again().fence_token == 1

    explorer.explore("claim × claim", states.queued, _claim, _claim, check, every=EVERY)


def test_claim_and_new():
    def check(state, one, two):
        turn = state.again()
        assert turn.status == "cancelled"
        assert Session.objects.filter(chat=state.chat, ended_at=None).get().number == 2
        if one.result is not None:
            assert not transcript.start(one.result)
        assert two.result["drafts"] == ["what now?"]

    explorer.explore("claim × /new", states.queued, _claim, _new, check, every=EVERY)


def test_start_and_new():
    def check(state, one, two):
        turn = state.again()
        assert turn.status == "cancelled"
        said = Message.objects.filter(turn=turn).count()
        assert said == (1 if one.result else 0)
        assert two.result["drafts"] == ([] if one.result else ["what now?"])

    explorer.explore("start × /new", states.claimed, _start, _new, check, every=EVERY)


def test_submit_and_new():
    def check(state, one, two):
        turn = Turn.objects.get(chat=state.chat, client_turn_id="a")
        drafts = two.result["drafts"]
        if turn.session.number == 1:
            assert (turn.status, drafts) == ("cancelled", ["hello again"])
        else:
            assert (turn.status, drafts) == ("queued", [])

    explorer.explore("submit × /new", states.fresh, _submit, _new, check, every=EVERY)


def test_finish_and_stop():
    def check(state, one, two):
        turn = state.again()
        assert bool(one.result) != bool(two.result)
        text = state.rows()[-1][1]
        if one.result:
            assert (turn.status, text) == ("completed", "so far so good, and done")
        else:
            assert (turn.status, text) == ("cancelled", "so far so good")

    explorer.explore("finish × stop", states.running, _finish, _stop, check, every=EVERY)


def test_finish_and_new():
    def check(state, one, two):
        turn = state.again()
        assert turn.status == ("completed" if one.result else "cancelled")

    explorer.explore("finish × /new", states.running, _finish, _new, check, every=EVERY)


def test_finish_and_sweep():
    def check(state, one, two):
        turn = state.again()
        assert bool(one.result) != bool(two.result)
        assert turn.status == ("completed" if one.result else "interrupted")

    def sweep(state):
        turn = state.again()
        return transcript.end_unheld(
            turn.pk,
            TurnStatus.INTERRUPTED,
            session_id=turn.session_id,
            reason="worker_lost",
            token=1,
        )

    explorer.explore("finish × sweep", states.running, _finish, sweep, check, every=EVERY)


def test_finish_and_edit():
    def edit(state):
        first = Turn.objects.filter(chat=state.chat).order_by("pk").first()
        return intake.edit_message(
            **state.who, turn_id=first.pk, client_turn_id="e", text="hello, differently"
        )

    def check(state, one, two):
        live = Message.objects.filter(session__chat=state.chat).live()
        assert live.count() == 0  # everything from the first message on has stepped out
        assert two.result.status == "queued"
        assert state.again().status == ("completed" if one.result else "cancelled")

    explorer.explore("finish × edit", states.running, _finish, edit, check, every=EVERY)


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ninterleavings explored: {explorer.total.schedules} {explorer.total.by_pair}")
