"""One query tells all numbers, whatever the number of sockets."""

from __future__ import annotations

import statistics
import time

import pytest
from django.db import connection

from hermes.web.numbers import poll
from hermes.web.reading import Viewer, signed_out, viewer_of
from sessions_app import transcript
from sessions_app.models import Chat, Session, Turn
from tests import factories

from .conftest import sign_in

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 2_000


def fill(owner) -> None:
    """Many chats, a tenth of them with a turn that streams."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sessions_app_chat (uid, key, owner_id, title, is_named, draft, version, "
            "read_seq, is_hidden) SELECT gen_random_uuid(), 'k' || n, %s, '', false, '', 1, 0, "
            "false FROM generate_series(1, %s) n",
            [owner.pk, MANY],
        )
        cursor.execute(
            "INSERT INTO sessions_app_session (key, chat_id, number, begun_by, generation, version,"
            " last_seq, last_position, live_tokens, live_count, left_out) "
            "SELECT key, id, 1, 'user', 0, 7, 0, 0, 0, 0, 0 FROM sessions_app_chat"
        )
        cursor.execute(
            "INSERT INTO sessions_app_turn (chat_id, session_id, status, source, text, text_hash, "
            "rank, position, put_back, wait_key, error_code, error_text, model_name, model_calls, "
            "provider_waits, prompt_tokens, completion_tokens, length, open_calls, changed, "
            "fence_token, lease_owner, lease_expires_at, started_at) "
            "SELECT chat_id, id, 'running', 'person', '', '', 2, 1, 0, '', '', '', '', 0, 0, 0, 0,"
            " 0, 0, 1, 1, '', clock_timestamp() + interval '1 hour', clock_timestamp() "
            "FROM sessions_app_session WHERE id % 10 = 0"
        )
        cursor.execute(
            'INSERT INTO sessions_app_turnchunk (turn_id, run, n, "offset", text) '
            "SELECT t.id, 1, n, n * 100, repeat('x', 100) "
            "FROM sessions_app_turn t, generate_series(0, 19) n"
        )
        for table in ("chat", "session"):
            cursor.execute(
                f"UPDATE sessions_app_{table} SET touched_at = clock_timestamp() - interval '1 day'"
                " WHERE id % 20 <> 0"
            )
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
