"""The dashboard in a browser: readable for everybody, live, still while nobody looks.

With ``TEST_PICTURES`` set to a folder, pages are kept there as pictures.
"""

from __future__ import annotations

import math
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from compression_app import fence
from compression_app.domain import AttemptStatus, Reason
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.dashboard import domain, rollups
from hermes.dashboard.models import CheckResult, Heartbeat, Rollup, RollupMark
from hermes.lib.db import DbNow, db_now
from processes_app.models import CompletionEvent
from sessions_app.models import Periodic
from tests import factories
from tests.browser.conftest import OpenTab
from tests.browser.test_look import serious
from tests.dashboard.conftest import attempt, dropped, small_model
from tests.processes import facts

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.django_db(transaction=True)]

FOLDER = os.environ.get("TEST_PICTURES")
LOOKS = [(1440, 900, False), (390, 844, True)]
if FOLDER or os.environ.get("HERMES_TEST_SIZE") == "full":
    LOOKS += [(1440, 900, True), (390, 844, False)]


@pytest.fixture
def admin():
    return factories.person("rosa.l", is_staff=True, is_superuser=True)


@pytest.fixture
def alive(transactional_db, product):
    """The processes of a larger installation, for as long as a test takes; only the rows of them.

    A worker that other tests keep would sweep, and count into the same rows.
    """
    for name in ("Worker", "Supervisor"):
        if name in product:
            product.pop(name).stop()
    Heartbeat.objects.exclude(kind="web").delete()
    for written in (Rollup, RollupMark, CheckResult):
        written.objects.all().delete()
    later = DbNow() + timedelta(minutes=5)
    for kind, queues, host in (
        ("web", "", "b"),
        ("beat", "", "a"),
        ("supervisor", "bwrap", "a"),
        ("worker", "turns", "a"),
        ("worker", "turns", "b"),
        ("worker", "background", "a"),
        ("worker", "background", "b"),
    ):
        Heartbeat.objects.create(
            owner=f"{host}|x|{kind}{queues}|1", kind=kind, host=host, queues=queues, seen_at=later
        )
    Periodic.objects.update_or_create(
        name="sweep", defaults={"last_run_at": later, "busy_until": None}
    )
    CheckResult.objects.create(name="invariants", at=DbNow() - timedelta(minutes=14))


