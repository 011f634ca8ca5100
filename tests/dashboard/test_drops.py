"""Dropped completions: true numbers, a dry run that writes nothing, a redelivery of all of them."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hermes.dashboard import domain, drops
from hermes.lib.db import db_now
from processes_app import intake
from processes_app.domain import DropReason
from processes_app.models import CompletionEvent
from sessions_app.models import History
from tests import factories

from .conftest import dropped, lost, up_to_now
from .test_rollups import counted

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/admin/desk/dropped/"
WHY = "They were switched off by mistake."


@pytest.fixture
def acting(operator):
    operator.user_permissions.add(Permission.objects.get(codename="redeliver_completion"))
    return operator


def inactive(count: int) -> list[CompletionEvent]:
    """News that was dropped since its owner was switched off; they are back."""
    states = [dropped("owner_inactive") for _ in range(count)]
    for state in states:
        state.chat.owner.is_active = True
        state.chat.owner.save(update_fields=["is_active"])
    return [state.event for state in states]


def post(client, page, reason=WHY, **changed):
    """Send the form of a page as it stands there."""
    text = page.content.decode()
    form = re.search(r"<form class=.dry-f.*?</form>", text, re.S)[0]
    data = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    return client.post(URL, {**data, "reason": reason, "sure": "on", **changed})


def redelivered(limit: int = drops.AT_ONCE) -> None:
    """What was dropped since its owner was switched off is judged again, so many of it."""
    since = domain.RANGES["24h"].begin(db_now())
    stored = drops.Stored(DropReason.OWNER_INACTIVE, since, db_now())
    for pk in list(stored.rows().values_list("pk", flat=True)[:limit]):
        assert intake.redeliver(event_id=pk, actor="a", why=WHY)


def numbers(page) -> dict[str, int]:
    return {each["reason"]: each["still"] for each in page.context["groups"]}


class TestPage:
    def test_nothing_was_dropped(self, client, operator):
        page = client.get(URL)
        assert b"Nothing was dropped in the last 24 h" in page.content
        assert b"<form" not in page.content

    def test_groups_with_numbers_trend_and_way_to_the_list(self, client, operator):
        rows = inactive(2)
        dropped("closed_by_user")
        up_to_now()
        page = client.get(URL)
        text = page.content.decode()

        assert numbers(page) == {"owner_inactive": 2, "closed_by_user": 1}
        assert "2 of 3 drops have one cause: owner_inactive." in text
        assert text.count('<svg class="plot') == 2
        links = re.findall(r'href="(/admin/[^"]+reason__exact[^"]+)"', text)
        found = client.get(links[0].replace("&amp;", "&")).context["cl"].queryset
        assert set(found) == set(rows)

    @pytest.mark.parametrize(
        "since",
        ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+00:00", "2020-01-01", "\0", "soon"],
    )
    def test_a_time_that_is_none_names_no_filter(self, client, operator, since):
        client.cookies["tz"] = "America/New_York"
        query = {
            "reason_code": "owner_unproven",
            "since": since,
            "until": since,
            "tz": "local",
        }
        page = client.get(URL, query)
        assert page.status_code == 200
        assert page.context["stored"] is None

    def test_the_dashboard_leads_to_it(self, client, operator, alive):
        inactive(1)
        up_to_now()
        text = client.get("/admin/").content.decode()
        assert "1 result did not reach its session." in text
        assert f'href="{URL}' in text

    def test_the_dashboard_needs_nobody_once_it_is_redelivered(self, client, acting, alive):
        """The trend still shows that it was dropped; nothing is left to do about it."""
        inactive(2)
        up_to_now()
        redelivered(limit=1)
        assert "1 result did not reach its session." in client.get("/admin/").content.decode()
        redelivered()
        assert "did not reach" not in client.get("/admin/").content.decode()

    def test_a_reason_of_which_nothing_is_left_offers_nothing(self, client, acting):
        inactive(1)
        up_to_now()
        redelivered()
        page = client.get(URL)
        text = page.content.decode()
        assert page.context["chosen"] is None
        assert "Try owner_inactive" not in text
        assert "Show all 0" not in text
        dropped("closed_by_user")
        assert client.get(URL).context["chosen"] == "closed_by_user"

    def test_few_queries_and_a_strict_policy(self, client, acting):
        inactive(3)
        up_to_now()
        for query in ("", "?reason_code=owner_inactive"):
            with CaptureQueriesContext(connection) as queries:
                page = client.get(URL + query)
            assert page.status_code == 200
            assert "unsafe" not in page["Content-Security-Policy"]
            # A dry run asks about every chat of the filter, and stops after a second.
            assert query or len(queries) <= 20, [each["sql"][:80] for each in queries]

    def test_commands_and_output_are_not_on_it(self, client, acting):
        state = dropped()
        type(state.process).objects.update(command="the-secret", tail="the-secret")
        CompletionEvent.objects.update(title="the-secret", body="the-secret")
        text = client.get(URL + "?reason_code=closed_by_user").content.decode()
        assert state.process.uid in text
        assert "the-secret" not in text

    @pytest.mark.parametrize("told", ["reason_code=x", "reason_code=discarded&since=x&until=y"])
    def test_odd_addresses_choose_nothing(self, client, operator, told):
        dropped()
        page = client.get(f"{URL}?{told}")
        assert page.status_code == 200
        assert page.context["stored"] is None

    @pytest.mark.parametrize("reason", DropReason)
    def test_every_reason_is_explained(self, reason):
        assert drops.WHY[reason]

    def test_what_was_settled_since_is_told(self, client, acting):
        inactive(1)
        up_to_now()
        redelivered()
        page = client.get(URL)
        assert numbers(page) == {"owner_inactive": 0}
        assert b"1 settled since" in page.content
        assert b"Nothing is dropped any more." in page.content


class TestRedeliver:
    def test_a_dry_run_writes_nothing_and_says_what_would_come_of_it(self, client, acting):
        inactive(2)
        before = History.objects.count()
        page = client.get(URL + "?reason_code=owner_inactive")
        assert (page.context["dry"].good, page.context["dry"].total) == (2, 2)
        assert page.context["dry"].told == [("delivered in a turn", 2)]
        assert History.objects.count() == before
        assert CompletionEvent.objects.filter(status="dropped").count() == 2

    def test_what_would_be_dropped_again_is_counted_as_such(self, client, acting):
        dropped("closed_by_user")
        response = client.get(URL + "?reason_code=closed_by_user")
        dry, text = response.context["dry"], response.content.decode()
        assert (dry.good, dry.told) == (0, [("dropped: closed_by_user", 1)])
        assert "Redeliver 1" not in text  # nothing would come of it
        assert "deliver them as quiet rows" in text
        assert "status__exact=dropped&amp;reason__exact=closed_by_user" in text

    def test_all_of_the_filter_and_nothing_else(self, client, acting):
        rows = inactive(3)
        other = dropped("closed_by_user").event
        page = client.get(URL + "?reason_code=owner_inactive")
        later = inactive(1)[0]
        done = post(client, page)

        assert (done.context["done"], done.context["progress"].left) == (3, 0)
        text = done.content.decode()
        assert "3 results are on their way again." in text
        assert "What cannot be delivered comes back to this page with its reason." in text
        for row in rows:
            row.refresh_from_db()
            assert row.status == "pending"
        for row in (other, later):
            row.refresh_from_db()
            assert row.status == "dropped"
        told = History.objects.filter(kind="operator", to="redeliver")
        assert told.filter(subject__startswith="completion:").count() == 3
        whole = told.get(subject="dropped:owner_inactive")
        assert (whole.actor, whole.reason) == ("operator", WHY)

    def test_sent_twice_it_is_done_once(self, client, acting):
        inactive(2)
        page = client.get(URL + "?reason_code=owner_inactive")
        post(client, page)
        again = post(client, page)
        assert again.context["done"] == 0
        assert CompletionEvent.objects.filter(attempt=2).count() == 2

    def test_many_are_done_in_steps_that_go_on(self, client, acting, monkeypatch):
        inactive(5)
        monkeypatch.setattr(drops, "AT_ONCE", 2)
        page = client.get(URL + "?reason_code=owner_inactive")
        seen = []
        while True:
            page = post(client, page)
            seen.append((page.context["done"], page.context["progress"].left))
            if not page.context["progress"].left:
                break
        assert seen == [(2, 3), (4, 1), (5, 0)]
        assert History.objects.filter(subject="dropped:owner_inactive").count() == 1

    def test_it_needs_a_reason(self, client, acting):
        inactive(1)
        page = client.get(URL + "?reason_code=owner_inactive")
        refused = post(client, page, reason="no")
        assert refused.status_code == 400
        assert CompletionEvent.objects.get().status == "dropped"

    def test_it_needs_a_permission_of_its_own(self, client, operator):
        inactive(1)
        page = client.get(URL + "?reason_code=owner_inactive")
        assert b"<form" not in page.content
        data = {"reason_code": "owner_inactive", "reason": WHY}
        assert client.post(URL, data).status_code == 403
        assert CompletionEvent.objects.get().status == "dropped"

    def test_looking_needs_one_too(self, client):
        client.force_login(factories.person("staff", is_staff=True))
        assert client.get(URL).status_code == 403


def test_a_drop_is_counted_once_whatever_is_done_with_it(client, acting):
    inactive(1)
    page = client.get(URL + "?reason_code=owner_inactive")
    post(client, page)
    up_to_now()
    assert counted("drops") == {"owner_inactive": 1}
    assert counted("completions") == {"dropped": 1}


def test_lost_processes_are_told_on_the_dashboard(client, operator, alive):
    lost()
    up_to_now()
    assert "1 was lost in this time" in client.get("/admin/").content.decode()
