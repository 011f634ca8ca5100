"""A conversation that never ends: within its window for ever, with nothing lost.

Smoke size in the suite; ``HERMES_TEST_SIZE=full`` holds 2,000 turns against an 8k window.
"""

from __future__ import annotations

import os
import random

import pytest
from django.db import connection

from compression_app import intake as compaction
from compression_app import runner as folding
from compression_app import tasks
from compression_app.invariants import check_invariants
from compression_app.models import CompactionAttempt
from hermes.lib import hints
from sessions_app import intake, runner, transcript
from sessions_app.models import Message, Session, Summary
from tests import factories
from tests.compression.conftest import register_models
from tests.scripted.behaviour import Behaviour, Rule
from tests.states import State, violations

pytestmark = [pytest.mark.django_db(transaction=True)]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
SMALL = 2_000
TURNS, WINDOW, SUMMARIES = (2_000, 8_000, 50) if FULL else (60, SMALL, 3)
FACTS = [
    "the order number is PO-48213",
    "the file is services/billing/ledger_rules.py",
    "the build id is 7f3a9c1e",
    "we decided to keep money as numeric(12,2)",
]


@pytest.fixture
def quick(db, settings):
    settings.HERMES_PROVIDER_BACKOFF_SECONDS = 0.01
    settings.HERMES_TOOLS = settings.HERMES_TOOLS[:1]  # all of them would fill half of a window


@pytest.fixture
def models(quick, scripted):
    register_models(scripted, SMALL)


@pytest.fixture
def models_of_this_size(quick, scripted):
    register_models(scripted, WINDOW)


@pytest.fixture
def due(monkeypatch) -> list[int]:
    """Attempts whose hint was sent; the test runs them between turns."""
    found: list[int] = []

    def enqueue(task, *args):
        if task.name == tasks.run_attempt.name:
            found.append(args[0])
        return True

    monkeypatch.setattr(hints, "enqueue", enqueue)
    return found


def test_it_stays_within_its_window_and_loses_nothing(
    scripted, models_of_this_size, due, settings, caplog
):
    caplog.set_level("ERROR")
    settings.HERMES_TURN_HOLD_SECONDS = 0
    settings.HERMES_TURN_HOLD_RETRY_SECONDS = 0
    draw = random.Random(7)
    state = State(factories.chat())
    said: list[str] = []
    most = 0
    for number in range(TURNS):
        fact = f" Note that {FACTS[number // 3 % len(FACTS)]}." if number % 3 == 0 else ""
        text = f"turn {number}: " + "word " * draw.randint(5, 60) + fact
        turn = factories.say(state.chat, text)
        runner.run_turns(turn.session_id)
        turn.refresh_from_db()
        assert turn.status == "completed", (number, turn.error_code, turn.error_text)
        said.append(text)
        most = max(most, turn.prompt_tokens)
        while due:
            folding.run_attempt(due.pop(0))

    session = Session.objects.select_related("summary").get(chat=state.chat)
    summaries = Summary.objects.filter(session=session)
    assert most <= WINDOW
    assert summaries.count() >= SUMMARIES
    inputs = Message.objects.filter(session=session, role="user").order_by("seq")
    assert list(inputs.values_list("text", flat=True)) == said
    assert violations(state) == []
    assert check_invariants() == []
    assert scripted.violations() == []
    assert not CompactionAttempt.objects.filter(status="failed").exists()

    last = scripted.requests("fake-chat")[-1]["body"]["messages"]
    sent = "\n".join(message["content"] or "" for message in last)
    for fact in FACTS:
        anchor = fact.split()[-1].removeprefix("numeric(").removesuffix(")")
        assert anchor in sent, anchor
    parts = session.summary.parts
    assert parts["said_out"] > 0  # what fell out of the bounds is counted
    print(
        f"\n{TURNS} turns, window {WINDOW}: {summaries.count()} summaries, "
        f"largest prompt {most} tokens, {parts['said_out']} messages of people left out"
    )

    above = Message.objects.filter(session=session).order_by("seq")
    before = list(above.values_list("pk", "text"))
    for _ in range(3):
        current = Session.objects.select_related("summary").get(pk=session.pk).summary
        intake.undo_summary(chat_id=state.chat.pk, user_id=state.chat.owner_id)
        after = Session.objects.select_related("summary").get(pk=session.pk)
        assert after.summary_id == current.previous_id
    assert list(above.all().values_list("pk", "text")) == before
    assert violations(state) == []
    turn = factories.say(state.chat, "and now?")
    runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    assert turn.status == "completed"
    assert turn.prompt_tokens <= WINDOW


def test_the_cost_of_a_commit_does_not_grow(models, due, scripted, caplog):
    """The same statements touch the same rows after the first and after a later summary."""
    caplog.set_level("ERROR")
    state = State(factories.chat())
    counts = []
    for _ in range(3):
        for number in range(6):
            turn = factories.say(state.chat, f"q{number} " + "word " * 150)
            claimed = transcript.claim(turn.session_id)
            transcript.start(claimed)
            transcript.finish(claimed, transcript.Step(text="text " * 150))
        made = intake_request(turn.session_id)
        due.clear()
        seen: list[str] = []

        def look(execute, sql, params, many, context, seen=seen):
            seen.append(sql)
            return execute(sql, params, many, context)

        with connection.execute_wrapper(look):
            folding.run_attempt(made.pk)
        made.refresh_from_db()
        assert made.status == "committed", made.reason
        counts.append(len(seen))
    assert counts[-1] <= counts[0] + 2


def intake_request(session_id: int) -> CompactionAttempt:
    made = compaction.request_compaction(session_id=session_id, trigger="manual")
    assert isinstance(made, CompactionAttempt), made
    return made


class TestProvidersThatRefuseLongRequests:
    def test_overflow_is_tried_once_with_less_and_opens_an_attempt(
        self, scripted, models, due, settings, caplog
    ):
        caplog.set_level("ERROR")
        settings.HERMES_SOFT_MARK = settings.HERMES_HARD_MARK = 1.0
        too_long = Behaviour(
            status=400, body='{"error": {"message": "x", "code": "context_length_exceeded"}}'
        )
        scripted.script("fake-chat", rules=[Rule("now overflow", too_long, times=1)])
        state = State(factories.chat())
        for number in range(5):
            turn = factories.say(state.chat, f"say 90 words {number}")
            runner.run_turns(turn.session_id)
        due.clear()
        turn = factories.say(state.chat, "now overflow")
        runner.run_turns(turn.session_id)
        turn.refresh_from_db()
        assert turn.status == "completed"
        assert CompactionAttempt.objects.filter(trigger="overflow").count() == 1
        assert len(due) == 1
