"""A table of bad summaries: what is stored, and which cooldown and streak follow.

A rejected summary drops nothing: the transcript, and what the model reads, stay as they were.
"""

from __future__ import annotations

import pytest
from django.db import DataError

from compression_app import fence, intake, runner
from compression_app.models import CompressionState, Cooldown
from hermes.lib import hints
from sessions_app import transcript
from sessions_app.models import Message, Session, Summary
from tests import factories
from tests.compression.conftest import newest_attempt, session_over_mark
from tests.scripted.behaviour import Behaviour, Call

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models")]

GOOD = "## Goal\nShip.\n## Done\nAll.\n## Next step\nNone."
TABLE = {
    "empty": (Behaviour(text=""), "empty"),
    "blank": (Behaviour(text=" \n\n "), "empty"),
    "reasoning only": (Behaviour(text="", reasoning="let me think"), "reasoning_only"),
    "tool call": (Behaviour(text=GOOD, calls=(Call("count"),)), "tool_call"),
    "refusal": (Behaviour(text="I'm sorry, but I can't help with that."), "refusal"),
    "filtered": (Behaviour(text=GOOD, finish_reason="content_filter"), "refusal"),
    "truncated": (Behaviour(text=GOOD, finish_reason="length"), "truncated"),
    "error text": (Behaviour(text="Error: upstream connect failure"), "not_a_summary"),
    "HTML": (Behaviour(text="<html><body>502</body></html>"), "not_a_summary"),
    "longer than its source": (Behaviour(text=GOOD + "\nmore" * 9_000), "would_grow"),
    "missing sections": (Behaviour(text="We talked about many things."), "missing_sections"),
    "401": (Behaviour(status=401), "provider"),
    "429": (Behaviour(status=429, headers={"Retry-After": "7200"}), "provider"),
    "500": (Behaviour(status=500), "provider"),
    "cut": (Behaviour(text=GOOD, cut_after=700), "provider"),
}


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch):
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)


@pytest.mark.parametrize("name", TABLE)
def test_it_is_booked_and_drops_nothing(scripted, name, settings):
    settings.HERMES_FAILURE_COOLDOWN_SECONDS = 300
    behaviour, reason = TABLE[name]
    scripted.script("fake-sum", default=behaviour)
    state = session_over_mark()
    before = list(Message.objects.order_by("seq").values_list("pk", "text"))
    attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="hard")
    runner.run_attempt(attempt.pk)

    attempt.refresh_from_db()
    assert (attempt.status, attempt.reason) == ("failed", reason)
    assert not Summary.objects.exists()
    assert list(Message.objects.order_by("seq").values_list("pk", "text")) == before
    session = Session.objects.get()
    assert (session.summary_id, session.live_count) == (None, 6)
    cooldown = Cooldown.objects.get()
    assert cooldown.kind == "ladder"
    seconds = (cooldown.until - cooldown.created_at).total_seconds()
    if name == "429":
        assert seconds == pytest.approx(7200, abs=1)
        provider = CompressionState.objects.get(scope__startswith="endpoint:")
        assert provider.breaker_until is not None
    else:
        assert 255 <= seconds <= 345
    assert CompressionState.objects.get(session=session).streak == 1
    assert len(scripted.requests("fake-sum")) == 1


def test_a_commit_that_can_never_land_is_not_tried_for_ever(monkeypatch):
    def refuse(*_: object) -> None:
        raise DataError("value out of range")

    monkeypatch.setattr(fence, "commit", refuse)
    state = session_over_mark()
    attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="hard")

    assert runner.run_attempt(attempt.pk) is None


def test_secrets_and_untrusted_text_are_kept_apart(scripted):
    state = session_over_mark()
    secret = "sk-proj-" + "a1B2" * 12
    Message.objects.filter(seq=1).update(
        text=f"my key is {secret}, see src/app.py " + "word " * 900
    )
    attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
    runner.run_attempt(attempt.pk)

    assert newest_attempt().status == "committed"
    sent = str(scripted.requests("fake-sum")[-1]["body"])
    summary = Summary.objects.get()
    assert secret not in sent
    assert secret not in summary.text
    assert "src/app.py" in summary.text
    assert scripted.violations() == []


