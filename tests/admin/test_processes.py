"""What operators see of processes and their news, and what they do about them."""

from __future__ import annotations

import re
import time

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hermes.lib import admin as lib
from hermes.lib import reauth
from processes_app import files, intake, runner, verdicts
from processes_app.domain import DropReason, KillBy
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from sessions_app.models import Chat, History, Session
from tests import factories
from tests.processes import facts

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "They wrote to us and asked for it."
PROCESS, COMPLETION, APPROVAL = (
    f"processes_app/{name}" for name in ("processrecord", "completionevent", "approval")
)
ALL = (
    "kill_process",
    "redeliver_completion",
    "show_completion",
    "discard_completion",
    "revoke_approval",
)


@pytest.fixture
def operator(client):
    return factories.operator(client)


@pytest.fixture
def places(tmp_path, settings):
    settings.VAR = tmp_path
    files.root().mkdir()


@pytest.fixture
def allowed(operator):
    operator.user_permissions.add(*Permission.objects.filter(codename__in=ALL))
    return operator


def act(client, page, action, *rows, reason=WHY, query="", **more):
    data = {"action": action, "_selected_action": [row.pk for row in rows], **more}
    if reason is not None:
        data["reason"] = reason
    return client.post(f"/admin/{page}/{query}", data, follow=True)


def foreseen(response) -> dict[str, int]:
    return dict(response.context["foreseen"])


def recorded(what: str) -> History:
    return History.objects.get(kind="operator", to=what)


def closed() -> facts.Background:
    """A process whose session a person has closed; its news was dropped for it."""
    state = facts.running()
    facts.reset(state)
    facts.end(state.process, body="the-secret-output\n")
    runner.deliver(state.chat.key)
    assert state.event.status == "dropped"
    return state


def approval(**columns) -> Approval:
    state = facts.talked()
    row = {
        "turn_id_meant": 1,
        "call_id": "c",
        "origin_chat": state.chat.key,
        "origin_session": "s",
        "owner_id_meant": state.chat.owner_id,
        "command": "rm the-secret-file",
        "status": "allowed",
        "answer": "always",
        "until": "2030-01-01T00:00Z",
        "answered_at": "2029-01-01T00:00Z",
        **columns,
    }
    return Approval.objects.create(**row)


@pytest.mark.parametrize("page", [PROCESS, COMPLETION, APPROVAL])
def test_lists_and_pages_open_with_few_queries(client, allowed, page):
    for _ in range(5):
        closed()
    approval()
    with CaptureQueriesContext(connection) as queries:
        response = client.get(f"/admin/{page}/")
    assert response.status_code == 200
    assert len(queries) <= 12
    assert b"the-secret" not in response.content
    row = response.context["cl"].queryset.first()
    assert client.get(f"/admin/{page}/{row.pk}/change/").status_code == 200


@pytest.mark.parametrize(
    ("page", "query", "count"),
    [
        (PROCESS, "now=active", 1),
        (PROCESS, "now=survives", 0),
        (PROCESS, "status__exact=ended", 1),
        (PROCESS, "reason__exact=exited", 1),
        (COMPLETION, "status__exact=dropped&reason__exact=closed_by_user", 1),
        (COMPLETION, "reason__exact=unknown_chat", 0),
        (COMPLETION, "due=now", 0),
        (COMPLETION, "due=held", 0),
        (COMPLETION, "quiet=killed", 0),
        (APPROVAL, "status__exact=allowed&answer__exact=always", 1),
    ],
)
def test_lists_are_filtered(client, operator, page, query, count):
    closed()
    facts.running()
    approval()
    assert client.get(f"/admin/{page}/?{query}").context["cl"].result_count == count


def test_rows_are_found_by_their_names(client, operator):
    state, other = closed(), closed()
    for page, row in ((PROCESS, state.process), (COMPLETION, state.event)):
        for term in (state.process.uid, state.chat.key, state.process.origin_session):
            found = client.get(f"/admin/{page}/?q={term}").context["cl"].queryset
            assert list(found) == [row], (page, term)
    found = client.get(f"/admin/{COMPLETION}/?q={other.event.pk}").context["cl"].queryset
    assert list(found) == [other.event]
    assert client.get(f"/admin/{COMPLETION}/?q=nothing").context["cl"].result_count == 0


