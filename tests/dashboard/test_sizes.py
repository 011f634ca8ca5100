"""The dashboard costs the same whatever the past: rows are seeded by the database itself."""

from __future__ import annotations

import os
import statistics
import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hermes.dashboard.models import RollupMark
from tests import states

from .conftest import up_to_now

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alive", "operator")]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
LARGE = 200_000 if FULL else 5_000  # attempts; five times as many turns and ten as much history
PAGES = ("/admin/", "/admin/?range=30d", "/admin/desk/live/", "/metrics")
SEED = """
INSERT INTO sessions_app_turn (
    chat_id, session_id, status, source, rank, position, put_back, fence_token, lease_owner,
    text, text_hash, wait_key, error_code, error_text, model_name, model_calls, provider_waits,
    prompt_tokens, completion_tokens, length, open_calls, changed, created_at, started_at,
    finished_at)
SELECT %(chat)s, %(session)s, 'completed', 'person', 2, n, 0, 1, '', '', '', '', '', '', 'm', 1, 0,
    10, 10, 10, 0, 0, at, at + interval '0.3 s', at + interval '20 s'
FROM (SELECT n, now() - n * interval '30 days' / %(turns)s AS at
      FROM generate_series(1, %(turns)s) AS n) AS times;
INSERT INTO compression_app_compactionattempt (
    session_id, status, trigger, focus, wants_preview, generation, watermark, cut, mark,
    model_name, progress, opened_at, claimed_at, finished_at, reason, detail, text, before_tokens,
    after_tokens, prompt_tokens, completion_tokens, actor, fence_token, lease_owner,
    summary_id_made)
SELECT %(session)s, CASE WHEN n %% 20 = 0 THEN 'failed' ELSE 'committed' END, 'soft', '', false, 1,
    1, 1, 1, 'm', 1, at, at, at + interval '30 s',
    CASE WHEN n %% 20 = 0 THEN 'stalled' ELSE '' END, '', '', 10, 1, 100, 10, '', 1, '', 1
FROM (SELECT n, now() - n * interval '30 days' / %(attempts)s AS at
      FROM generate_series(1, %(attempts)s) AS n) AS times;
INSERT INTO sessions_app_history (
    at, chat, session, subject, kind, "from", "to", reason, actor, data)
SELECT at, %(chat)s, %(session)s, 'turn:' || n, 'turn', 'running', 'completed', '', '', '{}'
FROM (SELECT n, now() - (%(turns)s - n) * interval '30 days' / %(turns)s AS at
      FROM generate_series(1, %(turns)s) AS n ORDER BY n) AS times;
ANALYZE;
"""


def seed(attempts: int) -> None:
    """A past of so many attempts in one session, spread over a month."""
    state = states.fresh()
    session = state.chat.sessions.get()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")  # also the checks at the end of the test
        cursor.execute(
            SEED,
            {
                "chat": state.chat.pk,
                "session": session.pk,
                "turns": attempts * 5,
                "attempts": attempts,
            },
        )
    RollupMark.objects.all().delete()  # the past has changed: it is counted anew
    up_to_now()


def cost(client, page: str) -> tuple[float, int]:
    """Milliseconds and queries of a page, the best of nine."""
    times = []
    for _ in range(9):
        with CaptureQueriesContext(connection) as queries:
            began = time.perf_counter()
            assert client.get(page).status_code == 200
            times.append(time.perf_counter() - began)
    return 1000 * min(times), len(queries)


@pytest.mark.timeout(1200)
def test_a_long_past_costs_no_more_than_a_short_one(client):
    seed(200)
    few = {page: cost(client, page) for page in PAGES}
    seed(LARGE)
    many = {page: cost(client, page) for page in PAGES}
    for page in PAGES:
        print(
            f"{page}: 1,000 turns {few[page][0]:.0f} ms,"
            f" {LARGE * 5:,} turns {many[page][0]:.0f} ms, {many[page][1]} queries"
        )

    for page in PAGES:
        assert many[page][1] == few[page][1] or page == "/metrics"
        assert many[page][1] <= 20 + 4 * (page == "/metrics")
        assert many[page][0] <= 300
    assert statistics.median(many[page][0] / few[page][0] for page in PAGES) <= 1.5
