"""What a model may write into a call that makes no sense: it is told, and the turn goes on."""

from __future__ import annotations

import pytest

from processes_app import files

from . import facts
from .test_tools import allow, results, say, status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


@pytest.fixture
def state(places, world, model, supervisor):
    return facts.talked()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("read_output", {"process": "p\0x"}), "has no process"),
        (("kill_process", {"process": "p\ud800"}), "has no process"),
        (("wait_process", {"process": "p" * 5000}), "has no process"),
        (("run_command", {"command": "ls", "directory": "a\0b"}), "not below"),
        (("run_command", {"command": "ls", "directory": "\ud800"}), "not below"),
        (("run_command", {"command": "ls", "directory": "a/" * 600}), "not below"),
        (("run_command", {"command": "ls", "directory": "loop/x"}), "not below"),
        (("run_command", {"command": "ls", "directory": "../../.."}), "not below"),
        (("run_command", {"command": "echo \0"}), "a NUL"),
        (("run_command", {"command": "echo \ud800"}), "half a character"),
    ],
)
def test_no_sensible_argument(state, world, model, call, told):
    (files.workspace_of(state.chat.key) / "loop").symlink_to("loop")
    model.script = [call, "well"]
    say(state)
    world.until(lambda: status(state) == "completed")
    assert told in results(state)[0]


@pytest.mark.parametrize("command", [f"echo {'x' * 300}/y", "echo '~/x.py' ${HOME}"])
def test_a_command_of_any_words_is_asked_about_and_runs(state, world, model, command):
    model.script = [("run_command", {"command": command}), "well"]
    say(state)
    allow(state, world)
    world.until(lambda: status(state) == "completed")
    assert "exit code 0" in results(state)[0]
