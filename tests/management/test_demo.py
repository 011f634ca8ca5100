"""``manage.py demo``: sample chats that keep every invariant."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from compression_app import invariants as compaction
from compression_app.models import CompressionState, Cooldown
from hermes.dashboard.models import Rollup
from hermes.lib.db import db_now
from processes_app import intake
from processes_app import invariants as processes
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from processes_app.runner import deliver
from sessions_app.invariants import check_invariants
from sessions_app.models import Chat, Summary, Turn
from tests import factories

pytestmark = pytest.mark.django_db


def test_it_adds_a_long_chat_with_two_summaries_a_streak_and_commands():
    admin = factories.person("admin", is_superuser=True)
    call_command("demo")

    assert Chat.objects.listed(admin.pk).count() == 7
    assert Summary.objects.count() == 2
    assert CompressionState.objects.get(streak=3).session is not None
    assert Cooldown.objects.active().exists()
    assert check_invariants() == compaction.check_invariants() == []
    assert processes.check_invariants() == []
    told = CompletionEvent.objects.order_by("pk").values_list("status", "reason")
    assert list(told) == [
        ("delivered", ""),
        ("dropped", "closed_by_user"),
        ("dropped", "owner_inactive"),
    ]
    assert all(process.tail for process in ProcessRecord.objects.filter(status="ended"))
    assert Approval.objects.get().status == "allowed"
    for model, column in ((ProcessRecord, "ended_at"), (CompletionEvent, "settled_at")):
        assert not model.objects.filter(**{f"{column}__gt": db_now() - timedelta(hours=4)}).exists()
    drops = Rollup.objects.filter(figure="drops", width=86_400)
    assert sorted((row.label, row.count) for row in drops) == [
        ("closed_by_user", 1),
        ("owner_inactive", 1),
    ]
    assert not Turn.objects.filter(finished_at__gt=db_now()).exists()
    ended = Rollup.objects.filter(figure="turns", width=86_400)
    assert sum(row.count for row in ended) == Turn.objects.count() == 37
    adopted = Rollup.objects.filter(figure="deferred", label="adopted", width=86_400)
    assert [row.count for row in adopted] == [1]


def test_one_dropped_completion_is_delivered_when_it_is_judged_again():
    admin = factories.person("admin", is_superuser=True)
    call_command("demo")
    dropped = CompletionEvent.objects.get(reason="owner_inactive")

    assert intake.redeliver(event_id=dropped.pk, actor=f"user:{admin.pk}", why="for the test")
    deliver(dropped.origin_chat)

    dropped.refresh_from_db()
    assert (dropped.status, dropped.reason) == ("accepted", "")
    admin.refresh_from_db()
    assert admin.is_active


def test_a_second_time_it_adds_nothing():
    factories.person("admin", is_superuser=True)
    call_command("demo")
    call_command("demo")
    assert Chat.objects.count() == 7


def test_without_anybody_it_says_what_to_do():
    with pytest.raises(CommandError, match="make run"):
        call_command("demo")
