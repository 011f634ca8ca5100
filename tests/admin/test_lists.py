"""What a list offers, an index answers: a new list, filter, order or search is held to it too."""

from __future__ import annotations

import itertools

import pytest
from django.contrib import admin
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from hermes.dashboard.models import Alert, AlertNotice, CheckResult, Heartbeat, SecondFactor
from hermes.lib import lists
from hermes.lib.admin import ReadOnlyAdmin
from sessions_app.models import Chat, History, Message, Turn
from tests import factories, states

LISTS = [each for each in admin.site._registry.values() if isinstance(each, ReadOnlyAdmin)]
FEW = {(Alert, "level"), (AlertNotice, "what"), (Heartbeat, "kind")}  # of a list that stays short
SMALL = {CheckResult, Heartbeat, SecondFactor}  # one row a process, a check, a person


@pytest.fixture
def operator(client):
    return factories.operator(client)


def heads(model: type[models.Model]) -> set[str]:
    """The columns with which an index of all rows, or of those that have a value, begins."""
    found = {field.name for field in model._meta.fields if field.unique or field.db_index}
    for index in model._meta.indexes:
        if index.fields:
            found.add(index.fields[0])
        else:
            name = index.expressions[0]
            found.add(getattr(name, "name", None) or name.expression.name)
    for told in model._meta.constraints:
        if isinstance(told, models.UniqueConstraint) and told.condition is None:
            found.add(told.fields[0])
    return found


@pytest.mark.parametrize("shown", LISTS, ids=str)
class TestEveryList:
    def test_its_orders_have_an_index(self, shown):
        if shown.model in SMALL:
            return
        assert shown.sortable_by is not None
        assert set(shown.sortable_by) - heads(shown.model) == set()
        assert shown.ordering[0].lstrip("-") in heads(shown.model)

    def test_its_searches_are_for_whole_values_of_indexed_columns(self, shown):
        for lookup in shown.search_fields:
            name, _, rest = lookup.partition("__")
            assert name in heads(shown.model)
            column, _, how = rest.rpartition("__")
            if not column:
                assert rest == "exact"
                continue
            # The column of another table; ``startswith`` goes by the index of names.
            other = shown.model._meta.get_field(name).related_model
            assert how == "exact" or (column, how) == ("username", "startswith"), lookup
            assert set(column.split("__")[:1]) <= heads(other) | {"owner"}

    def test_no_filter_reads_the_table_for_its_values(self, shown):
        for told in shown.list_filter:
            name, kind = told if isinstance(told, tuple) else (told, None)
            if not isinstance(name, str):
                continue  # a filter of its own
            field = shown.model._meta.get_field(name)
            if isinstance(field, models.CharField) and not field.choices:
                assert kind is lists.ValuesFilter or (shown.model, name) in FEW
            if kind is lists.ValuesFilter:
                assert name in heads(shown.model) or shown.model in SMALL


