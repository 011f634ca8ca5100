"""The scripted server as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .server import ScriptedServer


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """A scripted server of the test's own."""
    with ScriptedServer() as server:
        yield server
