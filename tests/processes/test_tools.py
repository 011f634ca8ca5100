"""The agent's tools through real turns, with real children."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from compression_app import prompts
from compression_app import source as compaction
from hermes.lib.db import db_now
from processes_app import files, intake, sweeps, tools
from processes_app.domain import Answer
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app import sweeps as session_sweeps
from sessions_app import transcript
from sessions_app.models import Message, Session, Summary, Turn
from sessions_app.transcript.rows import append
from tests import factories

from . import facts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


@pytest.fixture
def state(places, world, model, supervisor):
    state = facts.talked()
    world.work()
    return state


def say(state, text="please"):
    state.turn = factories.say(state.chat, text)
    return state.turn


def results(state) -> list[str]:
    rows = Message.objects.filter(session__chat=state.chat, role="tool").order_by("pk")
    return list(rows.values_list("text", flat=True))


def status(state) -> str:
    return Turn.objects.get(pk=state.turn.pk).status


def waiting_approval(state, world) -> Approval:
    world.until(lambda: intake.open_approvals(state.chat.key).exists())
    return intake.open_approvals(state.chat.key).get()


def allow(state, world, said=Answer.ONCE) -> None:
    approval = waiting_approval(state, world)
    assert intake.answer(approval_id=approval.pk, owner_id=state.chat.owner_id, said=said)


def test_a_foreground_command_runs_after_an_approval(state, world, model):
    model.script = [("run_command", {"command": "echo hello; exit 3"}), "it failed"]
    say(state)
    approval = waiting_approval(state, world)
    assert (approval.command, status(state)) == ("echo hello; exit 3", "waiting")
    assert not ProcessRecord.objects.exists()
    allow(state, world)
    world.until(lambda: status(state) == "completed")

    assert "failed with exit code 3" in results(state)[0]
    assert "hello" in results(state)[0]
    assert not CompletionEvent.objects.exists()
    assert facts.violations(state) == []


def test_a_denied_command_never_runs_and_is_not_asked_twice(state, world, model):
    call = ("run_command", {"command": "touch x"})
    model.script = [call, call, "I could not"]
    say(state)
    allow(state, world, Answer.DENY)
    world.until(lambda: status(state) == "completed")

    assert ["said no" in text for text in results(state)] == [True, True]
    assert Approval.objects.count() == 1
    assert not ProcessRecord.objects.exists()


def test_an_approval_expires_and_the_turn_goes_on(state, world, model):
    model.script = [("run_command", {"command": "touch x"}), "well"]
    say(state)
    approval = waiting_approval(state, world)
    late = db_now() - timedelta(seconds=1)
    Approval.objects.filter(pk=approval.pk).update(until=late)
    Turn.objects.filter(pk=state.turn.pk).update(wait_until=late)
    assert not intake.answer(
        approval_id=approval.pk, owner_id=state.chat.owner_id, said=Answer.ONCE
    )
    list(session_sweeps.wake_waiting())
    chats.queue_of(state.turn.session_id)
    world.hints.append((_run, (state.turn.session_id,)))
    world.until(lambda: status(state) == "completed")

    assert "Not approved: expired" in results(state)[0]
    assert not ProcessRecord.objects.exists()


def _run(session_id):
    from sessions_app import runner

    runner.run_turns(session_id)


def test_stop_withdraws_an_approval(state, world, model):
    model.script = [("run_command", {"command": "touch x"})]
    say(state)
    approval = waiting_approval(state, world)
    chats.stop_turn(**state.who)

    assert not intake.open_approvals(state.chat.key).exists()
    assert not intake.answer(
        approval_id=approval.pk, owner_id=state.chat.owner_id, said=Answer.ONCE
    )
    world.work()
    assert not ProcessRecord.objects.exists()


def test_nobody_else_can_answer(state, world, model):
    model.script = [("run_command", {"command": "touch x"})]
    say(state)
    approval = waiting_approval(state, world)
    other = factories.person()

    assert not intake.answer(approval_id=approval.pk, owner_id=other.pk, said=Answer.ONCE)
    chats.stop_turn(**state.who)


def test_always_covers_this_command_and_this_script_only(state, world, model):
    workspace = files.workspace_of(state.chat.key)
    (workspace / "job.sh").write_text("echo one")
    run = ("run_command", {"command": "sh ./job.sh"})
    model.script = [run, "done"]
    say(state)
    allow(state, world, Answer.ALWAYS)
    world.until(lambda: status(state) == "completed")
    model.script = [run, "again"]
    say(state)
    world.until(lambda: status(state) == "completed")
    assert Approval.objects.count() == 1

    (workspace / "job.sh").write_text("echo two")
    model.script = [run, "changed"]
    say(state)
    assert waiting_approval(state, world).pk != Approval.objects.order_by("pk").first().pk
    chats.stop_turn(**state.who)


@pytest.mark.parametrize(
    "command",
    [
        "/bin/sh job.sh",
        "cd tools && ./job.sh",
        "cat notes | sh plain",
        "bash -e -u -x -o pipefail tools/job.sh",
        "sh -c '. ./plain; true'",
        "sh $HOME/job.sh",
        "/workspace/job.sh",
        "python3 -m tools.build",
        "make",
    ],
)
def test_every_way_to_run_a_script_binds_an_always_to_it(places, command):
    workspace = files.workspace_of("chat")
    (workspace / "tools").mkdir()
    names = ["job.sh", "tools/job.sh", "plain", "tools/build.py", "Makefile"]
    for name in names:
        (workspace / name).write_text("one")
    (workspace / "notes").write_text("one")
    before = tools._script_hash("chat", command, "")
    (workspace / "notes").write_text("two")
    assert before
    assert tools._script_hash("chat", command, "") == before
    for name in names:
        (workspace / name).write_text("two")
    assert tools._script_hash("chat", command, "") != before
    assert tools._script_hash("chat", "ls -la notes 'and " + "x" * 300 + "/y'", "") == ""


def test_a_script_that_changes_after_its_approval_does_not_run(state, world, model):
    workspace = files.workspace_of(state.chat.key)
    (workspace / "job.sh").write_text("echo one")
    model.script = [("run_command", {"command": "sh ./job.sh"}), "no"]
    say(state)
    approval = waiting_approval(state, world)
    (workspace / "job.sh").write_text("echo two")
    intake.answer(approval_id=approval.pk, owner_id=state.chat.owner_id, said=Answer.ONCE)
    world.until(lambda: status(state) == "completed")

    assert "changed since it was approved" in results(state)[0]
    assert not ProcessRecord.objects.exists()


def test_a_background_command_reports_in_a_turn_of_its_own(state, world, model):
    model.script = [
        ("run_command", {"command": "sleep 0.3; echo from-A-17", "background": True}),
        "started",
        "it is done",
    ]
    say(state)
    allow(state, world)
    world.until(lambda: facts.told(state.chat) and facts.reporting(state.chat)[-1].finished_at)
    facts.run_turns(state)

    report = facts.told(state.chat)[0]
    assert "from-A-17" in report
    assert "untrusted" in report
    assert Message.objects.filter(kind="completion").get().role == "user"
    assert CompletionEvent.objects.get().status == "delivered"
    assert facts.violations(state) == []


def test_what_a_report_asks_for_needs_an_approval_whatever_was_allowed(state, world, model):
    run = ("run_command", {"command": "echo hi", "background": True})
    model.script = [run, "started", run, "no"]
    say(state)
    allow(state, world, Answer.ALWAYS)
    world.until(lambda: facts.told(state.chat))
    approval = waiting_approval(state, world)

    assert approval.is_steered
    assert intake.answer(approval_id=approval.pk, owner_id=state.chat.owner_id, said=Answer.ALWAYS)
    approval.refresh_from_db()
    assert approval.answer == "once"
    world.until(lambda: not ProcessRecord.objects.active().exists())


def test_waiting_takes_the_result_and_there_is_no_report(state, world, model):
    model.script = [
        ("run_command", {"command": "sleep 0.5; echo late", "background": True}),
        ("wait_process", {"process": "?", "seconds": 20}),
        "got it",
    ]
    _fill_in(model)
    say(state)
    allow(state, world)
    world.until(lambda: status(state) == "completed")
    sweeps.settle_due()

    assert "late" in results(state)[1]
    assert CompletionEvent.objects.get().status == "consumed"
    assert facts.told(state.chat) == []


def test_a_wait_that_was_interrupted_uses_nothing_up(state, world, model):
    state.process = facts.add_process(state)
    facts.end(state.process)
    say(state)
    from sessions_app import transcript

    claimed = transcript.claim(state.turn.session_id)
    transcript.start(claimed)
    assert intake.take(state.process.pk, claimed.facts, "call-9")
    sweeps.settle_due()
    assert (state.event.status, state.event.held) == ("pending", "taking")
    chats.stop_turn(**state.who)
    chats.end_stopped(Turn.objects.get(pk=state.turn.pk))
    facts.run_turns(state)

    assert state.event.status == "delivered"


def test_looking_uses_nothing_up(state, world, model):
    model.script = [
        ("run_command", {"command": "true", "background": True}),
        ("list_processes", {}),
        ("list_processes", {}),
        "looked",
    ]
    say(state)
    allow(state, world)
    world.until(lambda: status(state) == "completed")
    world.until(lambda: len(facts.told(state.chat)) == 1)

    assert facts.violations(state) == []


def test_the_agents_own_kill_is_not_reported(state, world, model):
    model.script = [
        ("run_command", {"command": "sleep 60", "background": True}),
        ("kill_process", {"process": "?"}),
        "killed",
    ]
    _fill_in(model)
    say(state)
    allow(state, world)
    world.until(lambda: status(state) == "completed")
    sweeps.settle_due()

    assert "killed by you" in results(state)[1] or "taken back before it began" in results(state)[1]
    assert CompletionEvent.objects.get().status == "consumed"


def test_stop_ends_a_foreground_command_and_not_a_background_one(state, world, model):
    model.script = [
        ("run_command", {"command": "sleep 61", "background": True}),
        ("run_command", {"command": "sleep 62"}),
    ]
    say(state)
    allow(state, world)
    allow(state, world)
    world.until(lambda: ProcessRecord.objects.filter(status="running").count() == 2)
    chats.stop_turn(**state.who)
    world.until(lambda: ProcessRecord.objects.active().count() == 1)

    ended = ProcessRecord.objects.exclude(status="running").get()
    assert (ended.command, ended.kill_by) == ("sleep 62", "turn")
    intake.ask_kill(ProcessRecord.objects.active().get().pk, by="person")
    world.until(lambda: not ProcessRecord.objects.active().exists())


def test_the_same_command_twice_is_one_process(state, world, model):
    run = ("run_command", {"command": "sleep 63", "background": True})
    model.script = [run, run, "once"]
    say(state)
    allow(state, world)
    allow(state, world)
    world.until(lambda: status(state) == "completed")

    assert ProcessRecord.objects.count() == 1
    assert "runs already" in results(state)[1]
    intake.ask_kill(ProcessRecord.objects.get().pk, by="person")
    world.until(lambda: not ProcessRecord.objects.active().exists())


def test_a_persons_kill_is_shown_quietly(state, world, model):
    model.script = [("run_command", {"command": "sleep 64", "background": True}), "started"]
    say(state)
    allow(state, world)
    world.until(lambda: ProcessRecord.objects.filter(status="running").exists())
    world.until(lambda: status(state) == "completed")
    intake.ask_kill(ProcessRecord.objects.get().pk, by="person", actor="me")
    world.until(lambda: CompletionEvent.objects.filter(status="quiet").exists())

    assert CompletionEvent.objects.get().quiet_because == "killed"
    assert facts.told(state.chat) == []


def test_policies_and_permission(state, world, model, settings):
    run = ("run_command", {"command": "echo listed"})
    settings.HERMES_COMMANDS = "off"
    model.script = [run, "off"]
    say(state)
    world.until(lambda: status(state) == "completed")
    settings.HERMES_COMMANDS, settings.HERMES_ALLOWED_COMMANDS = "allow-list", ["echo *"]
    model.script = [run, "listed"]
    say(state)
    world.until(lambda: status(state) == "completed")
    state.chat.owner.user_permissions.clear()
    model.script = [run, "not allowed"]
    say(state)
    world.until(lambda: status(state) == "completed")

    assert "switched off" in results(state)[0]
    assert "listed" in results(state)[1]
    assert "not allowed" in results(state)[2]
    assert not Approval.objects.exists()


def test_a_person_who_may_not_is_not_asked_either(state, world, model):
    state.chat.owner.user_permissions.clear()
    model.script = [("run_command", {"command": "echo x"}), "not allowed"]
    say(state)
    world.until(lambda: status(state) == "completed")

    assert "not allowed" in results(state)[0]
    assert not Approval.objects.exists()


def test_the_first_admin_may(state, world, model):
    state.chat.owner.user_permissions.clear()
    type(state.chat.owner).objects.filter(pk=state.chat.owner_id).update(is_superuser=True)
    model.script = [("run_command", {"command": "echo x"}), "done"]
    say(state)
    allow(state, world)
    world.until(lambda: status(state) == "completed")

    assert "exit code 0" in results(state)[0]


def test_below_bwrap_nothing_runs_until_an_operator_accepts_it(state, world, model, settings):
    settings.HERMES_SANDBOX, settings.HERMES_SANDBOX_ACCEPTED = "none", "bwrap"
    model.script = [("run_command", {"command": "echo x"}), "off"]
    say(state)
    world.until(lambda: status(state) == "completed")

    assert "HERMES_SANDBOX_ACCEPTED" in results(state)[0]
    assert not Approval.objects.exists()
    assert not ProcessRecord.objects.exists()


def test_the_cap_of_a_person_holds(state, world, model, settings):
    settings.HERMES_COMMANDS, settings.HERMES_ALLOWED_COMMANDS = "allow-list", ["sleep *"]
    settings.HERMES_PROCESSES_A_PERSON = 1
    model.script = [
        ("run_command", {"command": "sleep 65", "background": True}),
        ("run_command", {"command": "sleep 66", "background": True, "again": True}),
        "full",
    ]
    say(state)
    # Words of a program stand in the turn by then: the list still counts, Always is not offered.
    world.until(lambda: status(state) == "completed")

    assert "as many processes" in results(state)[1]
    intake.ask_kill(ProcessRecord.objects.get().pk, by="person")
    world.until(lambda: not ProcessRecord.objects.active().exists())


def test_a_delegated_agent_answers_through_the_same_table(state, world, model):
    model.script = [("delegate", {"goal": "find the answer"}), "delegated", "forty-two", "thanks"]
    say(state)
    world.until(lambda: facts.told(state.chat))

    event = CompletionEvent.objects.get()
    assert (event.kind, event.origin_session) == (
        "async_delegation",
        facts.Session.objects.get(chat=state.chat).key,
    )
    report = facts.told(state.chat)[0]
    assert "find the answer" in report or "forty-two" in report
    assert facts.Chat.objects.of(state.chat.owner_id).count() == 1  # its chat is hidden
    facts.run_turns(state)
    assert facts.violations(state) == []


def test_a_process_of_another_chat_does_not_exist(state, world, model):
    other = facts.running()
    model.script = [("read_output", {"process": other.process.uid}), "no"]
    say(state)
    world.until(lambda: status(state) == "completed")

    assert "has no process" in results(state)[0]


def _fill_in(model) -> None:
    """Put the id of the newest process where a script says ``?``."""
    open_ = model.open

    def fill(request):
        if model.script and isinstance(model.script[0], tuple):
            name, arguments = model.script[0]
            if arguments.get("process") == "?":
                uid = ProcessRecord.objects.latest("pk").uid
                model.script[0] = (name, {**arguments, "process": uid})
        return open_(request)

    model.open = fill


def test_a_report_steers_although_a_summary_covers_it(state, world, model, settings):
    """The mark is the row's own: after a compaction, and the next one, it is there still."""
    settings.HERMES_COMMANDS = "allow-list"
    settings.HERMES_ALLOWED_COMMANDS = ["echo *"]
    run = ("run_command", {"command": "echo hi", "background": True})
    model.script = [run, "started", run, "no"]
    say(state)
    world.until(lambda: facts.told(state.chat))
    report = Message.objects.get(kind="completion")
    approval = waiting_approval(state, world)
    assert approval.is_steered

    for _ in range(2):
        session = Session.objects.get(pk=report.session_id)
        source = compaction.read(session, session.last_seq, 100_000)
        assert source.is_untrusted
        assert not [said for said in source.said if said.seq == report.seq]
        with transaction.atomic():
            session = Session.objects.lock(session.pk)
            draft = prompts.draft(source, "Goal\nDone\nNext step", 8_000)
            transcript.apply_summary(session, draft, attempt_id=None, before=9, after=1)
            transcript.publish(session)
        assert Summary.objects.latest("pk").is_untrusted
        assert prompts.UNTRUSTED in Summary.objects.latest("pk").text
        turn = Turn.objects.select_related("chat", "session").get(pk=approval.turn_id_meant)
        assert tools._steered(transcript.facts_of(turn)) == (True, False)
        transcript_of_a_machine(session)
    assert intake.answer(approval_id=approval.pk, owner_id=state.chat.owner_id, said=Answer.DENY)
    world.until(lambda: facts.reporting(state.chat)[-1].finished_at)


def transcript_of_a_machine(session) -> None:
    """One more row, so that there is something to summarise again."""
    with transaction.atomic():
        locked = Session.objects.lock(session.pk)
        append(locked, role="assistant", text="going on")
        transcript.publish(locked)


def test_a_person_who_speaks_after_a_report_is_obeyed(state, world, model, settings):
    settings.HERMES_COMMANDS = "allow-list"
    settings.HERMES_ALLOWED_COMMANDS = ["echo *"]
    run = ("run_command", {"command": "echo hi", "background": True})
    model.script = [run, "started", "I see", run, "started again", "I see"]
    say(state)
    world.until(lambda: facts.told(state.chat))
    world.until(lambda: facts.reporting(state.chat)[-1].finished_at)
    say(state, "once more")
    world.until(lambda: status(state) == "completed")

    assert not Approval.objects.exists()
    assert ProcessRecord.objects.count() == 2