def test_an_earlier_summary_is_brought_up_to_date_and_not_nested(scripted):
    state = session_over_mark(pairs=8)
    for _ in range(2):
        attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
        assert not isinstance(attempt, intake.Refusal), attempt
        runner.run_attempt(attempt.pk)
        _more_rows(state)
    first, *_, last = Summary.objects.order_by("pk")
    assert last.previous_id is not None
    assert first.covers_through < last.covers_through
    sent = str(scripted.requests("fake-sum")[-1]["body"])
    assert "previous summary" in sent
    assert sent.count("Memory of the earlier part") == 0
    assert last.text.count("Memory of the earlier part") == 1


def _more_rows(state):
    for number in range(4):
        turn = factories.say(state.chat, f"later {number} " + "word " * 1200)
        claimed = transcript.claim(turn.session_id)
        transcript.start(claimed)
        transcript.finish(claimed, transcript.Step(text="answer " + "text " * 1200))


def test_a_focus_reaches_the_model(scripted):
    state = session_over_mark()
    attempt = intake.request_compaction(
        session_id=state.turn.session_id, trigger="manual", focus="the backfill of order_events"
    )
    runner.run_attempt(attempt.pk)
    assert "the backfill of order_events" in str(scripted.requests("fake-sum")[-1]["body"])


class TestRefusals:
    def refuse(self, state, trigger="soft"):
        made = intake.request_compaction(session_id=state.turn.session_id, trigger=trigger)
        assert isinstance(made, intake.Refusal), made
        return str(made.reason)

    def test_too_short(self):
        assert self.refuse(session_over_mark(pairs=1), "manual") == "too_short"

    def test_below_the_mark(self):
        assert self.refuse(session_over_mark(words=300)) == "below_mark"

    def test_one_at_a_time_and_a_person_attaches(self):
        state = session_over_mark()
        attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
        made = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
        assert (made.reason, made.attempt) == ("attempt_open", attempt)

    def test_paused(self):
        state = session_over_mark()
        intake.set_paused(scope=intake.EVERYTHING, paused=True, actor="op")
        assert self.refuse(state) == "paused"
        assert self.refuse(state, "overflow") == "paused"
        other = session_over_mark().turn.session_id
        made = intake.request_compaction(session_id=other, trigger="manual")
        assert not isinstance(made, intake.Refusal)
        intake.set_paused(scope=intake.EVERYTHING, paused=False, actor="op")
        made = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
        assert not isinstance(made, intake.Refusal)

    def test_a_cooldown_blocks_only_what_nobody_asked_for(self, scripted):
        scripted.script("fake-sum", default=Behaviour(text="bad"))
        state = session_over_mark()
        attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
        runner.run_attempt(attempt.pk)
        assert self.refuse(state) == "cooldown"
        made = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
        assert not isinstance(made, intake.Refusal)

    def test_two_that_would_grow_open_the_breaker_which_lets_a_probe_through(self, scripted):
        scripted.script("fake-sum", default=Behaviour(text=GOOD + "\nmore" * 9_000))
        state = session_over_mark()
        for _ in range(2):
            attempt = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
            runner.run_attempt(attempt.pk)
        Cooldown.objects.all().update(cleared_at=attempt.opened_at)
        probe = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
        assert not isinstance(probe, intake.Refusal)
        runner.run_attempt(probe.pk)
        Cooldown.objects.all().update(cleared_at=attempt.opened_at)
        assert self.refuse(state) == "breaker"
        CompressionState.objects.update(probe_at="2020-01-01T00:00Z")
        scripted.script("fake-sum", default=Behaviour(text=GOOD))
        again = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
        runner.run_attempt(again.pk)
        again.refresh_from_db()
        assert again.status == "committed"
        assert CompressionState.objects.get(session=state.turn.session_id).grew == 0
