"""Sessions over their marks, and a summary model that does what it is told."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from compression_app import runner, tasks
from compression_app.models import CompactionAttempt
from hermes.lib import hints
from sessions_app import intake, transcript
from tests import factories, states
from tests.scripted.fixtures import scripted
from tests.scripted.server import wait_for

__all__ = ["scripted"]

WINDOW = 8_000


def register_models(scripted, window: int = WINDOW) -> None:
    """Make the scripted server the chat model, with this window, and the summary model."""
    for role, model, size in (("chat", "fake-chat", window), ("summary", "fake-sum", 32_000)):
        intake.register_endpoint(
            name=model,
            base_url=scripted.base_url,
            api_key="k",
            model=model,
            window=size,
            role=role,
        )


@pytest.fixture
def models(db, scripted, settings):
    """The scripted chat model with a small window, and the scripted summary model."""
    settings.HERMES_PROVIDER_BACKOFF_SECONDS = 0.01
    settings.HERMES_TURN_HOLD_SECONDS = 0.3
    register_models(scripted)
    return scripted


@pytest.fixture
def worker(monkeypatch):
    """Attempts run in threads of this process, as soon as their hint is sent."""
    threads: list[threading.Thread] = []

    def run(attempt_id: int) -> None:
        try:
            runner.run_attempt(attempt_id)
        finally:
            connection.close()

    def enqueue(task, *args):
        if task.name == tasks.run_attempt.name:
            thread = threading.Thread(target=run, args=args)
            threads.append(thread)
            thread.start()
        return True

    monkeypatch.setattr(hints, "enqueue", enqueue)
    monkeypatch.setattr("compression_app.sweeps.enqueue", enqueue)
    yield threads
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def session_over_mark(pairs: int = 3, words: int = 1200) -> states.State:
    """A session with so many answered exchanges, above the hard mark of the small window."""
    state = states.State(factories.chat())
    for number in range(pairs):
        turn = factories.say(state.chat, f"question {number}: " + "word " * words)
        claimed = transcript.claim(turn.session_id)
        transcript.start(claimed)
        step = transcript.Step(text=f"answer {number}: " + "text " * words, model_name="seeded")
        transcript.finish(claimed, step)
        state.turn = turn
    return state


def newest_attempt() -> CompactionAttempt:
    return CompactionAttempt.objects.order_by("-pk").first()


def until(condition, seconds: float = 10.0):
    """Wait for something to become true."""

    def look():
        return {"counts": None, "value": condition()}

    return wait_for(look, lambda seen: seen["value"], seconds)