@pytest.fixture
def a_day(alive):
    """A day of an installation that people use; the numbers stand in its rollups."""
    now = db_now()
    RollupMark.objects.create(name="all", through=domain.floor(now, domain.SLOT))
    rows: list[tuple[int, str, str, int, int]] = []
    for hour in range(24):
        busy = 0.35 + 0.65 * max(0.0, math.sin((hour - 3) / 24 * math.tau)) ** 0.8
        rows += [
            (hour, "turns", "completed", round(96 * busy), 0),
            (hour, "turns", "cancelled", round(3 * busy), 0),
            (hour, "turns", "failed", 1 if hour in (9, 17) else 0, 0),
            (hour, "waits", "0.25", round(70 * busy), 0),
            (hour, "waits", "0.5", round(22 * busy), 0),
            (hour, "waits", "2", round(8 * busy), 0),
            (hour, "attempts", "committed", round(14 * busy), round(118_000 * busy)),
            (hour, "attempts", "adopted", 1 if hour % 3 == 1 else 0, 9_000),
            (hour, "attempts", "ended", 1 if hour % 4 == 2 else 0, 2_400),
            (hour, "deferred", "adopted", 1 if hour % 3 == 1 else 0, 0),
            (hour, "deferred", "ended", 1 if hour == 13 else 0, 0),
            *((hour, "holds", str(n), (hour * 7 + n * 3) % 11 // (4 + n), 0) for n in range(10)),
            (hour, "holds", "released", 1 if hour % 3 == 1 else 0, 0),
            (hour, "completions", "delivered", round(26 * busy), 0),
            (hour, "completions", "consumed", round(6 * busy), 0),
            (hour, "completions", "quiet", round(2 * busy), 0),
            (hour, "completions", "dropped", hour % 5, 0),
            (hour, "drops", "closed_by_user", hour % 5 - hour % 10 // 7, 0),
            (hour, "drops", "session_deleted", hour % 10 // 7, 0),
            (hour, "processes", "ended", round(34 * busy), 0),
        ]
    begin = domain.floor(now, domain.HOUR) - timedelta(hours=23)
    Rollup.objects.bulk_create(
        Rollup(
            width=domain.HOUR,
            at=begin + timedelta(hours=hour),
            figure=figure,
            label=label,
            count=count,
            total=total,
        )
        for hour, figure, label, count, total in rows
        if count
    )
    for minutes in (47, 12, 3):
        facts.running(started_at=now - timedelta(minutes=minutes))


@pytest.fixture
def unwell(a_day):
    """… in which the summary model refuses its key, and a worker is gone."""
    small_model()
    for streak in (4, 3, 3, 1):
        made = attempt()
        CompactionAttempt.objects.filter(pk=made.pk).update(
            detail="authentication: the key was refused (401)", model_name="small-7b"
        )
        fence.end(made.pk, made.session_id, AttemptStatus.FAILED, Reason.PROVIDER)
        CompressionState.objects.filter(session=made.session_id).update(streak=streak)
    Cooldown.objects.update(until=DbNow() + timedelta(minutes=21), created_at=DbNow())
    past = DbNow() - timedelta(minutes=12)
    Heartbeat.objects.filter(host="b", queues="background").update(seen_at=past)
    now = domain.floor(db_now(), domain.HOUR)
    Rollup.objects.update_or_create(
        width=domain.HOUR,
        at=now,
        figure="attempts",
        label="failed",
        defaults={"count": 18, "total": 36_400},
    )


def copies(event: CompletionEvent, numbers: range) -> list[CompletionEvent]:
    """More news of the same process, dropped a little earlier each."""
    values = {
        field.attname: getattr(event, field.attname)
        for field in CompletionEvent._meta.concrete_fields
        if not field.primary_key
    }
    return [
        CompletionEvent(
            **{**values, "seq": n, "settled_at": event.settled_at - timedelta(seconds=47 * n)}
        )
        for n in numbers
    ]


@pytest.fixture
def many_dropped(unwell):
    """… and news that was dropped while its owners were switched off."""
    rows, hour = [], domain.floor(db_now(), domain.HOUR)
    for kind, count in (("owner_inactive", 42), ("closed_by_user", 9)):
        state = dropped(kind)
        state.chat.owner.is_active = True
        state.chat.owner.save(update_fields=["is_active"])
        rows += copies(state.event, range(2, count + 1))
    CompletionEvent.objects.bulk_create(rows)
    for ago, count in ((1, 29), (0, 13)):
        Rollup.objects.create(
            width=domain.HOUR,
            at=hour - timedelta(hours=ago),
            figure="drops",
            label="owner_inactive",
            count=count,
        )


@pytest.mark.parametrize(("width", "height", "dark"), LOOKS)
@pytest.mark.parametrize("state", ["empty", "tried"])
def test_everybody_can_read_what_was_dropped(
    request, web, tab: OpenTab, admin, state: str, width, height, dark: bool
):
    request.getfixturevalue("alive" if state == "empty" else "many_dropped")
    path = "/admin/desk/dropped/"
    path += "?reason_code=owner_inactive" if state == "tried" else ""
    opened = desk(tab, admin, path, width=width, height=height, dark=dark, bypass_csp=True)
    theme = "dark" if dark else "light"
    keep(opened.page, f"dropped-{state}-{theme}-{width}")

    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(opened.page) == []


def test_what_was_dropped_is_redelivered_in_steps(web, tab: OpenTab, admin, many_dropped):
    first = CompletionEvent.objects.filter(reason="owner_inactive").order_by("pk").first()
    CompletionEvent.objects.bulk_create(copies(first, range(43, 601)))  # more than one step does
    opened = desk(tab, admin, "/admin/")
    page = opened.page
    page.click("text=Review and redeliver")
    page.click("text=Try owner_inactive")
    assert "Would redeliver 600 of owner_inactive." in page.inner_text("aside")
    page.fill("textarea[name=reason]", "They were switched off by mistake.")
    page.check("input[name=sure]")
    steps = []
    page.on("request", lambda request: request.method == "POST" and steps.append(request.url))
    page.click("aside button[type=submit]")
    page.wait_for_selector("text=600 results are on their way again.")
    assert len(steps) > 1  # nobody pressed anything
    assert CompletionEvent.objects.filter(status="dropped").count() == 9


def desk(tab: OpenTab, admin, path: str = "/admin/", **how):
    """A tab at the desk."""
    opened = tab(admin, **how)
    opened.page.goto(opened.origin + path)
    return opened


def keep(page, name: str) -> None:
    if FOLDER:
        page.screenshot(path=str(Path(FOLDER) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize(("width", "height", "dark"), LOOKS)
@pytest.mark.parametrize("state", ["healthy", "unwell"])
def test_everybody_can_read_it(
    request, web, tab: OpenTab, admin, state: str, width, height, dark: bool
):
    request.getfixturevalue("a_day" if state == "healthy" else "unwell")
    opened = desk(tab, admin, width=width, height=height, dark=dark, bypass_csp=True)
    page = opened.page
    opened.until("document.querySelector('#live').dataset.state === 'live'")
    level = "ok" if state == "healthy" else "bad"  # a picture of the test before lasts a moment
    opened.until(f"document.querySelector('[data-part=verdict]').dataset.level === '{level}'")
    theme = "dark" if dark else "light"
    keep(page, f"dashboard-{state}-{theme}-{width}")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []


@pytest.mark.parametrize(("width", "height", "dark"), LOOKS)
def test_everybody_can_read_a_timeline(web, tab: OpenTab, admin, unwell, width, height, dark: bool):
    session = CompressionState.objects.filter(streak=4).first().session_id
    path = f"/admin/desk/sessions/{session}/"
    opened = desk(tab, admin, path, width=width, height=height, dark=dark, bypass_csp=True)
    theme = "dark" if dark else "light"
    keep(opened.page, f"timeline-{theme}-{width}")

    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(opened.page) == []


def test_it_is_live_and_nothing_on_it_is_refused(web, tab: OpenTab, admin, a_day):
    opened = desk(tab, admin)
    opened.until("document.querySelector('#verdict').textContent === 'All well.'")
    past = DbNow() - timedelta(minutes=12)
    Heartbeat.objects.filter(queues="turns").update(seen_at=past)
    asked = "document.querySelector('.needs')?.textContent.includes('No worker takes the queue')"
    opened.until(asked)


def test_what_has_the_focus_stays(web, tab: OpenTab, admin, unwell):
    opened = desk(tab, admin)
    page = opened.page
    page.focus("[data-part=streaks] button")
    page.evaluate("document.activeElement.dataset.mine = '1'")
    CompressionState.objects.filter(streak=4).update(streak=9)
    before = page.inner_text("#live [data-live-time]")
    opened.until(f"document.querySelector('#live [data-live-time]').textContent !== '{before}'")
    opened.until(f"document.querySelector('#live [data-live-time]').textContent !== '{before}'")
    assert page.evaluate("document.activeElement.dataset.mine") == "1"
    page.evaluate("document.activeElement.blur()")
    opened.until("document.querySelector('[data-part=streaks]').textContent.includes('9')")


def traffic(tab: OpenTab, admin) -> tuple:
    """A tab at the desk whose socket is open; what was asked for, and the frames that came."""
    opened = tab(admin)
    asked: list[str] = []
    came: list[str] = []
    opened.page.on("request", lambda request: asked.append(request.url))
    opened.page.on(
        "websocket", lambda each: each.on("framereceived", lambda frame: came.append(str(frame)))
    )
    opened.page.goto(opened.origin + "/admin/")
    deadline = time.monotonic() + 10
    while not came and time.monotonic() < deadline:
        opened.page.wait_for_timeout(50)
    assert came
    return opened, asked, came


def show(page, *, hidden: bool) -> None:
    """The tab goes into the background, or comes back."""
    page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{value: {str(hidden).lower()},"
        " configurable: true}); document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_it_comes_over_a_socket_within_three_seconds_and_nothing_is_asked_for(
    web, tab: OpenTab, admin, a_day
):
    opened, asked, came = traffic(tab, admin)
    opened.until("document.querySelector('#verdict').textContent === 'All well.'")
    Heartbeat.objects.filter(queues="turns").update(seen_at=DbNow() - timedelta(minutes=12))
    opened.until("document.querySelector('#verdict').textContent !== 'All well.'", seconds=3)
    assert len(came) >= 2
    assert not any("/admin/desk/live/" in url for url in asked)


@pytest.mark.parametrize("how", ["hidden", "by hand"])
def test_a_page_that_nobody_sees_is_told_nothing_and_says_so(
    web, tab: OpenTab, admin, a_day, how: str
):
    opened, asked, came = traffic(tab, admin)
    page = opened.page
    opened.until("document.querySelector('#verdict').textContent === 'All well.'")
    if how == "hidden":
        show(page, hidden=True)
    else:
        page.click("#live button")
        assert page.get_attribute("#live button", "aria-pressed") == "true"
    word = "Paused while hidden" if how == "hidden" else "Paused by you"
    opened.until(f"document.querySelector('#live').textContent.includes('{word}')")
    page.wait_for_timeout(500)  # what was under way has come
    asked.clear()
    came.clear()
    Heartbeat.objects.filter(queues="turns").update(seen_at=DbNow() - timedelta(minutes=12))
    page.wait_for_timeout(4_500)  # two rounds of an open page
    assert (asked, came) == ([], [])
    if how == "hidden":
        show(page, hidden=False)
    else:
        page.click("#live button")
    opened.until("document.querySelector('#verdict').textContent !== 'All well.'", seconds=3)
    deadline = time.monotonic() + 3  # the page knows of a frame a little earlier than we do
    while not came and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert came
    assert page.get_attribute("#live", "data-state") == "live"


def test_where_no_socket_comes_through_it_asks(web, tab: OpenTab, admin, a_day):
    opened = tab(admin)
    opened.page.route_web_socket("**/ws/desk/", lambda socket: socket.close())
    asked: list[str] = []
    opened.page.on("request", lambda request: asked.append(request.url))
    opened.page.goto(opened.origin + "/admin/")
    opened.until("document.querySelector('#verdict').textContent === 'All well.'")
    Heartbeat.objects.filter(queues="turns").update(seen_at=DbNow() - timedelta(minutes=12))
    opened.until("document.querySelector('#verdict').textContent !== 'All well.'", seconds=6)
    assert any("/admin/desk/live/" in url for url in asked)
    assert opened.page.get_attribute("#live", "data-state") == "live"


def test_who_may_not_look_any_more_gets_the_plain_page(web, tab: OpenTab, admin, a_day):
    opened, _asked, _came = traffic(tab, admin)
    type(admin).objects.filter(pk=admin.pk).update(is_superuser=False)
    opened.page.wait_for_selector("#live", state="detached", timeout=6_000)
    assert "All well" not in opened.page.inner_text("body")


def test_its_forms_work_after_they_came_over_the_socket(web, tab: OpenTab, admin, unwell):
    opened, _asked, _came = traffic(tab, admin)
    page = opened.page
    CompressionState.objects.filter(streak=4).update(streak=9)
    opened.until("document.querySelector('[data-part=streaks]').textContent.includes('9')")
    page.click("[data-part=streaks] button[value=retry_now] >> nth=0")
    page.wait_for_selector("textarea[name=reason]")


def test_retry_now_leads_to_the_question_for_a_reason(web, tab: OpenTab, admin, unwell):
    opened = desk(tab, admin)
    opened.page.click("[data-part=streaks] button[value=retry_now] >> nth=0")
    opened.page.wait_for_selector("textarea[name=reason]")
    assert "1 row" in opened.page.inner_text("body")


def test_the_rollups_of_this_file_are_those_of_the_product(a_day):
    picture = rollups.picture(db_now(), domain.RANGES["24h"])
    assert sum(picture.counts("attempts").values()) > 100
