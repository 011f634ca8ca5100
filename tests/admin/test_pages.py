"""The operators' pages: fast, read-only, and silent about what people said."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import intake
from sessions_app.models import History, Message, ModelEndpoint
from tests import factories, states

pytestmark = pytest.mark.django_db

LISTS = [
    "sessions_app/chat",
    "sessions_app/session",
    "sessions_app/turn",
    "sessions_app/message",
    "sessions_app/rewind",
    "sessions_app/summary",
    "sessions_app/history",
    "sessions_app/modelendpoint",
    "auth/user",
    "auth/group",
]


@pytest.fixture
def operator(client):
    """Staff who may look at everything but transcripts."""
    return factories.operator(client)


@pytest.mark.parametrize("page", LISTS)
def test_lists_open_with_few_queries(client, operator, page):
    states.fresh()
    with CaptureQueriesContext(connection) as queries:
        response = client.get(f"/admin/{page}/")

    assert response.status_code == 200
    assert len(queries) <= 12


def test_what_people_said_is_hidden_until_it_is_permitted(client, operator):
    state = states.fresh()
    message = Message.objects.filter(session__chat=state.chat).first()
    url = f"/admin/sessions_app/message/{message.pk}/change/"
    assert b"hello" not in client.get(url).content
    assert not History.objects.filter(kind="read").exists()
    operator.user_permissions.add(Permission.objects.get(codename="read_transcript"))

    assert b"hello" in client.get(url).content
    assert History.objects.get(kind="read").actor == "operator"


@pytest.mark.parametrize("action", ["add", "1/delete"])
def test_rows_are_not_written_by_hand(client, operator, action):
    operator.is_superuser = True
    operator.save()
    states.fresh()
    assert client.get(f"/admin/sessions_app/turn/{action}/").status_code in {302, 403}


class TestEndpoints:
    @pytest.fixture(autouse=True)
    def _superuser(self, operator):
        operator.is_superuser = True
        operator.save()

    def post(self, client, endpoint=None, **fields):
        data = {
            "name": "Local",
            "kind": "openai",
            "role": "chat",
            "base_url": "http://127.0.0.1:9999/v1",
            "model": "fake-chat",
            "window": "8000",
            "priority": "1",
            "is_enabled": "on",
            "api_key": "",
            **fields,
        }
        place = "add" if endpoint is None else f"{endpoint.pk}/change"
        return client.post(f"/admin/sessions_app/modelendpoint/{place}/", data, follow=True)

    def test_a_key_is_sealed_and_never_shown(self, client):
        self.post(client, api_key="sk-test-ABC123xyz")
        endpoint = ModelEndpoint.objects.get(name="Local")
        page = client.get(f"/admin/sessions_app/modelendpoint/{endpoint.pk}/change/").content

        assert "sk-test" not in endpoint.sealed_key
        assert b"sk-test" not in page
        assert "…3xyz".encode() in page

    def test_saving_something_else_keeps_the_key(self, client):
        self.post(client, api_key="sk-test-ABC123xyz")
        endpoint = ModelEndpoint.objects.get(name="Local")
        before = endpoint.sealed_key
        self.post(client, endpoint, window="9000")
        endpoint.refresh_from_db()

        assert (endpoint.window, endpoint.sealed_key) == (9000, before)

    def test_another_address_does_not_get_the_key(self, client):
        self.post(client, api_key="sk-test-ABC123xyz")
        endpoint = ModelEndpoint.objects.get(name="Local")
        page = self.post(client, endpoint, base_url="http://127.0.0.1:9998/v1")
        endpoint.refresh_from_db()

        assert (endpoint.sealed_key, endpoint.key_hint) == ("", "")
        assert b"its key was removed" in page.content

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("base_url", "ftp://example.org"),
            ("base_url", "example.org/v1"),
            ("base_url", "http://169.254.169.254/latest"),
            ("base_url", ""),
            ("model", ""),
            ("window", "0"),
            ("window", "60%"),
            ("api_key", "with space"),
            ("api_key", "k\u00e9y"),
        ],
    )
    def test_what_cannot_be_used_is_refused_in_its_place(self, client, field, value):
        page = self.post(client, **{field: value})

        assert page.status_code == 200
        assert not ModelEndpoint.objects.filter(name="Local").exists()
        assert page.context["adminform"].form.errors[field]


def test_seeding_twice_makes_one_of_each(settings):
    settings.MODEL_SEEDS = {
        "chat": {"base_url": "http://127.0.0.1:1/v1", "api_key": "k", "name": "m", "window": 8000},
        "summary": {"base_url": "", "api_key": "", "name": "", "window": 8000},
    }
    assert intake.seed_endpoints() == intake.seed_endpoints() == ["m"]
    assert ModelEndpoint.objects.count() == 3
    assert ModelEndpoint.objects.usable("chat").first().model == "m"
