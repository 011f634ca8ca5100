"""One query tells all numbers, whatever the number of sockets."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from hermes.lib.viewers import Viewer, signed_out, viewer_of
from hermes.web.numbers import poll
from sessions_app import transcript
from sessions_app.models import Chat, Session, Turn, TurnChunk
from tests import factories

from .conftest import sign_in

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 2_000
DAY = timedelta(days=1)


def fill(owner) -> None:
    """Many chats, a tenth of them with a turn that streams; a twentieth moved just now."""
    now = timezone.now()
    chats = Chat.objects.bulk_create(
        Chat(key=f"k{n}", owner=owner, touched_at=now if n % 20 == 0 else now - DAY)
        for n in range(MANY)
    )
    sessions = Session.objects.bulk_create(
        Session(key=each.key, chat=each, number=1, version=7, touched_at=each.touched_at)
        for each in chats
    )
    turns = Turn.objects.bulk_create(
        Turn(
            chat=each.chat,
            session=each,
            status="running",
            position=1,
            fence_token=1,
            started_at=now,
            lease_expires_at=now + DAY,
        )
        for each in sessions[::10]
    )
    TurnChunk.objects.bulk_create(
        TurnChunk(turn=each, run=1, n=n, offset=n * 100, text="x" * 100)
        for each in turns
        for n in range(20)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def test_two_thousand_sessions_cost_one_short_query(capsys):
    owner = factories.person()
    fill(owner)
    sessions = list(Session.objects.values_list("pk", flat=True))
    chats = list(Chat.objects.values_list("pk", flat=True))
    times = []
    for _ in range(7):
        began = time.monotonic()
        rows = poll(sessions, chats, [owner.pk])
        times.append(time.monotonic() - began)
    with capsys.disabled():
        print(f"\n  poll of {MANY} sessions: {statistics.median(times) * 1000:.0f} ms")

    assert len(rows) == 2 * MANY + 1
    streamed = [row for row in rows if row[0] == "s" and row[6] is not None]
    assert len(streamed) == MANY // 10
    assert {row[5:7] for row in streamed} == {("running", 2000)}
    assert statistics.median(times) <= 0.060


def test_the_numbers_are_those_of_the_rows():
    chat = factories.chat()
    turn = factories.say(chat, "hello")
    claimed = transcript.claim(turn.session_id)
    session = Session.objects.get()
    rows = {row[0]: row[1:] for row in poll([session.pk], [chat.pk], [chat.owner_id])}
    assert rows["s"][:5] == (session.pk, session.version, turn.pk, 1, "held")
    transcript.start(claimed)
    transcript.save_chunk(claimed.lease, 0, 0, "so far")
    rows = {row[0]: row[1:] for row in poll([session.pk], [chat.pk], [chat.owner_id])}
    assert rows["s"][2:6] == (turn.pk, 1, "running", 6)
    assert rows["c"][:3] == (chat.pk, Chat.objects.get().version, session.pk)
    assert rows["u"][0] == chat.owner_id
    assert Turn.objects.get().status == "running"


def test_ended_logins_are_found_in_one_query(django_assert_num_queries):
    people = [factories.person() for _ in range(3)]
    viewers = [viewer_of(sign_in(person).partition("=")[2]) for person in people]
    people[1].is_active = False
    people[1].save()
    forged = Viewer(people[2].pk, "", viewers[0].login, viewers[2].stamp)
    with django_assert_num_queries(1):
        gone = signed_out([*viewers, forged])
    assert gone == [viewers[1]]
    assert signed_out([]) == []