@pytest.mark.parametrize("action", ["add", "1/delete"])
@pytest.mark.parametrize("page", [PROCESS, COMPLETION, APPROVAL])
def test_rows_are_not_written_by_hand(client, allowed, page, action):
    allowed.is_superuser = True
    allowed.save()
    assert client.get(f"/admin/{page}/{action}/").status_code in {302, 403}


class TestReading:
    def test_commands_and_output_are_hidden_until_it_is_permitted(self, client, operator, settings):
        state = closed()
        ProcessRecord.objects.filter(pk=state.process.pk).update(command="cat the-secret-file")
        asked = approval()
        pages = [
            f"/admin/{PROCESS}/{state.process.pk}/change/",
            f"/admin/{COMPLETION}/{state.event.pk}/change/",
            f"/admin/{APPROVAL}/{asked.pk}/change/",
        ]
        for page in pages:
            content = client.get(page).content
            assert b"the-secret" not in content
            assert b"hidden: reading commands" in content
        assert not History.objects.filter(kind="read").exists()
        operator.user_permissions.add(Permission.objects.get(codename="read_log"))
        for page in pages:
            assert b"the-secret" in client.get(page).content
        read = History.objects.filter(kind="read")
        assert {row.actor for row in read} == {"operator"}
        assert f"processrecord:{state.process.pk}" in {row.subject for row in read}
        assert read.count() == 3

    def test_the_log_is_that_of_the_files_and_cannot_be_markup(self, client, operator, places):
        operator.user_permissions.add(Permission.objects.get(codename="read_log"))
        state = closed()
        folder = files.Folder.of(state.process.uid)
        folder.path.mkdir()
        (folder.path / "log").write_text("<script>x</script>\nsk-abcdefghijklmnopqrstuv\n")
        page = client.get(f"/admin/{PROCESS}/{state.process.pk}/change/").content.decode()
        log = re.search(r"<pre class=.whitespace-pre-wrap[^>]*>(.*?)</pre>", page, re.S)[1]
        assert "&lt;script&gt;" in log
        assert "[redacted]" in log


class TestKill:
    def test_one(self, client, allowed):
        state = facts.running()
        assert foreseen(act(client, PROCESS, "kill", state.process, reason=None)) == {"ended": 1}
        assert ProcessRecord.objects.get().kill_asked_at is None
        act(client, PROCESS, "kill", state.process, from_row="1")
        row = ProcessRecord.objects.get()
        assert (row.kill_by, row.kill_actor) == (KillBy.OPERATOR, "operator")
        told = recorded("kill")
        assert (told.actor, told.reason) == ("operator", WHY)
        assert told.subject == f"process:{row.pk}"
        again = act(client, PROCESS, "kill", state.process)
        assert b"its end was asked for already" in again.content
        assert History.objects.filter(kind="operator").count() == 1

    def test_it_asks_for_the_password_that_was_not_shown_lately(self, client, allowed):
        state = facts.running()
        session = client.session
        session[reauth.KEY] = int(time.time()) - reauth.FRESH - 1
        session.save()
        data = {"action": "kill", "_selected_action": [state.process.pk], "reason": WHY}
        asked = client.post(f"/admin/{PROCESS}/", data)
        assert asked.url.startswith("/admin/desk/confirm/?next=")
        assert ProcessRecord.objects.get().kill_asked_at is None

    def test_many_are_counted_by_what_would_come_of_it(self, client, allowed):
        rows = [facts.running().process for _ in range(3)]
        intake.ask_kill(rows[0].pk, by=KillBy.AGENT)
        ended = facts.ended().process
        page = act(client, PROCESS, "kill", *rows, ended, reason=None)
        assert foreseen(page) == {
            "ended": 2,
            "unchanged: its end was asked for already": 1,
            "unchanged: it has ended": 1,
        }
        act(client, PROCESS, "kill", *rows, ended)
        assert ProcessRecord.objects.filter(kill_by=KillBy.OPERATOR).count() == 2


