"""Pill, divider, preview and notices: drawn from rows, the same however a page came to them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from compression_app import domain, fence, intake
from compression_app.domain import AttemptStatus, Reason, Trigger
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib.db import DbNow
from hermes.web import commands, compacting, fragments, metering, selectors, summaries, words
from hermes.web.templatetags.chat import tokens
from sessions_app import intake as sessions
from sessions_app import runner, transcript
from sessions_app.domain import Refused
from sessions_app.models import Chat, Message, ModelEndpoint, Session, Summary
from tests import factories
from tests.compression.conftest import newest_attempt, session_over_mark, until
from tests.scripted.behaviour import Behaviour
from tests.web.folding import Told

pytestmark = pytest.mark.django_db(transaction=True)

SUMMARY = "## Goal\nShip it.\n\n## Done\nMuch.\n\n## Next step\nGo on."


@pytest.fixture
def over(models):
    return session_over_mark()


@pytest.fixture
def slow(scripted, worker):
    """The summary model waits in the middle of its text until ``go``."""
    scripted.script("fake-sum", default=Behaviour(text=SUMMARY, hold="go", hold_at=2))
    yield scripted
    scripted.release("go")


def asked(state, **more):
    return compacting.request(**state.who, actor="me", **more)


def typed(state, text, key="k"):
    who = {"chat_id": state.chat.pk, "user_id": state.chat.owner_id, "actor": "me"}
    return commands.run(commands.Asked(**who, id=key), text)


def session(state) -> Session:
    return Session.objects.select_related("summary").get(chat=state.chat)


def page(state) -> str:
    return fragments.log_html(selectors.chat_of(state.chat.owner_id, state.chat.uid), 0)


def answer(state, text="hello"):
    turn = factories.say(state.chat, text)
    runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    assert turn.status == "completed"
    return turn


class TestPill:
    @pytest.mark.parametrize("html", [True, False])
    def test_it_is_the_same_for_a_page_that_comes_later_in_every_state(
        self, over, slow, worker, html
    ):
        told = Told(over.chat, html=html)
        phases = [told.shown["compaction"]["phase"]]

        def step():
            assert told.holds_the_same_as_a_new_page()
            phases.append(told.shown["compaction"]["phase"])

        asked(over)
        until(lambda: newest_attempt().progress > 0)
        step()
        attempt = newest_attempt()
        turn = factories.say(over.chat, "what now?")
        transcript.claim(turn.session_id)
        fence.hold(attempt.pk, turn.pk, turn.session_id)
        step()
        assert told.shown["turn"] == "held"
        assert told.shown["until"] is not None
        fence.release(attempt.pk, turn.session_id)
        step()
        slow.release("go")
        worker[0].join(10)
        step()
        assert told.shown["compaction"]["state"] == "committed"
        sessions.undo_summary(**over.who)
        step()
        assert told.shown["compaction"]["state"] == "undone"
        assert phases == ["none", "thinking", "held", "deferred", "ended", "ended"]

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            ("failed", Reason.STALLED),
            ("lost", Reason.LEASE_EXPIRED),
            ("cancelled", Reason.CANCELLED),
            ("superseded", Reason.GENERATION),
        ],
    )
    def test_every_end_ends_it(self, over, status, reason):
        told = Told(over.chat)
        asked(over)
        told.look()
        attempt = newest_attempt()
        assert told.shown["compaction"]["phase"] == "queued"
        fence.end(attempt.pk, attempt.session_id, AttemptStatus(status), reason, by_person=True)
        assert told.holds_the_same_as_a_new_page()
        shown = told.shown["compaction"]
        assert (shown["phase"], shown["state"], shown["reason"]) == ("ended", status, reason)
        assert "spin" not in told.shown["pill"]
        assert told.shown["pill"].count("<button") >= 1

    def test_progress_moves_it_and_the_mark_of_the_poll(self, over, slow, worker):
        told = Told(over.chat)
        asked(over)
        until(lambda: newest_attempt().progress > 0)
        told.look()
        before = told.cursor.fold.mark
        CompactionAttempt.objects.update(progress=1_234)
        (frame,) = told.look()
        assert (frame["type"], frame["progress"]) == ("compaction.update", 1_234)
        assert "1.2k" in frame["html"]
        assert frame["elapsed"] >= 0
        assert told.cursor.fold.mark != before
        assert told.look() == []

    def test_a_failure_says_when_the_next_try_is_until_then(self, over, scripted, worker):
        scripted.script("fake-sum", default=Behaviour(text="nothing of the kind"))
        told = Told(over.chat)
        asked(over)
        until(lambda: newest_attempt().status == "failed")
        told.look()
        assert told.shown["compaction"]["retry_at"] is not None
        assert "next try in" in told.shown["pill"]
        answer(over)
        told.look()
        assert told.shown["compaction"]["state"] == "failed"  # the time is still news
        before = told.cursor.fold.mark
        Cooldown.objects.update(until=DbNow())
        assert told.holds_the_same_as_a_new_page()
        assert told.cursor.fold.mark != before

    def test_success_is_news_until_a_later_turn_has_ended(self, over, worker):
        told = Told(over.chat)
        asked(over)
        until(lambda: newest_attempt().status == "committed")
        told.look()
        assert "→" in told.shown["pill"]
        answer(over)
        assert told.holds_the_same_as_a_new_page()
        assert told.shown["compaction"]["state"] == "none"
        assert told.shown["pill"] in {"", None}

    def test_a_pause_is_told_where_a_summary_is_due(self, over):
        told = Told(over.chat)
        before = told.cursor.fold.mark
        intake.set_paused(scope="everything", paused=True, actor="op")
        assert told.holds_the_same_as_a_new_page()
        assert told.shown["compaction"]["reason"] == "paused"
        assert told.cursor.fold.mark != before
        intake.set_paused(scope="everything", paused=False, actor="op")
        assert told.holds_the_same_as_a_new_page()
        assert told.shown["compaction"]["state"] == "none"


class TestNotices:
    def test_a_deferral_is_told_once_a_connection(self, over, slow, worker):
        told = Told(over.chat)
        turn = answer(over)
        for _ in range(3):
            told.look()
        answer(over, "and on")
        told.look()
        (notice,) = told.notices("compaction_deferred")
        assert "deferred" in notice["text"]
        assert "still streaming" in notice["text"]
        assert notice["turn"] == turn.pk
        assert "compaction_deferred" in notice["html"]
        assert len(Told(over.chat).notices("compaction_deferred")) == 1

    def test_over_the_limit_and_blocked_is_told_once(self, over):
        intake.set_paused(scope="everything", paused=True, actor="op")
        told = Told(over.chat)
        for number in range(4):
            answer(over, f"number {number}")
            told.look()
        (notice,) = told.notices("compaction_blocked")
        assert notice["level"] == "warn"
        assert "paused" in notice["text"]

    def test_what_a_person_asked_for_is_told_at_its_end(self, over, slow, worker):
        told = Told(over.chat)
        late = Told(over.chat)
        asked(over)
        told.look()
        slow.release("go")
        worker[0].join(10)
        for _ in range(2):
            told.look()
        late.look()
        (notice,) = told.notices()
        assert notice["code"] == "compaction_done"
        assert "→" in notice["text"]
        assert late.notices() == []  # it was not told that it ran


class TestDivider:
    def test_it_stands_behind_the_last_row_that_is_covered(self, over, worker):
        asked(over)
        until(lambda: newest_attempt().status == "committed")
        summary = Summary.objects.get()
        html = page(over)
        fold = html.index("divide--fold")
        last = Message.objects.get(session=session(over), seq=summary.covers_through)
        below = Message.objects.filter(session=session(over), seq__gt=summary.covers_through)
        assert html.index(f'id="turn-{last.turn_id}"') < fold
        assert fold < html.index(f'id="turn-{below.exclude(turn=last.turn_id).first().turn_id}"')
        assert "question 0" in html  # the originals stay
        assert f'data-act="summary-undo" data-summary="{summary.pk}"' in html

    def test_an_undone_one_leaves_a_line(self, over, worker):
        asked(over)
        until(lambda: newest_attempt().status == "committed")
        told = Told(over.chat)
        compacting.undo(**over.who, actor="me")
        frames = told.look()
        assert [each["reason"] for each in frames if each["type"] == "session.changed"] == [
            "summary"
        ]
        assert "divide--fold" not in page(over)
        assert "divide--unfolded" in page(over)
        assert told.shown["log"] == page(over)
        assert told.holds_the_same_as_a_new_page()

    def test_it_stands_on_the_page_of_its_row(self, over, worker):
        asked(over)
        until(lambda: newest_attempt().status == "committed")
        for number in range(6):
            answer(over, f"later {number}")
        chat = Chat.objects.select_related("current__summary").get(pk=over.chat.pk)
        newest = selectors.page_of(chat.current, limit=4)
        assert [group.folds for group in newest.groups if group.folds] == []
        older = selectors.older_pages(chat, chat.current_id, newest.first_seq)
        assert sum(len(group.folds) for each in older for group in each.groups) == 1


class TestPreview:
    def test_it_is_shown_changed_and_taken(self, over, worker, scripted):
        told = Told(over.chat)
        asked(over, wants_preview=True, focus="the plan")
        until(lambda: newest_attempt().status == "preview")
        told.look()
        preview = told.shown["preview"]
        attempt = newest_attempt()
        assert preview["attempt"] == attempt.pk
        assert preview["focus"] == "the plan"
        assert preview["after"] < preview["before"]
        assert {each["kind"] for each in preview["goes"]} == {"messages"}
        assert {each["kind"] for each in preview["stays"]} == {"tail"}
        assert told.holds_the_same_as_a_new_page()
        assert session(over).summary is None

        text = preview["summary"] + "\n\nAnd remember the milk."
        reply = compacting.adopt(**over.who, actor="me", attempt_id=attempt.pk, body=text)
        assert reply["code"] == "compaction_done"
        assert "remember the milk" in session(over).summary.text
        assert told.holds_the_same_as_a_new_page()
        assert told.shown["preview"] is None
        assert [each["code"] for each in told.notices()] == []

    @pytest.mark.parametrize(("body", "code"), [(" ", "empty"), ("word " * 9_000, "too_long")])
    def test_what_can_be_put_right_leaves_it_waiting(self, over, worker, body, code):
        asked(over, wants_preview=True)
        until(lambda: newest_attempt().status == "preview")
        attempt = newest_attempt()
        with pytest.raises(Refused) as refused:
            compacting.adopt(**over.who, actor="me", attempt_id=attempt.pk, body=body)
        assert refused.value.code == code
        assert newest_attempt().status == "preview"

    def test_somebody_elses_is_not_found(self, over, worker):
        asked(over, wants_preview=True)
        until(lambda: newest_attempt().status == "preview")
        other = session_over_mark()
        with pytest.raises(Refused) as refused:
            compacting.adopt(**other.who, actor="me", attempt_id=newest_attempt().pk, body="x")
        assert refused.value.code == "not_found"

    def test_discarding_it_changes_nothing(self, over, worker):
        asked(over, wants_preview=True)
        until(lambda: newest_attempt().status == "preview")
        compacting.cancel(**over.who, actor="me")
        assert newest_attempt().status == "cancelled"
        assert session(over).summary is None

    def test_the_dialog_has_a_stage_for_each_state(self, over, slow, worker):
        def stage():
            html = fragments.fold_html(selectors.chat_of(over.chat.owner_id, over.chat.uid))
            return html.split('data-stage="')[1].split('"')[0]

        stages = [stage()]
        asked(over, wants_preview=True)
        stages.append(stage())
        slow.release("go")
        until(lambda: newest_attempt().status == "preview")
        stages.append(stage())
        assert stages == ["idle", "writing", "preview"]


class TestReplies:
    """Six different, true and short ones (B070)."""

    def test_they_differ(self, models, slow, worker, scripted, settings):
        replies = {}
        short = factories.chat()
        who = {"chat_id": short.pk, "user_id": short.owner_id}
        replies["short"] = compacting.request(**who, actor="me")

        normal = session_over_mark()
        replies["normally"] = typed(normal, "/compact the plan")
        until(lambda: newest_attempt().status == "running")
        assert newest_attempt().focus == "the plan"
        replies["running"] = typed(normal, "/compact", "k2")
        assert CompactionAttempt.objects.count() == 1

        busy = session_over_mark()
        turn = factories.say(busy.chat, "go on")
        transcript.start(transcript.claim(turn.session_id))
        replies["answering"] = asked(busy)

        cooling = session_over_mark()
        asked(cooling)
        attempt = newest_attempt()
        fence.end(attempt.pk, attempt.session_id, AttemptStatus.FAILED, Reason.STALLED)
        replies["cooldown"] = asked(cooling)

        failing = session_over_mark()
        asked(failing)
        attempt = newest_attempt()
        fence.end(attempt.pk, attempt.session_id, AttemptStatus.FAILED, Reason.PROVIDER)
        replies["failing"] = asked(failing)
        slow.release("go")

        codes = {name: reply["code"] for name, reply in replies.items()}
        assert codes == {
            "short": "compaction_short",
            "normally": "compaction_started",
            "running": "compaction_attached",
            "answering": "compaction_during_answer",
            "cooldown": "compaction_in_cooldown",
            "failing": "compaction_retried",
        }
        texts = [reply["text"] for reply in replies.values()]
        assert len(set(texts)) == 6
        assert max(map(len, texts)) < 200
        assert "By itself" in replies["cooldown"]["text"]

    def test_undo_by_command(self, over, worker):
        typed(over, "/compact")
        until(lambda: newest_attempt().status == "committed")
        told = typed(over, "/compact undo", "k2")
        assert told["code"] == "summary_undone"
        assert session(over).summary is None
        with pytest.raises(Refused):
            typed(over, "/compact undo", "k3")

    def test_a_command_sent_twice_opens_one(self, over, slow, worker):
        assert typed(over, "/compact") == typed(over, "/compact")
        assert CompactionAttempt.objects.count() == 1

    def test_status_says_how_it_stands(self, over, slow, worker):
        assert "No summary stands in" in typed(over, "/status", "s1")["text"]
        typed(over, "/compact")
        assert "being written" in typed(over, "/status", "s2")["text"]
        slow.release("go")
        until(lambda: newest_attempt().status == "committed")
        assert "A summary of" in typed(over, "/status", "s3")["text"]


@pytest.mark.parametrize("reason", list(Reason))
def test_a_pill_has_words_for_every_reason(reason):
    for state in ("failed", "blocked", "superseded"):
        pill = {**summaries.NOTHING, "state": state, "phase": "ended", "reason": reason}
        html = fragments.pill_html(pill)
        assert str(words.compaction(reason).what) in html


def test_every_reason_has_words():
    assert {str(reason) for reason in Reason} == set(words.COMPACTION)
    assert len({str(each.what) for each in words.COMPACTION.values()}) == len(Reason)


def test_the_meter_has_marks(over):
    chat = Chat.objects.select_related("current__summary").get(pk=over.chat.pk)
    told = metering.meter(chat, chat.current)
    assert (told["soft"], told["hard"]) == (domain.mark(8_000, 0.6), domain.mark(8_000, 0.85))
    html = fragments.meter_html(told)
    assert html.count("m-mark") == 2
    assert 'data-act="fold"' in html


def test_the_meter_follows_the_model_of_the_chat(over):
    told = Told(over.chat)
    large = ModelEndpoint.objects.create(name="large", kind="offline", window=100_000)
    sessions.choose_endpoint(**over.who, endpoint_id=large.pk)
    (meter,) = [frame for frame in told.look() if frame["type"] == "meter"]
    assert meter["window"] == 100_000


def test_a_breaker_is_told(over):
    CompressionState.objects.create(
        scope=f"session:{over.turn.session_id}", session_id=over.turn.session_id, ineffective=2
    )
    assert Told(over.chat).shown["compaction"]["reason"] == "breaker"


def test_a_breaker_that_a_reading_opens_is_told_to_who_looks(over):
    told = Told(over.chat)
    with transaction.atomic():
        locked = Session.objects.lock(over.turn.session_id)
        draft = transcript.Draft(text="s", body="s", covers_through=0)
        made = transcript.apply_summary(locked, draft, attempt_id=None, before=9, after=8)
        transcript.publish(locked)
    CompressionState.objects.create(
        scope=f"session:{locked.pk}", session_id=locked.pk, ineffective=1, awaited_mark=5
    )
    assert told.holds_the_same_as_a_new_page()
    version = told.cursor.version
    fence.note_reading(locked.pk, 9_999, built_on_id=made.pk)
    assert session(over).version > version
    assert told.holds_the_same_as_a_new_page()
    assert told.shown["compaction"]["reason"] == "breaker"


def test_a_summary_is_shown_with_its_parts(over, worker, client):
    asked(over)
    until(lambda: newest_attempt().status == "committed")
    summary = Summary.objects.get()
    client.force_login(over.chat.owner)
    html = client.get(f"/chats/{over.chat.uid}/summaries/{summary.pk}/").content.decode()
    assert "Goal" in html
    assert f"≈ {tokens(summary.tokens)}" in html
    other = factories.person()
    client.force_login(other)
    assert client.get(f"/chats/{over.chat.uid}/summaries/{summary.pk}/").status_code == 404


def test_a_hold_that_is_over_is_not_told_as_one(over, settings):
    asked(over)
    attempt = newest_attempt()
    CompactionAttempt.objects.update(
        held_turn_id=1,
        hold_started_at=DbNow() - timedelta(seconds=9),
        hold_released_at=DbNow(),
    )
    told = Told(over.chat)
    assert told.shown["compaction"]["phase"] == "deferred"
    fence.end(attempt.pk, attempt.session_id, AttemptStatus.LOST, Reason.LEASE_EXPIRED)
    told.look()
    assert told.shown["compaction"]["phase"] == "ended"


def test_only_triggers_of_people_are_told_at_their_end(over, worker):
    told = Told(over.chat)
    intake.request_compaction(session_id=over.turn.session_id, trigger=Trigger.SOFT)
    told.look()
    until(lambda: newest_attempt().status == "committed")
    told.look()
    assert told.notices() == []
