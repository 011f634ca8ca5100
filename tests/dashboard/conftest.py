"""Operators, and installations that are well or not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from compression_app import fence, intake
from compression_app.domain import AttemptStatus, Reason
from compression_app.models import CompactionAttempt, CompressionState
from hermes.dashboard import heartbeats, rollups
from hermes.dashboard.models import Heartbeat
from hermes.lib.db import DbNow, db_now
from processes_app import runner
from processes_app.domain import ProcessReason, ProcessStatus
from processes_app.intake import End, record_end
from processes_app.models import CompletionEvent
from sessions_app import intake as sessions
from sessions_app.models import Periodic, Session
from tests import factories
from tests.compression.conftest import session_over_mark
from tests.processes import facts


@pytest.fixture
def operator(client):
    """Staff who may see the desk and every list."""
    return factories.operator(client)


@pytest.fixture
def alive(db):
    """Every process of the product has just told that it still lives, and a sweep has just run."""
    for kind, queues in (
        ("web", ""),
        ("beat", ""),
        ("supervisor", "bwrap"),
        ("worker", "turns"),
        ("worker", "background"),
    ):
        Heartbeat.objects.create(
            owner=f"host|boot|{kind}{queues}|1",
            kind=kind,
            host="host",
            queues=queues,
            began_at=DbNow() - timedelta(hours=1),
        )
    Periodic.objects.create(name="sweep", last_run_at=timezone.now())


def gone(kind: str, queues: str = "") -> None:
    """A process of a kind was not seen for a while."""
    past = DbNow() - heartbeats.GONE - timedelta(seconds=5)
    assert Heartbeat.objects.filter(kind=kind, queues=queues).update(seen_at=past)


def small_model() -> None:
    """A chat model whose window is soon full."""
    sessions.register_endpoint(
        name="small",
        base_url="http://127.0.0.1:9/v1",
        api_key="k",
        model="m",
        window=8_000,
        role="chat",
    )


def attempt() -> CompactionAttempt:
    """An open attempt in a session of its own."""
    state = session_over_mark()
    made = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
    assert isinstance(made, CompactionAttempt)
    return made


def failed(streak: int = 1) -> CompactionAttempt:
    """An attempt that failed as the last of so many."""
    made = attempt()
    CompactionAttempt.objects.filter(pk=made.pk).update(
        prompt_tokens=900, completion_tokens=100, model_name="m"
    )
    fence.end(made.pk, made.session_id, AttemptStatus.FAILED, Reason.STALLED)
    CompressionState.objects.filter(session=made.session_id).update(streak=streak)
    made.refresh_from_db()
    return made


def dropped(kind: str = "closed_by_user") -> facts.Background:
    """A chat whose process has ended and whose news was dropped for this reason, by the table."""
    state = facts.running()
    if kind == "closed_by_user":
        facts.reset(state)
    facts.end(state.process)
    events = CompletionEvent.objects.filter(process=state.process)
    if kind == "unknown_type":
        events.update(kind="watch_match")
    elif kind == "owner_unproven":  # its session goes on in one that never comes
        Session.objects.filter(chat=state.chat).update(ended_at=DbNow(), end_reason="compression")
        runner.deliver(state.chat.key)
        past = DbNow() - timedelta(minutes=3)
        events.update(due_at=past, waits_since=past)
    elif kind == "owner_inactive":
        state.chat.owner.is_active = False
        state.chat.owner.save(update_fields=["is_active"])
    runner.deliver(state.chat.key)
    assert (state.event.status, state.event.reason) == ("dropped", kind)
    return state


def lost() -> facts.Background:
    """A chat whose process nobody can say the end of."""
    state = facts.running()
    end = End(
        ProcessStatus.LOST,
        ProcessReason.VANISHED,
        exit_code=None,
        body="",
        ended_at=db_now(),
    )
    assert record_end(state.process.pk, end)
    return state


def up_to_now() -> None:
    """Roll up until the open slot is reached, however long that takes."""
    rollups.catch_up(600)
