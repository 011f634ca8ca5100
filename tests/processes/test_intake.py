"""What is taken on, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hermes.lib.db import db_now
from processes_app import gate, intake, sweeps
from processes_app.domain import Answer, DropReason, KillBy
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app import sweeps as session_sweeps
from sessions_app.models import Chat, Session, Turn
from tests.faults.test_completion_crashes import asking

from . import facts

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = intake.Ask("echo done")


def start(state, ask=ECHO, call_id="call-1"):
    return intake.start_process(state.claimed.facts, call_id, ask)


def test_a_start_is_stamped_and_found_again():
    state = asking()
    made = start(state)
    again = start(state)

    assert (made.is_new, again.is_new) == (True, False)
    assert made.process.pk == again.process.pk
    assert made.process.origin_session == state.claimed.turn.session.key
    assert made.process.status == "starting"


@pytest.mark.parametrize("how", ["reset", "stopped", "taken over", "waiting"])
def test_nothing_starts_for_a_turn_that_is_over(how):
    state = asking()
    if how == "reset":
        facts.reset(state)
        Turn.objects.filter(pk=state.turn.pk).update(
            status="running", finished_at=None, lease_expires_at=db_now()
        )
    elif how == "stopped":
        chats.stop_turn(**state.who)
    elif how == "taken over":
        Turn.objects.filter(pk=state.turn.pk).update(fence_token=9)
    else:
        Turn.objects.filter(pk=state.turn.pk).update(
            status="waiting", wait_key="x", lease_expires_at=None
        )

    wanted = intake.Refusal.TURN_WAITS if how == "waiting" else intake.Refusal.TURN_OVER
    assert start(state) is wanted
    assert not ProcessRecord.objects.exists()


def test_caps(settings):
    state = asking()
    settings.HERMES_PROCESSES_A_PERSON = 1
    assert isinstance(start(state), intake.Started)
    other = intake.Ask("echo other")
    assert start(state, other, "call-2") is intake.Refusal.TOO_MANY
    settings.HERMES_PROCESSES_A_PERSON, settings.HERMES_PROCESSES_IN_ALL = 5, 1
    assert start(state, other, "call-2") is intake.Refusal.FULL


def test_a_deleted_chat_ends_its_processes():
    state = facts.running()
    chats.delete_chat(**state.who)
    process = ProcessRecord.objects.get(pk=state.process.pk)

    assert process.kill_by == KillBy.BOUNDARY
    facts.end(process, exit_code=None, signal_number=15)
    facts.runner.deliver(state.chat.key)
    assert state.event.reason == DropReason.CLOSED_BY_USER


def test_a_young_process_keeps_an_idle_session_open_and_an_old_one_does_not(settings):
    settings.HERMES_SESSION_IDLE_HOURS = 1
    state = facts.running()
    session = state.session
    Session.objects.filter(pk=session.pk).update(touched_at=db_now() - timedelta(hours=9))
    session_sweeps._end_idle()
    assert Session.objects.get(pk=session.pk).ended_at is None
    assert gate.keeps_open(session.key)
    ProcessRecord.objects.update(created_at=db_now() - timedelta(hours=30))
    session_sweeps._end_idle()

    assert Session.objects.get(pk=session.pk).end_reason == "idle_timeout"


def test_what_is_kept_of_a_chat_deleted_long_ago_goes():
    state = facts.ended()
    Approval.objects.create(
        turn_id_meant=1,
        call_id="c",
        origin_chat=state.chat.key,
        origin_session=state.session.key,
        owner_id_meant=state.chat.owner_id,
        command="x",
        until=db_now(),
    )
    chats.delete_chat(**state.who)
    assert sweeps.purge_deleted() == 0
    Chat.objects.filter(pk=state.chat.pk).update(deleted_at=db_now() - timedelta(days=31))

    assert sweeps.purge_deleted() == 1
    for model in (ProcessRecord, CompletionEvent, Approval):
        assert not model.objects.filter(origin_chat=state.chat.key).exists()


def test_what_no_supervisor_takes_is_told_as_not_started():
    state = asking()
    process = start(state).process
    assert sweeps.end_untaken() == 0
    ProcessRecord.objects.update(created_at=db_now() - timedelta(minutes=11))

    assert sweeps.end_untaken() == 1
    process.refresh_from_db()
    assert (process.status, process.reason) == ("failed_start", "not_started")
    assert process.events.get().status == "pending"


def test_an_always_can_be_taken_back():
    row = {"command": "ls", "cwd": "", "script_hash": "", "origin_chat": "c"}
    approval = Approval.objects.create(
        turn_id_meant=1,
        call_id="c",
        origin_session="s",
        owner_id_meant=7,
        status="allowed",
        answer=Answer.ALWAYS,
        answered_at=db_now(),
        until=db_now(),
        **row,
    )
    asked = {"chat_key": "c", "command": "ls", "cwd": "", "script_hash": ""}
    assert intake.standing(**asked) == approval
    assert intake.standing(**{**asked, "command": "ls -a"}) is None
    assert not intake.revoke(approval_id=approval.pk, owner_id=8)
    assert intake.revoke(approval_id=approval.pk, owner_id=7)
    assert not intake.revoke(approval_id=approval.pk, owner_id=7)
    assert intake.standing(**asked) is None


def test_a_process_of_a_host_that_does_not_come_back_is_lost_once(allow_errors):
    state = facts.talked()
    turn = Turn.objects.filter(chat=state.chat).latest("pk")
    old = db_now() - timedelta(hours=26)
    gone, long, young = (
        facts.add_process(
            state,
            host="another",
            turn_id_meant=turn.pk,
            call_id=str(number),
            created_at=created_at,
            limit_seconds=seconds,
        )
        for number, (created_at, seconds) in enumerate(
            [(old, 3600), (old, 3 * 3600), (db_now(), 3600)]
        )
    )
    foreign = facts.add_process(state, host="another", created_at=old, limit_seconds=3600)

    assert (sweeps.end_abandoned(), sweeps.end_abandoned()) == (1, 0)
    gone.refresh_from_db()
    assert (gone.status, gone.reason) == ("lost", "vanished")
    assert "unknown" in gone.outcome
    assert gone.events.count() == 1
    for each in (long, young, foreign):
        each.refresh_from_db()
        assert each.is_active
