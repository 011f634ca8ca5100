"""H1–H6: the turn hold must not burn a fenced attempt (docs/founding-tests.md).

Real rows, a real broker, a real worker process, a real streaming summary model. The session has six
earlier messages and is over its threshold; hold 0.3 s, idle 60 s, ceiling 600 s, failure cooldown
120 s; the summary model streams until the test lets it go; the chat model answers ``ok``.
"""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import connection

from compression_app.models import CompressionState
from sessions_app.models import Message
from tests import factories
from tests.compression.conftest import register_models, session_over_mark
from tests.founding.vocabulary import Conversation, wait_for
from tests.scripted.behaviour import Behaviour
from tests.scripted.fixtures import scripted
from tests.socket.conftest import (
    Worker,
    _standing,
    processes,
    socket_environment,
    standing_environment,
)

__all__ = [
    "_standing",
    "processes",
    "scripted",
    "socket_environment",
    "standing_environment",
]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]

SUMMARY = "## Goal\nShip it.\n\n## Done\nMuch of it.\n\n## Next step\nGo on."
STREAMS_ON = Behaviour(text=SUMMARY, reasoning="let me see", hold="let it go", hold_at=2)


@pytest.fixture
def conversation(scripted, socket_environment, processes, tmp_path) -> Conversation:
    register_models(scripted)
    scripted.script("fake-chat", default=Behaviour(text="ok"))
    scripted.script("fake-sum", default=STREAMS_ON)
    state = session_over_mark()
    assert len(state.rows()) == 6
    environment = {
        **socket_environment,
        "HERMES_TURN_HOLD_SECONDS": "0.3",
        "HERMES_COMPACTION_IDLE_SECONDS": "60",
        "HERMES_COMPACTION_CEILING_SECONDS": "600",
        "HERMES_FAILURE_COOLDOWN_SECONDS": "120",
        "HERMES_PROVIDER_BACKOFF_SECONDS": "0.01",
    }
    worker = Worker(environment, tmp_path / "worker.log")
    processes.append(worker)
    worker.start()
    wait_for(lambda: "ready" in worker.text(), 30)
    return Conversation(state.chat, scripted)


def hello(conversation: Conversation) -> tuple[str, float]:
    began = time.monotonic()
    turn = factories.say(conversation.chat, "hello")
    return conversation.answer_of(turn), time.monotonic() - began


def test_h1_the_turn_is_answered_while_the_fenced_attempt_streams(conversation):
    answer, seconds = hello(conversation)

    assert answer == "ok"
    assert seconds < 5
    assert conversation.model_turns() == 1
    assert conversation.worker_has_started()
    assert conversation.is_fenced()
    assert conversation.commit_watermark == 6


def test_h2_nothing_is_recorded_against_it_and_the_person_is_told_once(conversation):
    hello(conversation)

    assert conversation.attempt.status == "running"
    assert conversation.summary_streams()["open"] == 1
    assert conversation.recorded_cooldowns() == []
    assert conversation.failure_streak() == 0
    assert conversation.attempt.hold_released_at is not None


def test_h3_the_late_summary_is_adopted_and_what_was_said_since_stands(conversation):
    hello(conversation)
    conversation.scripted.release("let it go")
    wait_for(lambda: conversation.attempt.status == "committed")

    (summary,) = conversation.commits()
    assert conversation.attempt.watermark == 6
    assert summary.covers_through <= 6
    assert conversation.session.summary == summary
    assert conversation.verbatim_after(6) == [("user", "hello"), ("assistant", "ok")]
    wait_for(lambda: conversation.summary_streams() == {"open": 0, "closed": 1})
    assert conversation.scripted.violations() == []


def test_h4_the_adoption_resets_the_streak_and_never_advances_it(conversation):
    hello(conversation)
    CompressionState.objects.filter(session__chat=conversation.chat).update(streak=3)
    conversation.scripted.release("let it go")
    wait_for(lambda: conversation.attempt.status == "committed")

    assert conversation.failure_streak() == 0
    assert conversation.recorded_cooldowns() == []


def test_h5_an_attempt_that_fails_late_gets_one_flat_retry(conversation):
    conversation.scripted.script(
        "fake-sum", default=Behaviour(text="no good", hold="let it go", hold_at=1)
    )
    hello(conversation)
    assert conversation.recorded_cooldowns() == []
    conversation.scripted.release("let it go")
    wait_for(lambda: conversation.attempt.status == "failed")

    (cooldown,) = conversation.recorded_cooldowns()
    assert cooldown.kind == "flat"
    assert "turn-hold" in cooldown.reason
    assert timedelta(0) < cooldown.until - cooldown.created_at <= timedelta(seconds=120)
    assert conversation.failure_streak() == 0
    assert conversation.commits() == []


def test_h6_an_unfenced_attempt_is_cancelled_and_its_commit_refused(conversation):
    with connection.cursor() as cursor:  # its watermark is lost, as if its capture had failed
        cursor.execute(
            "CREATE FUNCTION lose_watermark() RETURNS trigger AS $$ BEGIN"
            " NEW.watermark := NULL; RETURN NEW; END $$ LANGUAGE plpgsql;"
            " CREATE TRIGGER lose_watermark BEFORE INSERT ON compression_app_compactionattempt"
            " FOR EACH ROW EXECUTE FUNCTION lose_watermark()"
        )
    try:
        conversation.scripted.script(
            "fake-sum",
            default=Behaviour(text="## Goal\ntoo late", hold="let it go", hold_at=1),
        )
        answer, seconds = hello(conversation)
        assert (answer, seconds < 5) == ("ok", True)
        wait_for(lambda: conversation.attempt.status == "cancelled")
        (cooldown,) = conversation.recorded_cooldowns()
        assert cooldown.kind == "flat"
        assert "turn-hold" in cooldown.reason
        conversation.scripted.release("let it go")
        wait_for(lambda: conversation.summary_streams()["open"] == 0)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION lose_watermark() CASCADE")

    assert conversation.commits() == []
    assert not Message.objects.filter(text__contains="too late").exists()
    assert conversation.failure_streak() == 0
    assert len(conversation.recorded_cooldowns()) == 1
