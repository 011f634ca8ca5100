"""What the socket of the dashboard reads: who may look, and parts that many can share."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hermes.dashboard import roles, watching
from hermes.dashboard.models import SecondFactor
from hermes.dashboard.watching import ACTS, View
from hermes.lib.db import DbNow
from tests import factories

from .conftest import failed, small_model, up_to_now

pytestmark = pytest.mark.django_db
ALL = View("24h", "utc", may=frozenset(ACTS))


def of_a_role(name: str):
    person = factories.person(is_staff=True)
    person.groups.add(Group.objects.get(name=name))
    return person


class TestWhoMayLook:
    def test_it_is_who_may_see_the_page_and_each_with_what_they_may_do(
        self, django_assert_num_queries
    ):
        roles.grant(apps)
        chief = factories.person(is_staff=True, is_superuser=True)
        operator, auditor, support = map(of_a_role, ("Operator", "Auditor", "Support"))
        nobody = factories.person(is_superuser=True)  # may everything, and is no staff
        gone = factories.person(is_staff=True, is_superuser=True, is_active=False)
        people = {each.pk for each in (chief, operator, auditor, support, nobody, gone)}
        with django_assert_num_queries(1):
            may = watching.permitted(people)
        assert may == {
            chief.pk: frozenset(ACTS),
            operator.pk: frozenset(ACTS),
            auditor.pk: frozenset(),
        }

    def test_a_permission_of_ones_own_counts_like_that_of_a_group(self):
        person = factories.person(is_staff=True)
        assert watching.permitted({person.pk}) == {}
        person.user_permissions.add(Permission.objects.get(codename="view_desk"))
        assert watching.permitted({person.pk}) == {person.pk: frozenset()}

    def test_where_a_second_factor_is_required_it_is_needed_here_as_well(self, settings):
        chief = factories.person(is_staff=True, is_superuser=True)
        settings.HERMES_SECOND_FACTOR_REQUIRED = True
        assert watching.permitted({chief.pk}) == {}
        row = SecondFactor.objects.create(user=chief, sealed_secret="-")
        assert watching.permitted({chief.pk}) == {}
        SecondFactor.objects.filter(pk=row.pk).update(confirmed_at=DbNow())
        assert chief.pk in watching.permitted({chief.pk})


@pytest.mark.usefixtures("alive")
class TestParts:
    def test_they_are_those_of_the_page_but_for_the_token(self, client):
        small_model()
        failed(streak=2)
        up_to_now()
        client.force_login(factories.person(is_staff=True, is_superuser=True))
        page = client.get("/admin/desk/live/").content.decode()
        parts = watching.pictures([ALL])[ALL]
        whole = "".join(part.html for part in parts.values())
        names = [re.findall(r'data-part="(\w+)"', each) for each in (whole, page)]
        assert names[0] == names[1]
        assert 'name="csrfmiddlewaretoken"' in parts["streaks"].html
        theirs = re.sub(r'(name="csrfmiddlewaretoken" value=)"[^"]+"', r'\1""', page)
        for name in ("verdict", "streaks", "cooldowns", "completions"):
            ours = parts[name].html.replace(watching.TOKEN, "").strip()
            assert _still(ours) in _still(theirs), name

    def test_no_token_of_anybody_is_in_them(self):
        small_model()
        failed(streak=2)
        up_to_now()
        whole = "".join(part.html for part in watching.pictures([ALL])[ALL].values())
        tokens = re.findall(r'name="csrfmiddlewaretoken" value="([^"]*)"', whole)
        assert set(tokens) == {watching.TOKEN}

    def test_who_may_not_act_gets_no_forms(self):
        small_model()
        failed(streak=2)
        up_to_now()
        looks = View("24h", "utc")
        made = watching.pictures([ALL, looks])
        assert "<form" in made[ALL]["streaks"].html
        assert "<form" not in made[looks]["streaks"].html

    def test_a_range_and_a_zone_are_looked_at_once_whoever_looks(self):
        small_model()
        failed(streak=2)
        up_to_now()

        def queries(*views: View) -> int:
            with CaptureQueriesContext(connection) as seen:
                watching.pictures(views)
            return len(seen)

        one = queries(ALL)
        berlin = View("24h", "local", ZoneInfo("Europe/Berlin"))
        assert one <= 20
        assert queries(ALL, View("24h", "utc")) == one
        assert queries(ALL, berlin) == 2 * one

    def test_times_are_those_of_the_zone(self):
        kabul = View("24h", "local", ZoneInfo("Asia/Kabul"))
        made = watching.pictures([ALL, kabul])
        times = [re.search(r">(\d\d):(\d\d):", made[view]["now"].html) for view in made]
        minutes = {int(each[2]) % 60 for each in times}
        assert len(minutes) == 2  # half an hour beside ours

    def test_what_did_not_change_has_the_same_mark(self):
        first, second = (watching.pictures([ALL])[ALL] for _ in range(2))
        assert first["streaks"].mark == second["streaks"].mark
        assert len({part.mark for part in first.values()}) == len(first)


def _still(html: str) -> str:
    """Without what moves from one moment to the next."""
    return re.sub(r"[\d.]+", "0", html)
