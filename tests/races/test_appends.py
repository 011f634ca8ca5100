"""Writers that append to one session or fold it, in every order with at most two preemptions."""

from __future__ import annotations

import os

import pytest

from compression_app import fence
from compression_app.domain import AttemptStatus, Reason
from compression_app.models import CompactionAttempt
from hermes.lib import hints
from sessions_app import intake, transcript
from sessions_app.models import Session, Summary
from sessions_app.transcript import context
from tests import factories, states
from tests.benchmarks.lengths import Folding
from tests.benchmarks.seeds import long_session
from tests.races import explorer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
DEPTH = 2 if FULL else 1


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch):
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)


def test_submit_and_start():
    """Both write the session's numbers: what one handed out the other may not take back."""

    def check(state, one, two):
        session = Session.objects.get(pk=state.turn.session_id)
        assert two.result
        assert (session.last_seq, session.last_position) == (3, 3)

    def submit(state):
        return intake.accept_turn(**state.who, client_turn_id="a", text="hello again")

    explorer.explore(
        "submit × start",
        states.claimed,
        submit,
        lambda state: transcript.start(state.claimed),
        check,
        preemptions=DEPTH,
    )


def folding() -> states.State:
    """A session with an attempt that may commit."""
    state = long_session(60)
    state.folding = Folding(state)
    state.ready = state.folding.ready()
    return state


def commit(state):
    claimed, written = state.ready
    return fence.commit(claimed.lease, written)


def test_commit_and_cancel():
    def cancel(state):
        attempt = state.ready[0].attempt
        return fence.end(attempt.pk, attempt.session_id, AttemptStatus.CANCELLED, Reason.CANCELLED)

    def check(state, one, two):
        attempt = CompactionAttempt.objects.get(session=state.turn.session_id)
        has_summary = Summary.objects.filter(session=state.turn.session_id).exists()
        assert attempt.status == ("cancelled" if two.result else "committed")
        assert has_summary == (not two.result)
        assert type(one.result).__name__ == ("Fenced" if two.result else "Commit")

    explorer.explore("commit × cancel", folding, commit, cancel, check, preemptions=DEPTH)


def test_commit_and_append():
    def check(state, one, two):
        session = Session.objects.select_related("summary").get(pk=state.turn.session_id)
        assert type(one.result).__name__ == "Commit"
        assert session.summary is not None
        assert session.last_seq == 61
        newest = session.messages.get(seq=61)
        assert (newest.text, newest.seq > session.summary.covers_through) == ("and now?", True)
        # Whichever summary the turn was given, or none: its text and its id belong together.
        begun = state.claimed.turn.session
        given = context.build(begun.pk, window=100_000, tools=(), session=begun)
        texts = [message.text for message in given.messages]
        assert (session.summary.text in texts) == (given.built_on_id == session.summary_id)

    def setup():
        state = folding()
        factories.say(state.chat, "and now?")
        state.claimed = transcript.claim(state.turn.session_id)
        return state

    explorer.explore(
        "commit × append",
        setup,
        commit,
        lambda state: transcript.start(state.claimed),
        check,
        preemptions=DEPTH,
    )


@pytest.fixture(scope="module", autouse=True)
def _print_the_count():
    yield
    print(f"\ninterleavings explored: {explorer.total.schedules} {explorer.total.by_pair}")
