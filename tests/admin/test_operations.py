"""What operators do about compaction: with a reason, a permission, and a line in the history."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compression_app import fence, intake
from compression_app.domain import AttemptStatus, Reason
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from sessions_app import intake as sessions
from sessions_app import transcript
from sessions_app.models import History, ModelEndpoint, Session, Summary
from sessions_app.transcript import Draft
from tests import factories
from tests.compression.conftest import session_over_mark

pytestmark = pytest.mark.django_db

WHY = "The provider is back, says their page."
ALL = (
    "trigger_compaction",
    "cancel_compaction",
    "clear_cooldown",
    "pause_compaction",
    "undo_summary",
)


@pytest.fixture
def operator(client):
    return factories.operator(client)


@pytest.fixture
def allowed(operator):
    operator.user_permissions.add(*Permission.objects.filter(codename__in=ALL))
    return operator


@pytest.fixture
def state():
    sessions.register_endpoint(
        name="small",
        base_url="http://127.0.0.1:9/v1",
        api_key="k",
        model="m",
        window=8_000,
        role="chat",
    )
    return session_over_mark()


@pytest.fixture
def attempt(state):
    made = intake.request_compaction(session_id=state.turn.session_id, trigger="manual")
    assert isinstance(made, CompactionAttempt)
    return made


def failed(attempt):
    fence.end(attempt.pk, attempt.session_id, AttemptStatus.FAILED, Reason.STALLED)
    return Cooldown.objects.get()


def act(client, page, action, *rows, reason=WHY, **more):
    data = {"action": action, "_selected_action": [row.pk for row in rows], **more}
    if reason is not None:
        data["reason"] = reason
    return client.post(f"/admin/{page}/", data, follow=True)


def recorded(what):
    return History.objects.get(kind="operator", to=what)


@pytest.mark.parametrize(
    "page",
    [
        "compression_app/compactionattempt",
        "compression_app/cooldown",
        "compression_app/compressionstate",
        "sessions_app/session",
        "sessions_app/summary",
        "sessions_app/modelendpoint",
    ],
)
def test_lists_and_pages_open_with_few_queries(client, allowed, attempt, page):
    failed(attempt)
    session = Session.objects.get(pk=attempt.session_id)
    transcript.apply_summary(session, Draft("text", "body", 2), attempt_id=None, before=9, after=1)
    with CaptureQueriesContext(connection) as queries:
        response = client.get(f"/admin/{page}/")
    assert response.status_code == 200
    assert len(queries) <= 12
    row = response.context["cl"].queryset.first()
    assert client.get(f"/admin/{page}/{row.pk}/change/").status_code == 200


@pytest.mark.parametrize(
    "query",
    ["status__exact=failed", "deferred=1", "deferred=0", "reason=stalled"],
)
def test_attempts_are_filtered(client, allowed, attempt, query):
    assert client.get(f"/admin/compression_app/compactionattempt/?{query}").status_code == 200


@pytest.mark.parametrize("query", ["active=1", "active=0"])
def test_cooldowns_are_filtered(client, allowed, attempt, query):
    failed(attempt)
    page = client.get(f"/admin/compression_app/cooldown/?{query}")
    assert page.context["cl"].result_count == (1 if query == "active=1" else 0)


def test_the_page_of_an_attempt_tells_its_moves_and_hides_what_was_said(client, allowed, attempt):
    fence.hold(attempt.pk, 1, attempt.session_id)
    fence.release(attempt.pk, attempt.session_id)
    CompactionAttempt.objects.update(text="the secret of the summary")
    url = f"/admin/compression_app/compactionattempt/{attempt.pk}/change/"
    page = client.get(url).content.decode()
    assert "<b>hold</b> · deferred" in page
    assert "<b>attempt queued</b>" in page
    assert "the secret" not in page
    assert page.count("hidden:") == 1
    allowed.user_permissions.add(Permission.objects.get(codename="read_transcript"))
    page = client.get(url).content.decode()
    assert "the secret" in page
    assert "hidden:" not in page


class TestReason:
    def test_without_one_it_is_asked_for_and_nothing_happens(self, client, allowed, attempt):
        page = act(client, "compression_app/compactionattempt", "cancel", attempt, reason=None)
        assert b"1 row" in page.content
        assert str(attempt).encode() in page.content
        attempt.refresh_from_db()
        assert attempt.status == "queued"

    @pytest.mark.parametrize("reason", ["", "too short", " " * 30])
    def test_a_short_one_is_refused(self, client, allowed, attempt, reason):
        page = act(client, "compression_app/compactionattempt", "cancel", attempt, reason=reason)
        assert b'role="alert"' in page.content
        attempt.refresh_from_db()
        assert attempt.status == "queued"
        assert not History.objects.filter(kind="operator").exists()

    @pytest.mark.parametrize(
        ("page", "action"),
        [
            ("compression_app/compactionattempt", "cancel"),
            ("compression_app/compactionattempt", "trigger"),
            ("compression_app/compressionstate", "pause"),
        ],
    )
    def test_without_the_permission_nothing_happens(self, client, operator, attempt, page, action):
        rows = [attempt] if "attempt" in page else list(CompressionState.objects.all())
        act(client, page, action, *rows)
        attempt.refresh_from_db()
        assert attempt.status == "queued"
        assert not History.objects.filter(kind="operator").exists()
        assert not CompressionState.objects.filter(paused_at__isnull=False).exists()

    def test_what_is_not_permitted_is_shown_and_says_what_it_needs(self, client, operator, attempt):
        page = client.get(f"/admin/compression_app/compactionattempt/{attempt.pk}/change/")
        assert b"disabled" in page.content
        assert b"needs compression_app.cancel_compaction" in page.content


def test_cancel(client, allowed, attempt):
    page = "compression_app/compactionattempt"
    act(client, page, "cancel", attempt, from_row="1")
    attempt.refresh_from_db()
    assert (attempt.status, attempt.reason) == ("cancelled", "cancelled")
    row = recorded("cancel")
    assert (row.actor, row.reason, row.session) == ("operator", WHY, attempt.session_id)
    assert WHY in LogEntry.objects.get().change_message
    again = act(client, page, "cancel", attempt)
    assert b"it has ended already" in again.content
    assert History.objects.filter(kind="operator").count() == 1


def test_clear_and_retry(client, allowed, attempt):
    cooldown = failed(attempt)
    assert b"1 row" in act(client, "compression_app/cooldown", "clear_cooldown", cooldown).content
    cooldown.refresh_from_db()
    assert cooldown.cleared_by == "operator"
    told = History.objects.get(kind="cooldown")
    assert (told.actor, told.reason) == ("operator", WHY)
    again = act(client, "compression_app/cooldown", "clear_cooldown", cooldown)
    assert b"no cooldown is active" in again.content

    act(client, "compression_app/cooldown", "retry_now", cooldown)
    opened = CompactionAttempt.objects.order_by("-pk").first()
    assert (opened.trigger, opened.status, opened.actor) == ("operator", "queued", "operator")
    assert recorded("retry").subject == f"attempt:{opened.pk}"


def test_trigger_on_sessions(client, allowed, state):
    session = Session.objects.get(pk=state.turn.session_id)
    short = factories.chat()
    sessions.new_session(chat_id=short.pk, user_id=short.owner_id, client_id="n")
    nothing = Session.objects.get(chat=short)
    page = act(client, "sessions_app/session", "trigger", session, nothing)
    assert CompactionAttempt.objects.get().session == session
    assert b"too_short" in page.content
    assert recorded("trigger").actor == "operator"


def test_pause_and_resume(client, allowed, state):
    everything, _ = CompressionState.objects.get_or_create(scope="everything")
    act(client, "compression_app/compressionstate", "pause", everything)
    everything.refresh_from_db()
    assert everything.paused_by == "operator"
    refused = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
    assert refused.reason == "paused"
    again = act(client, "compression_app/compressionstate", "pause", everything)
    assert b"it is paused already" in again.content
    act(client, "compression_app/compressionstate", "resume", everything)
    everything.refresh_from_db()
    assert everything.paused_at is None
    assert [recorded(what).reason for what in ("pause", "resume")] == [WHY, WHY]


def test_pause_one_endpoint(client, allowed, state):
    endpoint = ModelEndpoint.objects.get(name="small")
    act(client, "sessions_app/modelendpoint", "pause", endpoint)
    refused = intake.request_compaction(session_id=state.turn.session_id, trigger="soft")
    assert refused.reason == "paused"
    assert CompressionState.objects.get(scope=f"endpoint:{endpoint.pk}").paused_by == "operator"


def test_undo_a_summary(client, allowed, state):
    session = Session.objects.lock(state.turn.session_id)
    made = transcript.apply_summary(
        session, Draft("text", "body", 2), attempt_id=None, before=9, after=1
    )
    transcript.publish(session)
    act(client, "sessions_app/summary", "undo", made)
    assert Session.objects.get(pk=session.pk).summary is None
    assert Summary.objects.get().reverted_at is not None
    assert (recorded("undo").actor, recorded("undo").reason) == ("operator", WHY)
    again = act(client, "sessions_app/summary", "undo", made)
    assert b"not the current summary" in again.content