@pytest.mark.django_db
class TestLists:
    def test_values_are_found_in_order_without_the_empty_one(self):
        for kind in ("b", "a", "b", "", "c"):
            History.objects.create(subject="s", kind=kind)
        assert lists.values_of(History, "kind") == ["a", "b", "c"]

    def test_there_are_values_of_an_empty_table(self):
        assert lists.values_of(Alert, "rule") == []

    def test_an_order_that_is_not_offered_is_not_taken(self, client, operator):
        states.fresh()
        states.fresh()
        url, keys = "/admin/sessions_app/turn/", []
        shown = client.get(url).context["cl"]
        for column in ("created_at", "id"):  # the oldest first
            page = client.get(f"{url}?o={shown.list_display.index(column)}")
            keys.append([row.pk for row in page.context["cl"].result_list])
        assert keys == [sorted(keys[0], reverse=True), sorted(keys[0])]

    def test_only_so_many_rows_have_pages_and_the_list_says_so(self, client, operator, monkeypatch):
        chat = factories.chat()
        for n in range(7):
            History.objects.create(subject=f"chat:{chat.pk}", kind=f"k{n}")
        monkeypatch.setattr(lists, "COUNTED", 4)
        monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 2)
        page = client.get("/admin/sessions_app/history/")
        assert page.context["cl"].paginator.num_pages == 2
        assert b"have pages. For the others filter" in page.content
        assert client.get("/admin/sessions_app/history/?p=3").status_code == 302

    def test_a_search_finds_by_key_and_by_number(self, client, operator):
        state, _other = states.fresh(), states.fresh()
        session = state.chat.sessions.get()
        turn = Turn.objects.get(chat=state.chat)

        def found(model: str, term: str) -> set[int]:
            url = f"/admin/sessions_app/{model}/?q={term}"
            return {row.pk for row in client.get(url).context["cl"].result_list}

        messages = set(Message.objects.filter(session=session).values_list("pk", flat=True))
        assert found("message", session.key) == messages
        assert found("turn", session.key) == found("turn", str(turn.pk)) == {turn.pk}
        assert found("session", session.key) == {session.pk}
        chat = {Chat.objects.get(pk=state.chat.pk).pk}
        for term in (state.chat.key, str(state.chat.uid), state.chat.owner.username):
            assert chat <= found("chat", term)
        for nothing in ("no such key", "9" * 30, "-1", "%"):
            assert found("turn", nothing) == found("chat", nothing) == set()

    def test_a_search_and_all_filters_are_few_queries(self, client, operator):
        state = states.fresh()
        key = state.chat.sessions.get().key
        told = itertools.product(("turn", "message", "history"), ("", f"?q={key}"))
        for model, query in told:
            with CaptureQueriesContext(connection) as queries:
                client.get(f"/admin/sessions_app/{model}/{query}")
            assert len(queries) <= 12


@pytest.mark.django_db
class TestWhatAListIsAsked:
    @pytest.mark.parametrize(
        "asked",
        [
            "sessions_app/message/?text__contains=a",
            "sessions_app/chat/?title__startswith=a",
            "sessions_app/turn/?text_hash=a",
            "processes_app/processrecord/?command__contains=a",
            "sessions_app/modelendpoint/?sealed_key__startswith=a",
            "dashboard/secondfactor/?sealed_secret__startswith=a",
            "auth/user/?password__startswith=a",
            "sessions_app/history/?kind__regex=((",
            "sessions_app/session/?created_at__year=99999999999",
        ],
    )
    def test_a_column_that_no_filter_names_is_not_asked_about(self, client, operator, asked):
        page = client.get(f"/admin/{asked}", follow=True)
        assert page.redirect_chain[-1][0].endswith("?e=1")
        assert b"no such page, filter" in page.content

    @pytest.mark.parametrize("shown", admin.site._registry.values(), ids=str)
    def test_every_filter_may_ask_what_it_offers(self, client, operator, shown):
        label = f"{shown.opts.app_label}/{shown.opts.model_name}"
        page = client.get(f"/admin/{label}/")
        assert page.status_code == 200
        for spec in page.context["cl"].filter_specs:
            for choice in spec.choices(page.context["cl"]):
                assert client.get(f"/admin/{label}/{choice['query_string']}").status_code == 200

    @pytest.mark.parametrize(
        "asked",
        [
            "sessions_app/history/?kind=%00",
            "sessions_app/turn/?status__exact=%00",
            "processes_app/completionevent/?quiet=%00",
            "sessions_app/modelendpoint/?kind__exact=%00",
        ],
    )
    def test_a_value_that_no_column_has_is_said_to_be_none(self, client, operator, asked):
        page = client.get(f"/admin/{asked}", follow=True)
        assert page.redirect_chain[-1][0].endswith("?e=1")
        assert b"no such page, filter" in page.content

    @pytest.mark.parametrize("page", ["change", "history", "delete"])
    def test_a_key_that_no_row_can_have_is_not_found(self, client, operator, page):
        url = f"/admin/dashboard/heartbeat/%00/{page}/"
        assert client.get(url).status_code in {302, 403, 404}

    @pytest.mark.parametrize("key", ["x", "\0"])
    def test_chosen_rows_that_cannot_be_there_are_refused(self, client, operator, key):
        data = {"action": "trigger", "_selected_action": [key]}
        page = client.post("/admin/sessions_app/session/", data, follow=True)
        assert b"no such rows" in page.content
