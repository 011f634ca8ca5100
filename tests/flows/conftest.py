"""Turns against the scripted provider over real HTTP, run in this process."""

from __future__ import annotations

import pytest

from sessions_app import intake
from tests.scripted.fixtures import scripted
from tests.tools import Counter

__all__ = ["scripted"]


@pytest.fixture
def endpoint(db, scripted, settings):
    """The scripted chat model, registered as the preferred endpoint."""
    settings.HERMES_PROVIDER_BACKOFF_SECONDS = 0.01
    settings.HERMES_TURN_GATES = []  # compaction has tests of its own
    settings.HERMES_SOFT_MARK = settings.HERMES_HARD_MARK = 1.0
    return intake.register_endpoint(
        name="scripted",
        base_url=scripted.base_url,
        api_key="sk-right",
        model="fake-chat",
        window=32_000,
        role="chat",
    )


@pytest.fixture
def counter(settings):
    """A tool with a visible side effect."""
    settings.HERMES_TOOLS = ["sessions_app.tools.CurrentTime", "tests.tools.Counter"]
    Counter.reset()
    return Counter
