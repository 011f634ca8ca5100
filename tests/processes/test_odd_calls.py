"""What a model may write into a call that makes no sense: it is told, and the turn goes on."""

from __future__ import annotations

import pytest
from django.db import DataError

from processes_app import files, intake, runner, tools
from processes_app.models import CompletionEvent
from sessions_app.models import Chat, Turn

from . import facts
from .test_tools import allow, results, say, status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


@pytest.fixture
def state(places, world, model, supervisor):
    return facts.talked()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("delegate", {"goal": "a\0b \ud800"}), "works on it"),
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


def test_what_the_database_refuses_for_good_is_no_outage(
    state, world, model, monkeypatch, allow_errors
):
    """Asked again it would be refused again; the turn goes on with a failed result."""

    def refuse(call):
        raise DataError("value too long")

    monkeypatch.setattr(tools, "_find", refuse)
    model.script = [("read_output", {"process": "p1"}), "well"]
    say(state)
    world.until(lambda: status(state) == "completed")
    assert "internal error" in results(state)[0]


def test_a_kill_that_came_too_late_returns_the_result_and_there_is_no_report(state, world, model):
    facts.end(process := facts.add_process(state))
    model.script = [("kill_process", {"process": process.uid}), "it had ended"]
    say(state)
    world.until(lambda: status(state) == "completed")
    runner.deliver(state.chat.key)

    assert "finished with exit code 0" in results(state)[0]
    assert process.events.get().status == "consumed"
    assert facts.told(state.chat) == []


def test_more_than_a_terminal_takes_at_once_is_refused(state, world, model):
    process = facts.add_process(state, wants_pty=True, host="elsewhere")
    model.script = [("send_input", {"process": process.uid, "text": "ä" * 4000}), "well"]
    say(state)
    world.until(lambda: status(state) == "completed")

    assert "nothing typed" in results(state)[0]
    assert not process.inputs.exists()


def test_a_delegated_agent_that_failed_is_not_told_as_finished(state, world, model):
    model.script = [("delegate", {"goal": "look into it"}), "I wait"]
    say(state)
    world.until(lambda: Chat.objects.filter(is_hidden=True).exists())
    child = Chat.objects.get(is_hidden=True)
    world.until(lambda: not Turn.objects.busy().filter(chat=child).exists())
    CompletionEvent.objects.all().delete()
    Turn.objects.filter(chat=child).update(status="failed", error_code="provider_error")
    intake.follow_delegation(session_id=child.current_id)

    assert "before it had finished: provider_error" in CompletionEvent.objects.get().body
