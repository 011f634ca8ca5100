"""``manage.py demo``: sample chats that keep every invariant."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from compression_app import invariants as compaction
from compression_app.models import CompressionState, Cooldown
from hermes.dashboard.models import Rollup
from hermes.lib.db import db_now
from sessions_app.invariants import check_invariants
from sessions_app.models import Chat, Summary, Turn
from tests import factories

pytestmark = pytest.mark.django_db


def test_it_adds_a_long_chat_with_two_summaries_and_a_streak():
    admin = factories.person("admin", is_superuser=True)
    call_command("demo")

    assert Chat.objects.listed(admin.pk).count() == 6
    assert Summary.objects.count() == 2
    assert CompressionState.objects.get(streak=3).session is not None
    assert Cooldown.objects.active().exists()
    assert check_invariants() == compaction.check_invariants() == []
    assert not Turn.objects.filter(finished_at__gt=db_now()).exists()
    ended = Rollup.objects.filter(figure="turns", width=86_400)
    assert sum(row.count for row in ended) == Turn.objects.count() == 34
    adopted = Rollup.objects.filter(figure="deferred", label="adopted", width=86_400)
    assert [row.count for row in adopted] == [1]


def test_a_second_time_it_adds_nothing():
    factories.person("admin", is_superuser=True)
    call_command("demo")
    call_command("demo")
    assert Chat.objects.count() == 6


def test_without_anybody_it_says_what_to_do():
    with pytest.raises(CommandError, match="make run"):
        call_command("demo")