class TestRedeliver:
    def test_the_same_table_judges_again(self, client, allowed):
        state = closed()
        page = act(client, COMPLETION, "redeliver", state.event, reason=None)
        assert foreseen(page) == {"dropped: closed_by_user": 1}
        assert state.event.status == "dropped"
        act(client, COMPLETION, "redeliver", state.event)
        assert (state.event.status, state.event.attempt) == ("pending", 2)
        assert (recorded("redeliver").actor, recorded("redeliver").reason) == ("operator", WHY)
        runner.deliver(state.chat.key)
        assert (state.event.status, state.event.reason) == ("dropped", "closed_by_user")
        facts.run_turns(state)
        assert facts.told(state.chat) == []

    def test_what_was_put_right_is_delivered_once(self, client, allowed):
        state = facts.running()
        owner = state.chat.owner
        owner.is_active = False
        owner.save()
        facts.end(state.process)
        runner.deliver(state.chat.key)
        assert state.event.reason == DropReason.OWNER_INACTIVE
        owner.is_active = True
        owner.save()
        assert foreseen(act(client, COMPLETION, "redeliver", state.event, reason=None)) == {
            "delivered in a turn": 1
        }
        for _ in range(2):
            act(client, COMPLETION, "redeliver", state.event)
            facts.run_turns(state)
        assert state.event.status == "delivered"
        assert len(facts.told(state.chat)) == 1
        assert facts.violations(state) == []

    def test_a_dry_run_counts_by_verdict_and_writes_nothing(self, client, allowed):
        dropped = [closed() for _ in range(2)]
        gone = closed()
        facts.purge(gone)
        delivered = facts.ended()
        facts.run_turns(delivered)
        events = [each.event for each in (*dropped, gone, delivered)]
        before = History.objects.count()
        page = act(client, COMPLETION, "redeliver", *events, reason=None)
        assert foreseen(page) == {
            "dropped: closed_by_user": 2,
            "dropped: session_deleted": 1,
            "unchanged: it is neither dropped nor quiet": 1,
        }
        assert History.objects.count() == before

    def test_all_of_a_filter(self, client, allowed):
        for _ in range(3):
            closed()
        facts.ended()
        query = "?status__exact=dropped&reason__exact=closed_by_user"
        first = CompletionEvent.objects.filter(status="dropped").first()
        act(client, COMPLETION, "redeliver", first, query=query, select_across="1")
        assert CompletionEvent.objects.filter(status="pending", attempt=2).count() == 3
        assert CompletionEvent.objects.filter(status="pending", attempt=1).count() == 1


class TestShow:
    def test_it_stands_in_its_session_without_a_turn(self, client, allowed):
        state = facts.ended()
        assert foreseen(act(client, COMPLETION, "show", state.event, reason=None)) == {
            "shown quietly": 1
        }
        act(client, COMPLETION, "show", state.event)
        event = state.event
        assert (event.status, event.quiet_because) == ("quiet", "operator")
        assert event.delivered_to == state.session.key
        assert recorded("show").reason == WHY
        facts.run_turns(state)
        assert facts.reporting(state.chat) == []

    def test_without_a_stamp_it_is_the_chats(self, client, allowed):
        state = facts.ended(origin_session=None)
        act(client, COMPLETION, "show", state.event)
        current = Session.objects.get(chat=state.chat, ended_at=None)
        assert state.event.delivered_to == current.key

    def test_where_there_is_no_session_nothing_is_changed(self, client, allowed):
        state = closed()
        facts.purge(state)
        assert foreseen(act(client, COMPLETION, "show", state.event, reason=None)) == {
            "unchanged: its session is gone": 1
        }
        page = act(client, COMPLETION, "show", state.event)
        assert b"its session is gone" in page.content
        assert state.event.status == "dropped"


