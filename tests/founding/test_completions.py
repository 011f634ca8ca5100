"""T1 to T10: a completion reaches the session that asked for it, and no other."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection

from processes_app import runner, verdicts
from processes_app.domain import EventKind, EventStatus
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import endpoints
from sessions_app.models import Chat, Session
from tests import states
from tests.processes import facts

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "agent:main:telegram:dm:123"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(endpoints, "model_for", lambda *_: states.SILENT)


@pytest.fixture
def state():
    """The chat of the founding tests, with a finished exchange."""
    owner = facts.allowed_person()
    chat = Chat.objects.create(key=KEY, owner=owner)
    return facts.talked(chat)


def spawn(state, stamp: str | None = "sess-spawner", **columns):
    """``echo done``, stamped with the open session, which gets that key."""
    if stamp is not None:
        Session.objects.filter(chat=state.chat, ended_at=None).update(key=stamp)
    state.process = facts.add_process(state, origin_session=stamp, **columns)
    return state.process


def injected(state) -> int:
    """How many reports stand in the chat after everything has run."""
    facts.run_turns(state)
    assert facts.violations(state) == []
    return len(facts.told(state.chat))


def test_t1_the_event_has_type_and_stamp(state):
    facts.end(spawn(state))

    assert (state.event.kind, state.event.origin_session) == ("completion", "sess-spawner")
    assert state.event.body == "done\n"


def test_t2_the_event_takes_the_stamp_of_the_record(state):
    facts.end(spawn(state, "sess-from-registry", next_check_at=facts.STARTED))

    assert state.event.origin_session == "sess-from-registry"


def test_t3_nothing_is_injected_into_a_session_that_was_reset(state):
    process = spawn(state)
    facts.reset(state)
    facts.end(process)

    assert runner.deliver_event(state.event.pk) is None
    assert injected(state) == 0
    assert (state.event.status, state.event.reason) == ("dropped", "closed_by_user")


def test_t4_an_idle_end_is_no_boundary(state):
    process = spawn(state)
    facts.end_idle(state)
    facts.end(process)

    assert runner.deliver_event(state.event.pk) is True
    assert injected(state) == 1
    assert state.event.delivered_to == "sess-spawner"
    assert Session.objects.get(key="sess-spawner").ended_at is None


def test_t5_a_live_session_gets_it_once(state):
    facts.end(spawn(state))

    assert runner.deliver_event(state.event.pk) is True
    assert runner.deliver_event(state.event.pk) is None
    assert injected(state) == 1
    assert "done" in facts.told(state.chat)[0]


def test_t6_without_a_stamp_the_chat_gets_it_once(state):
    facts.end(spawn(state, None))

    assert runner.deliver_event(state.event.pk) is True
    assert injected(state) == 1


def test_t7_without_the_database_it_stays_due(state):
    facts.end(spawn(state))
    event = state.event
    statements = _count(lambda: verdicts.settle(KEY))
    Session.objects.filter(chat=state.chat)  # the count was rolled back
    for n in range(statements):
        with _cut_at(n):
            assert runner.deliver_event(event.pk) is False
        again = CompletionEvent.objects.get(pk=event.pk)
        assert (again.status, again.attempt, again.due_at) == ("pending", 1, event.due_at)
        assert facts.reporting(state.chat) == []
    assert statements > 10
    assert runner.deliver_event(event.pk) is True
    assert injected(state) == 1


def _count(act) -> int:
    """How many statements ``act`` takes; it is rolled back."""
    from django.db import transaction

    seen = []

    def count(execute, sql, params, many, context):
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        try:
            with transaction.atomic():
                act()
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    return len([sql for sql in seen if "SAVEPOINT" not in sql])


def _cut_at(n: int):
    """The server ends this connection before the n-th statement, and whenever it is tried again."""
    left = n

    def cut(execute, sql, params, many, context):
        nonlocal left
        if left <= 0:
            raise DatabaseError("terminating connection due to administrator command")
        left -= 1
        return execute(sql, params, many, context)

    return connection.execute_wrapper(cut)


def test_t8_a_session_that_is_gone_gets_nothing(state):
    process = spawn(state)
    facts.purge(state)
    facts.end(process)

    assert runner.deliver_event(state.event.pk) is None
    assert (state.event.status, state.event.reason) == ("dropped", "session_deleted")


def test_t9_a_delegated_agent_passes_the_same_gate(state):
    spawn(state)
    facts.purge(state)
    event = CompletionEvent.objects.create(
        kind=EventKind.DELEGATION,
        child_session="sess-child",
        origin_chat=KEY,
        origin_session="sess-spawner",
        happened_at=facts.db_now(),
    )

    assert runner.deliver_event(event.pk) is None
    event.refresh_from_db()
    assert (event.status, event.reason) == (EventStatus.DROPPED, "session_deleted")


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A file of the peer with one process that is still ours."""
    path = tmp_path / "processes.json"
    path.write_text(
        json.dumps(
            [
                {
                    "session_id": "proc_1",
                    "command": "sleep 60",
                    "pid": 4242,
                    "pid_scope": "host",
                    "host_start_time": 111.0,
                    "started_at": 1234.5,
                    "task_id": "task",
                    "session_key": KEY,
                    "watcher_interval": 5,
                    "watcher_platform": "telegram",
                    "notify_on_complete": True,
                    "parent_session_id": "sess-spawner",
                }
            ]
        )
    )
    monkeypatch.setattr("processes_app.checkpoint.start_of", lambda pid: 111.0)
    return path


def test_t10_a_checkpoint_restores_the_stamp(state, checkpoint, capsys):
    call_command("import_checkpoint", str(checkpoint))
    assert "restored 1" in capsys.readouterr().out

    process = ProcessRecord.objects.get(uid="proc_1")
    assert (process.origin_session, process.origin_chat) == ("sess-spawner", KEY)
    assert process.notify
    assert process.next_check_at is not None  # the watcher is the record's own
    assert process.imported["watcher_platform"] == "telegram"

    call_command("import_checkpoint", str(checkpoint))
    assert "restored 0" in capsys.readouterr().out
    assert ProcessRecord.objects.filter(uid="proc_1").count() == 1
