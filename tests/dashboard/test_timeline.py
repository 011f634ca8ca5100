"""The timeline of a session: in order, complete, silent about what was said."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import Permission

from compression_app import fence, intake
from compression_app.models import CompactionAttempt
from hermes.dashboard import timeline
from hermes.lib.db import db_now
from processes_app import intake as processes
from processes_app.models import Approval
from sessions_app.models import History, Session
from tests import factories, states

from .conftest import attempt, dropped, failed, small_model

pytestmark = pytest.mark.django_db
SECRET = "the secret that somebody said"


def lines(client, session_id: int, query: str = "?order=oldest") -> list[str]:
    response = client.get(f"/admin/desk/sessions/{session_id}/{query}")
    assert response.status_code == 200
    assert SECRET not in response.content.decode()
    return re.findall(r"<h4>(.*?)</h4>", response.content.decode())


def test_turns_holds_attempts_cooldowns_and_operators_stand_in_order(client, operator):
    small_model()
    made = attempt()
    fence.hold(made.pk, 7, made.session_id)
    fence.release(made.pk, made.session_id)
    fence.end(made.pk, made.session_id, "failed", "stalled")
    intake.clear_for_operator(session_id=made.session_id, actor="rosa", reason="the key is new")
    told = lines(client, made.session_id)

    assert sum("Turn" in line and "completed" in line for line in told) == 3
    order = [
        f"Attempt {made.pk} opened: manual",
        f"Turn 7 held for attempt {made.pk}",
        f"Attempt {made.pk} failed",
        next(line for line in told if line.startswith("Cooldown")),
        "cooldown cleared",
    ]
    places = [told.index(line) for line in order]
    assert places == sorted(places)
    assert lines(client, made.session_id, "") == told[::-1]


def test_processes_approvals_and_verdicts_stand_in_order(client, operator):
    state = dropped()
    session = state.session
    approved(state)
    processes.redeliver(event_id=state.event.pk, actor="rosa", why="the person asked for it")
    told = lines(client, session.pk)
    event = state.event.pk
    order = [
        f"Process {state.process.uid}: ",
        f"Completion {event} of {state.process.uid}: due",
        f"Completion {event}: pending → dropped",
        f"Completion {event}: dropped → pending",
    ]
    places = [next(n for n, line in enumerate(told) if line.startswith(each)) for each in order]
    assert places == sorted(places)
    assert any(line.startswith("Approval") and "allowed" in line for line in told)
    bundle = timeline.bundle(session, db_now())
    assert "the person asked for it" not in bundle
    assert "rosa" not in bundle
    assert "closed_by_user" in bundle


def approved(state) -> Approval:
    """An approval of the session, answered once."""
    return Approval.objects.create(
        turn_id_meant=1,
        call_id="c",
        origin_chat=state.chat.key,
        origin_session=state.session.key,
        owner_id_meant=state.chat.owner_id,
        command=SECRET,
        status="allowed",
        answer="once",
        until=db_now(),
        answered_at=db_now(),
    )


def test_a_kind_alone(client, operator):
    small_model()
    made = failed()
    told = lines(client, made.session_id, "?kind=attempt")
    assert told == [f"Attempt {made.pk} failed", f"Attempt {made.pk} opened: manual"]


@pytest.mark.parametrize(
    ("detail", "told"),
    [("authentication: HTTP 401: " + SECRET, "provider: authentication"), (SECRET, "provider")],
)
def test_a_fault_of_the_provider_is_named_by_its_kind_alone(client, operator, detail, told):
    small_model()
    made = attempt()
    fence.end(made.pk, made.session_id, "failed", "provider")
    CompactionAttempt.objects.filter(pk=made.pk).update(detail=detail)
    page = client.get(f"/admin/desk/sessions/{made.session_id}/").content.decode()
    assert f"<span>{told}</span>" in page
    assert SECRET not in page


def test_the_texts_of_people_are_not_in_it(client, operator):
    state = states.fresh()
    turn = factories.say(state.chat, SECRET)
    type(state.chat).objects.update(title=SECRET, draft=SECRET)
    assert lines(client, turn.session_id)


def test_it_needs_a_permission_of_its_own(client):
    state = states.fresh()
    session = Session.objects.get(chat=state.chat)
    staff = factories.person("staff", is_staff=True)
    client.force_login(staff)
    assert client.get(f"/admin/desk/sessions/{session.pk}/").status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_timeline"))
    assert client.get(f"/admin/desk/sessions/{session.pk}/").status_code == 200
    assert client.get("/admin/desk/sessions/999999/").status_code == 404


class TestExport:
    def test_it_needs_a_permission_of_its_own(self, client, operator):
        session = Session.objects.get(chat=states.fresh().chat)
        assert client.post(f"/admin/desk/sessions/{session.pk}/export/").status_code == 403
        assert client.get(f"/admin/desk/sessions/{session.pk}/export/").status_code == 405
        assert not History.objects.filter(to="export").exists()

    def test_it_holds_no_names_no_reasons_and_no_secrets_and_is_recorded(self, client, operator):
        operator.user_permissions.add(Permission.objects.get(codename="export_timeline"))
        small_model()
        made = attempt()
        fence.end(made.pk, made.session_id, "failed", "stalled")
        intake.clear_for_operator(
            session_id=made.session_id, actor="rosa", reason=f"because of {SECRET}"
        )
        response = client.post(f"/admin/desk/sessions/{made.session_id}/export/")
        told = json.loads(response.content)

        assert response["Content-Disposition"].startswith("attachment")
        assert told["session"]["session"] == made.session_id
        kinds = {each["kind"] for each in told["moments"]}
        assert {"turn", "attempt", "cooldown", "operator"} <= kinds
        for word in (SECRET, "rosa", made.session.chat.owner.username):
            assert word not in response.content.decode()
        assert History.objects.get(to="export").actor == "operator"