def test_discard(client, allowed):
    state = facts.ended()
    assert foreseen(act(client, COMPLETION, "discard", state.event, reason=None)) == {
        "discarded": 1
    }
    act(client, COMPLETION, "discard", state.event)
    assert (state.event.status, state.event.reason) == ("dropped", "discarded")
    assert recorded("discard").actor == "operator"
    again = act(client, COMPLETION, "discard", state.event)
    assert b"it is neither waiting nor quiet" in again.content


def test_revoke_an_always(client, allowed):
    always = approval()
    act(client, APPROVAL, "revoke", always)
    always.refresh_from_db()
    assert always.revoked_at is not None
    assert recorded("revoke").reason == WHY
    assert b"was taken back already" in act(client, APPROVAL, "revoke", always).content


@pytest.mark.parametrize(
    ("page", "action"),
    [
        (PROCESS, "kill"),
        (COMPLETION, "redeliver"),
        (COMPLETION, "show"),
        (COMPLETION, "discard"),
        (APPROVAL, "revoke"),
    ],
)
class TestGuards:
    def row(self, page, action):
        if page == PROCESS:
            return facts.running().process
        if page == APPROVAL:
            return approval()
        return closed().event if action == "redeliver" else facts.ended().event

    def test_each_needs_its_own_permission(self, client, allowed, page, action):
        row = self.row(page, action)
        codename = next(name for name in ALL if name.startswith(action))
        allowed.user_permissions.remove(Permission.objects.get(codename=codename))
        act(client, page, action, row)
        assert not History.objects.filter(kind="operator").exists()
        shown = client.get(f"/admin/{page}/{row.pk}/change/").content.decode()
        assert f"needs processes_app.{codename}" in shown

    @pytest.mark.parametrize("reason", [None, "", "too short"])
    def test_each_needs_a_reason(self, client, allowed, page, action, reason):
        act(client, page, action, self.row(page, action), reason=reason)
        assert not History.objects.filter(kind="operator").exists()


def test_the_dry_run_locks_nothing():
    state = closed()
    with CaptureQueriesContext(connection) as queries:
        verdicts.foresee([state.event.pk])
    assert queries.captured_queries
    assert not [each for each in queries if "FOR NO KEY UPDATE" in each["sql"]]


def test_a_dry_run_of_many_of_one_chat_asks_no_more():
    state = closed()
    process = state.process
    old = CompletionEvent.objects.get(process=process)
    with CaptureQueriesContext(connection) as one:
        verdicts.foresee([old.pk])
    events = []
    for _ in range(50):
        made = facts.add_process(state, origin_session=process.origin_session)
        facts.end(made)
        events.append(CompletionEvent.objects.get(process=made).pk)
    runner.deliver(state.chat.key)
    with CaptureQueriesContext(connection) as many:
        assert len(verdicts.foresee(events)) == 50
    assert len(many) == len(one)
    assert Chat.objects.count() == 1


