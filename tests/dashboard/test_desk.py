"""Every page of the desk costs the same whatever the past; ten thousand are redelivered in steps.

Lists, filters, orders and pages of the admin are not named here: what is registered is walked.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from hermes.dashboard.models import RollupMark
from hermes.lib import reauth
from processes_app.models import CompletionEvent
from sessions_app.models import History

from . import pasts
from .conftest import up_to_now
from .test_drops import URL, post

pytestmark = [pytest.mark.usefixtures("alive")]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
FEW, MANY = 1_000, 1_000_000 if FULL else 3_000  # messages
TIMES = 3 if FULL else 1  # how often a page is asked for
QUERIES, QUERIES_OF_METRICS = 20, 24
MILLISECONDS = 300 if FULL else 2_000  # of the best; beside other tests a page may take longer
SECONDS = 2.0  # of any request
ROWS = 60_000  # that the database looks at for one page, whatever there is
RATIO = 1.5
LEAST = 40  # milliseconds: what is faster is not told from what the machine does besides
TO_REDELIVER = 200_000 if FULL else 6_000  # completions, of which a twentieth was dropped


@dataclass
class Cost:
    """What one page came to."""

    milliseconds: float
    worst: float
    queries: int
    rows: int  # that the database looked at
    where: str = ""  # the query that looked at most of them

    @property
    def is_slow(self) -> bool:
        """Whether it took longer than a page may."""
        return self.milliseconds > MILLISECONDS or self.worst > 1000 * SECONDS


@pytest.fixture
def operator(operator, client):
    """Staff who may see and do everything, and have just shown their password."""
    operator.user_permissions.set(Permission.objects.all())
    session = client.session
    session[reauth.KEY] = int(time.time())
    session.save()
    return operator


def looked_at(plan: dict[str, Any]) -> float:
    """Rows that the leaves of a plan have read, whether they were of use or not."""
    below = sum(map(looked_at, plan.get("Plans", ())))
    if "Relation Name" not in plan:
        return below
    names = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return below + sum(plan.get(name, 0) for name in names) * plan.get("Actual Loops", 1)


def explained(queries: list[dict[str, str]]) -> tuple[int, str]:
    """Rows that the queries of a page look at together, and the query that looks at most."""
    found = []
    for sql in {each["sql"] for each in queries}:
        if sql.startswith(("SELECT", "WITH")) and "FOR UPDATE" not in sql:
            with connection.cursor() as cursor:
                cursor.execute(
                    f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql.replace('%', '%%')}", []
                )
                told = cursor.fetchone()[0]
            told = json.loads(told) if isinstance(told, str) else told
            found.append((looked_at(told[0]["Plan"]), sql))
    most = max(found, default=(0, ""))
    return int(sum(rows for rows, _sql in found)), f"{most[0]:.0f}: {most[1]}"


def cost(client, page: str) -> Cost:
    """Time, queries and rows of a page."""
    times = []
    for _ in range(TIMES):
        connection.queries_log.clear()  # it has a limit
        with CaptureQueriesContext(connection) as queries:
            began = time.perf_counter()
            answer = client.get(page)
            times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, (page, answer.status_code)
    rows, where = explained(queries.captured_queries)
    return Cost(min(times), max(times), len(queries), rows, where)


# --- Which pages there are ------------------------------------------------------------------------


def terms(lists: Any) -> Iterator[str]:
    """What somebody may search for: of each field a value that is there; and nothing that is."""
    if not lists.search_fields:
        return
    for name in lists.search_fields:
        path = re.sub(r"__(exact|startswith|icontains)$", "", name.lstrip("=^@"))
        value = lists.model._base_manager.order_by("pk").values_list(path, flat=True).first()
        if value:
            yield str(value)
    yield "nothing-of-this-name"


def orders(shown: Any) -> Iterator[str]:
    """Each order that the head of the table offers, both ways."""
    for number, name in enumerate(shown.list_display):
        offered = shown.sortable_by is None or name in shown.sortable_by
        if offered and shown.get_ordering_field(name):
            yield from (f"?o={number}", f"?o=-{number}")


def pages(client) -> dict[str, list[str]]:
    """Every page of the desk, by what it is part of; a fourth of them at the small size."""
    found: dict[str, list[str]] = {}
    for model, lists in admin.site._registry.items():
        label = model._meta.label_lower
        url = reverse(f"admin:{label.replace('.', '_')}_changelist")
        shown = client.get(url).context["cl"]
        queries = ["", f"?p={shown.paginator.num_pages}", *orders(shown)]
        for spec in shown.filter_specs:
            queries += [choice["query_string"] for choice in spec.choices(shown)]
        queries += [f"?q={term}" for term in terms(lists)]
        if not FULL:
            queries = [*queries[:2], *queries[2::4]]
        row = model._base_manager.order_by("pk").values_list("pk", flat=True).first()
        row_page = reverse(f"admin:{label.replace('.', '_')}_change", args=[row])
        found[label] = [*(url + query for query in dict.fromkeys(queries)), row_page]
    return found


def desk(past: pasts.Past) -> dict[str, list[str]]:
    """The pages of the desk itself; those of the long session."""
    timeline = reverse("desk:timeline", args=[past.session])
    dropped = reverse("desk:dropped") + "?range=30d"
    return {
        "dashboard": ["/admin/", "/admin/?range=30d", "/admin/desk/live/"],
        "metrics": ["/metrics"],
        "long session": [
            reverse("admin:sessions_app_session_change", args=[past.session]),
            timeline,
            *(f"{timeline}?kind={kind}" for kind in ("turn", "attempt", "process", "operator")),
            f"{timeline}?order=oldest",
        ],
        "dropped": [dropped],
    }


# --- Walking them ---------------------------------------------------------------------------------


def walk(client, messages: int, name: str) -> dict[str, Cost]:
    """A past of so many messages, and what every page costs then."""
    past = pasts.make(messages, name)
    RollupMark.objects.all().delete()  # the past has changed: it is counted anew
    up_to_now()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE dashboard_rollup")
    whole = {**desk(past), **pages(client)}
    return {page: cost(client, page) for part in whole.values() for page in part}


def part(page: str) -> str:
    """What a page is part of."""
    return re.sub(r"/\d+/(change/)?", "/*/", page.partition("?")[0])


def compared(before: float, now: list[Cost]) -> float:
    """How many times as long the pages of a part take; 0 where there is nothing to compare with."""
    middle = statistics.median(told.milliseconds for told in now)
    return middle / max(before, LEAST) if before else 0.0


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(3600)
def test_no_page_costs_more_with_a_long_past(client, operator):
    few = walk(client, FEW, "few") if FULL else {}
    many = walk(client, MANY, "many")

    parts: dict[str, list[str]] = {}
    for page in many:
        parts.setdefault(part(page), []).append(page)
    wrong, ratios = [], []
    for name, of_it in parts.items():
        before = [told.milliseconds for page, told in few.items() if part(page) == name]
        usual = statistics.median(before) if before else 0.0
        if name in few:  # most filters find too little among a thousand to fill a page
            usual = max(usual, few[name].milliseconds)
        for page in of_it:
            if many[page].is_slow:
                many[page] = cost(client, page)  # what is slow by itself is slow again
        ratio = compared(usual, [many[page] for page in of_it])
        if ratio > RATIO:
            for page in of_it:
                many[page] = min(many[page], cost(client, page), key=lambda told: told.milliseconds)
            ratio = compared(usual, [many[page] for page in of_it])
        ratios.append(ratio)
        if ratio > RATIO:
            wrong.append(f"{name}: {ratio:.2f} times as long")
        worst = max(of_it, key=lambda page: many[page].milliseconds)
        times = [many[page].milliseconds for page in of_it]
        print(
            f"desk {name}: {len(of_it)} pages, median {statistics.median(times):.0f} ms"
            + (f" (1k: {usual:.0f} ms)" if before else "")
            + f", most {max(times):.0f} ms, {max(many[p].queries for p in of_it)} queries,"
            f" {max(many[p].rows for p in of_it):,} rows looked at ({worst})"
        )
    for page, told in many.items():
        most = QUERIES_OF_METRICS if page == "/metrics" else QUERIES
        if told.queries > most:
            wrong.append(f"{page}: {told.queries} queries")
        if told.milliseconds > MILLISECONDS:
            wrong.append(f"{page}: {told.milliseconds:.0f} ms; {told.where}")
        if told.worst > 1000 * SECONDS:
            wrong.append(f"{page}: once {told.worst:.0f} ms")
        if told.rows > ROWS:
            wrong.append(f"{page}: {told.rows} rows; {told.where}")
    if FULL:
        print(
            f"desk: 1,000 against {MANY:,} messages, ratio of the medians of {len(ratios)} kinds of"
            f" pages: median {statistics.median(ratios):.2f}, most {max(ratios):.2f}"
        )
    print(f"desk: {len(many)} pages at {MANY:,} messages, {len(wrong)} beyond their limits")
    assert wrong == [], "\n".join(wrong)


# --- Redelivering ---------------------------------------------------------------------------------


def asked(client, told: list[float], send: Callable[[], Any]) -> Any:
    """What comes of a request; how long it took is added to ``told``."""
    began = time.perf_counter()
    answer = send()
    told.append(time.perf_counter() - began)
    assert answer.status_code == 200
    return answer


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(3600)
def test_all_that_was_dropped_for_a_reason_is_redelivered_in_steps(client, operator):
    past = pasts.make(TO_REDELIVER * 5, "past")
    seconds: list[float] = []
    page = asked(client, seconds, lambda: client.get(f"{URL}?range=30d&reason_code=owner_inactive"))
    dry = page.context["dry"]
    assert dry.total == past.dropped == TO_REDELIVER // 20
    assert dry.good == dry.tried > 0
    print(
        f"desk redelivery: the dry run counts {dry.total:,} and tries {dry.tried:,} of them"
        f" in {seconds[0]:.2f} s"
    )

    # A double click: the same form twice at once, from the same browser.
    other = Client()
    other.cookies = client.cookies
    with ThreadPoolExecutor(2) as threads:
        twice = [
            threads.submit(closing(asked), each, seconds, partial(post, each, page))
            for each in (client, other)
        ]
        answers = [each.result() for each in twice]
    (first, left), (second, _) = map(progress_of, answers)
    assert first + second == CompletionEvent.objects.filter(attempt=2).count()
    page, steps, done = answers[0], 1, first
    while left:
        page = asked(client, seconds, partial(post, client, page))
        before, (done, left), steps = left, progress_of(page), steps + 1
        assert left < before
    assert done + second == past.dropped

    events = CompletionEvent.objects.filter(attempt=2)
    assert events.count() == events.filter(status="pending").count() == past.dropped
    lines = History.objects.filter(kind="operator", to="redeliver", actor="operator")
    each = lines.filter(subject__startswith="completion:").values_list("subject", flat=True)
    assert sorted(each) == sorted(f"completion:{pk}" for pk in events.values_list("pk", flat=True))
    print(
        f"desk redelivery: {past.dropped:,} of {past.dropped:,} judged again in {steps} steps,"
        f" pressed twice at once; {len(each):,} lines of history; the longest request"
        f" {max(seconds):.2f} s"
    )
    assert max(seconds) <= SECONDS


def progress_of(page: Any) -> tuple[int, int]:
    """How many a page says are done, and how many are to go.

    Read from its text: what two pages at once have rendered with, the test client mixes up.
    """
    text = page.content.decode()
    if found := re.search(r"(\d+) done, (\d+) to go\.", text):
        return int(found[1]), int(found[2])
    found = re.search(r"(\d+) results? (?:is on its|are on their) way again\.", text)
    assert found, text
    return int(found[1]), 0


def closing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for a thread of its own, whose connection to the database is closed then."""

    def called(*told: Any) -> Any:
        try:
            return function(*told)
        finally:
            connection.close()

    return called