class TestManyRows:
    """An operation on many rows takes steps, each a request of its own."""

    QUERY = "?status__exact=dropped&reason__exact=closed_by_user"

    def go_on(self, client, page, **changed):
        """Send the form that the page has, as the browser does."""
        text = page.content.decode()
        form = re.search(r"<form method=.post. data-onward.*?</form>", text, re.S)[0]
        data: dict[str, list[str]] = {}
        for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form):
            data.setdefault(name, []).append(value)
        return client.post(f"/admin/{COMPLETION}/{self.QUERY}", {**data, **changed})

    def begin(self, client, monkeypatch, rows):
        """The page after the first step of a redelivery of all rows of the filter."""
        monkeypatch.setattr(lib, "SECONDS", -1.0)  # a row a step
        asked = act(
            client,
            COMPLETION,
            "redeliver",
            rows[0],
            reason=None,
            query=self.QUERY,
            select_across="1",
        )
        last = re.search(r'name="last" value="(\d+)"', asked.content.decode())[1]
        assert last == str(rows[-1].pk)
        return client.post(
            f"/admin/{COMPLETION}/{self.QUERY}",
            {
                "action": "redeliver",
                "_selected_action": [rows[0].pk],
                "select_across": "1",
                "last": last,
                "reason": WHY,
            },
        )

    def test_they_go_on_by_themselves_and_say_how_far_they_are(self, client, allowed, monkeypatch):
        rows = [closed().event for _ in range(3)]
        page = self.begin(client, monkeypatch, rows)
        assert "1 done, 2 to go." in page.content.decode()
        assert "js/onward.js" in page.content.decode()
        late = closed().event  # it was not counted, so it is not meant
        page = self.go_on(client, page)
        assert "2 done, 1 to go." in page.content.decode()
        again = self.go_on(client, page)
        twice = self.go_on(client, page)
        assert again.status_code == twice.status_code == 302
        shown = client.get(again.url).content.decode()
        assert "Redeliver: 3 rows." in shown
        assert CompletionEvent.objects.filter(attempt=2).count() == 3
        assert History.objects.filter(kind="operator", to="redeliver").count() == 3
        late.refresh_from_db()
        assert late.status == "dropped"

    def test_what_was_not_changed_is_told_at_the_end(self, client, allowed, monkeypatch):
        rows = [closed().event for _ in range(3)]
        monkeypatch.setattr(lib, "SECONDS", -1.0)
        chosen = {"action": "discard", "_selected_action": [row.pk for row in rows], "reason": WHY}
        page = client.post(f"/admin/{COMPLETION}/{self.QUERY}", chosen)
        page = self.go_on(client, self.go_on(client, page))
        shown = client.get(page.url).content.decode()
        assert "Nothing was changed in 3 rows: it is neither waiting nor quiet" in shown

    @pytest.mark.parametrize("name", ["after", "last"])
    @pytest.mark.parametrize("value", ["x", "9" * 40, "-1", "\0"])
    def test_odd_keys_are_not_followed(self, client, allowed, monkeypatch, name, value):
        rows = [closed().event, closed().event]
        page = self.begin(client, monkeypatch, rows)
        assert self.go_on(client, page, **{name: value}).status_code in {200, 302}

    def test_rows_that_came_meanwhile_do_not_stop_it(self, client, allowed, monkeypatch):
        rows = [closed().event for _ in range(3)]
        page = self.begin(client, monkeypatch, rows)
        monkeypatch.setattr(lib, "OPERATED", 2)
        closed()
        page = self.go_on(client, self.go_on(client, page))
        assert "Redeliver: 3 rows." in client.get(page.url).content.decode()

    def test_rows_that_somebody_else_was_faster_with_are_said_to_be_gone(self, client, allowed):
        row = closed().event
        assert act(client, COMPLETION, "redeliver", row).status_code == 200
        page = act(client, COMPLETION, "redeliver", row, query=self.QUERY)
        assert "none of the rows is in this list any more" in page.content.decode()
        assert History.objects.filter(kind="operator", to="redeliver").count() == 1

    def test_a_password_that_grows_old_on_the_way_says_what_was_done(
        self, client, allowed, monkeypatch
    ):
        monkeypatch.setattr(lib, "SECONDS", -1.0)
        rows = [facts.running().process for _ in range(2)]
        data = {"action": "kill", "_selected_action": [row.pk for row in rows], "reason": WHY}
        text = client.post("/admin/processes_app/processrecord/", data).content.decode()
        assert "1 done, 1 to go." in text
        monkeypatch.setattr(lib.reauth, "is_fresh", lambda request: False)
        asked = client.post("/admin/processes_app/processrecord/", {**data, "done": "1"})
        assert asked.url.startswith("/admin/desk/confirm/")
        shown = client.get("/admin/processes_app/processrecord/").content.decode()
        assert "Kill: 1 row." in shown

    def test_a_dry_run_of_many_stops_and_says_so(self, client, allowed, monkeypatch):
        rows = [closed().event for _ in range(2)]
        monkeypatch.setattr(lib, "SECONDS", -1.0)
        page = act(client, COMPLETION, "redeliver", *rows, reason=None)
        assert foreseen(page) == {"not tried out": 2}
