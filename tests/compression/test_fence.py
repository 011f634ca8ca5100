"""The fence, branch by branch: what it refuses, and what it leaves behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from compression_app import domain, fence, intake, sweeps
from compression_app.domain import AttemptStatus, Claim, Commit, Facts, Fenced, Reason, Refuse
from compression_app.fence import Written
from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib import hints
from hermes.lib.db import DbNow
from hermes.lib.leases import Lease
from sessions_app import intake as chats
from sessions_app import transcript
from sessions_app.models import History, ModelEndpoint, Session, Summary
from sessions_app.transcript import Draft
from tests.compression import states

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _rows_only(db, monkeypatch):
    ModelEndpoint.objects.create(name="small", kind="offline", window=2_000)
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)


def commit(state, written=None):
    return fence.commit(state.held.lease, written or state.written())


def committed(session_id, *, before, after):
    """One more attempt that commits a summary, with these tokens before and after."""
    with transaction.atomic():
        session = Session.objects.lock(session_id)
        draft = Draft(text="s", body="s", covers_through=0)
        made = transcript.apply_summary(session, draft, attempt_id=None, before=before, after=after)
        CompactionAttempt.objects.filter(session=session, status__in=domain.OPEN).delete()
        attempt = CompactionAttempt.objects.create(
            session=session,
            trigger="hard",
            generation=session.generation,
            watermark=0,
            cut=0,
            mark=500,
            before_tokens=before,
            after_tokens=after,
            status="running",
            lease_expires_at=DbNow(),
            summary_id_made=made.pk,
        )
        fence.close(session, attempt, AttemptStatus.COMMITTED, None)
        transcript.publish(session)


def summary_of(session_id):
    return Session.objects.get(pk=session_id).summary_id


class TestCommit:
    def test_twice_is_once(self):
        state = states.running()
        assert isinstance(commit(state), Commit)
        assert isinstance(commit(state), Commit)  # what a lost connection looks like
        assert Summary.objects.count() == 1

    def test_of_a_row_that_is_gone(self):
        assert isinstance(fence.commit(Lease(987_654, 1), Written(None)), Fenced)

    def test_with_another_token(self):
        state = states.running()
        stale = Lease(state.attempt.pk, state.held.lease.token + 1)
        assert isinstance(fence.commit(stale, state.written()), Fenced)
        assert state.fresh_attempt().status == "running"

    def test_with_an_expired_lease_that_nobody_took(self):
        state = states.running()
        CompactionAttempt.objects.update(lease_expires_at=LONG_AGO)
        assert isinstance(commit(state), Commit)

    def test_without_a_watermark(self):
        state = states.running()
        CompactionAttempt.objects.update(watermark=None)
        assert commit(state) == Refuse(AttemptStatus.FAILED, Reason.UNFENCED)
        assert Cooldown.objects.get().kind == "flat"

    def test_past_its_deadline(self):
        state = states.running()
        CompactionAttempt.objects.update(deadline_at=LONG_AGO)
        assert commit(state) == Refuse(AttemptStatus.FAILED, Reason.DEADLINE)

    def test_of_a_session_that_a_person_ended(self):
        state = states.running()
        Session.objects.filter(pk=state.attempt.session_id).update(
            ended_at=LONG_AGO, end_reason="session_reset"
        )
        assert commit(state) == Refuse(AttemptStatus.SUPERSEDED, Reason.SESSION_ENDED)
        assert not Cooldown.objects.exists()

    def test_of_another_generation(self):
        state = states.running()
        Session.objects.filter(pk=state.attempt.session_id).update(generation=99)
        assert commit(state) == Refuse(AttemptStatus.SUPERSEDED, Reason.GENERATION)

    def test_of_nothing(self):
        state = states.running()
        assert commit(state, Written(None)) == Refuse(AttemptStatus.FAILED, Reason.EMPTY)

    def test_of_what_would_grow(self):
        state = states.running()
        text = "more " * 5_000
        draft = Draft(text=text, body=text, covers_through=state.attempt.cut)
        assert commit(state, Written(draft)) == Refuse(AttemptStatus.FAILED, Reason.WOULD_GROW)
        assert state.fresh_attempt().text == text


class TestPreview:
    @pytest.fixture
    def shown(self):
        state = states.running()
        CompactionAttempt.objects.update(wants_preview=True)
        commit(state)
        assert state.fresh_attempt().status == "preview"
        assert state.session().summary is None
        return state

    def apply(self, state, body=states.BODY):
        return intake.apply_preview(
            session_id=state.attempt.session_id, attempt_id=state.attempt.pk, body=body
        )

    def test_it_is_adopted_as_a_person_left_it(self, shown):
        edited = states.BODY + "\nKeep the tone."
        assert isinstance(self.apply(shown, edited), Commit)
        assert shown.session().summary.body == edited
        assert isinstance(self.apply(shown), Fenced)

    def test_an_empty_one_is_refused_and_stays(self, shown):
        assert self.apply(shown, " ") == Refuse(AttemptStatus.FAILED, Reason.EMPTY)
        assert shown.fresh_attempt().status == "preview"

    def test_one_that_would_grow_is_refused(self, shown):
        assert self.apply(shown, "more " * 5_000).reason is Reason.WOULD_GROW

    def test_what_was_edited_meanwhile_wins(self, shown):
        Session.objects.update(generation=99)
        assert self.apply(shown) == Refuse(AttemptStatus.SUPERSEDED, Reason.GENERATION)

    def test_an_ended_session_takes_none(self, shown):
        Session.objects.update(ended_at=LONG_AGO, end_reason="session_reset")
        assert self.apply(shown) == Refuse(AttemptStatus.SUPERSEDED, Reason.SESSION_ENDED)

    def test_a_new_attempt_takes_its_place(self, shown):
        made = intake.request_compaction(session_id=shown.attempt.session_id, trigger="manual")
        assert made.status == "queued"
        assert shown.fresh_attempt().status == "superseded"

    def test_it_may_be_discarded(self, shown):
        assert intake.cancel(session_id=shown.attempt.session_id)
        assert shown.fresh_attempt().status == "cancelled"


class TestHold:
    def test_a_second_turn_gets_what_is_left(self, settings):
        settings.HERMES_TURN_HOLD_SECONDS = 10
        state = states.held()
        left = fence.hold(state.attempt.pk, state.turn.pk, state.attempt.session_id)
        assert 0 < left < 10
        assert fence.release(state.attempt.pk, state.attempt.session_id) == "deferred"
        assert fence.release(state.attempt.pk, state.attempt.session_id) == "deferred"
        assert fence.hold(state.attempt.pk, state.turn.pk, state.attempt.session_id) == 0

    def test_one_that_has_ended_holds_nobody(self):
        state = states.held()
        commit(state)
        assert fence.release(state.attempt.pk, state.attempt.session_id) == "ended"
        assert fence.hold(state.attempt.pk, state.turn.pk, state.attempt.session_id) == 0

    def test_one_that_never_held_is_not_marked_as_released(self):
        state = states.running()
        assert fence.release(state.attempt.pk, state.attempt.session_id) == "deferred"
        assert state.fresh_attempt().hold_released_at is None


class TestClaim:
    def test_of_a_row_that_is_gone(self):
        assert fence.claim(987_654, endpoint_id=None, model_name="m") is None

    def test_two_an_endpoint_and_no_more(self):
        made = [states.opened() for _ in range(1)]
        for _ in range(2):
            state = states.long_chat()
            found = intake.request_compaction(session_id=state.turn.session_id, trigger="hard")
            made.append(states.Folding(state.chat, turn=state.turn, attempt=found))
        claims = [fence.claim(s.attempt.pk, endpoint_id=None, model_name="m") for s in made]
        assert [claim is not None for claim in claims] == [True, True, False]
        other = fence.claim(made[2].attempt.pk, endpoint_id=7, model_name="m")
        assert other is not None

    def test_the_cut_is_lowered_and_never_raised(self):
        state = states.running()
        cut = state.attempt.cut
        assert fence.lower_cut(state.held.lease, cut - 1, before_tokens=5)
        assert not fence.lower_cut(state.held.lease, cut, before_tokens=5)
        assert state.fresh_attempt().cut == cut - 1


class TestEnds:
    def test_what_is_not_ours_any_more(self):
        state = states.running()
        fence.end(state.attempt.pk, state.attempt.session_id, "lost", Reason.SHUTDOWN)
        assert not fence.fail(state.held.lease, Reason.STALLED)
        ended = (state.attempt.pk, state.attempt.session_id, "lost", Reason.SHUTDOWN)
        assert not fence.end(*ended)
        assert not fence.end(*ended, token=77)

    def test_a_zero_means_none(self, settings):
        settings.HERMES_TURN_HOLD_RETRY_SECONDS = 0
        settings.HERMES_FAILURE_COOLDOWN_SECONDS = 0
        state = states.running()
        fence.fail(state.held.lease, Reason.STALLED)
        assert not Cooldown.objects.exists()

    def test_a_provider_that_asks_for_a_pause_gets_it_from_every_chat(self):
        state = states.running()
        fence.fail(state.held.lease, Reason.PROVIDER, retry_after=500)
        fence_state = CompressionState.objects.get(scope="endpoint:0")
        first = fence_state.breaker_until
        other = states.long_chat()
        refused = intake.request_compaction(session_id=other.turn.session_id, trigger="hard")
        assert (refused.reason, refused.until) == (Reason.PROVIDER_BREAKER, first)

    def test_an_operator_clears_with_a_reason(self):
        state = states.running()
        fence.fail(state.held.lease, Reason.STALLED)
        cleared = fence.clear_cooldowns(
            state.attempt.session_id, actor="op", reason="the provider is well again"
        )
        assert cleared == 1
        assert not Cooldown.objects.active().exists()
        assert History.objects.get(kind="cooldown").actor == "op"
        assert fence.clear_cooldowns(state.attempt.session_id, actor="op", reason="again") == 0

    def test_a_reading_above_the_mark_says_that_it_did_not_help(self):
        state = states.running()
        commit(state)
        session_id = state.attempt.session_id
        made = Summary.objects.get().pk
        assert fence.note_reading(session_id, 10_000, built_on_id=made)
        assert CompressionState.objects.get(session=session_id).ineffective == 1
        assert not fence.note_reading(session_id, 10_000, built_on_id=made)  # asked once a commit

    def test_two_readings_in_a_row_above_the_mark_open_the_breaker(self):
        state = states.running()
        session_id = state.attempt.session_id
        state_of = CompressionState.objects.filter(session=session_id)
        for count in (1, 2):
            state_of.update(awaited_mark=None)
            committed(session_id, before=1_000, after=100)
            newest = summary_of(session_id)
            assert fence.note_reading(session_id, 10_000, built_on_id=newest)
            assert state_of.get().ineffective == count
        refused = intake.request_compaction(session_id=session_id, trigger="hard")
        assert refused.reason == Reason.BREAKER  # no cooldown follows a commit: at once
        committed(session_id, before=1_000, after=100)
        assert state_of.get().ineffective == 1  # closed, until the reading says otherwise
        assert not fence.note_reading(session_id, 10, built_on_id=summary_of(session_id))
        assert state_of.get().ineffective == 0

    def test_one_commit_is_counted_once(self):
        state = states.running()
        session_id = state.attempt.session_id
        committed(session_id, before=1_000, after=990)
        assert not fence.note_reading(session_id, 10_000, built_on_id=summary_of(session_id))
        assert CompressionState.objects.get(session=session_id).ineffective == 1

    def test_a_commit_without_a_reading_counts_as_one_of_use(self):
        state = states.running()
        session_id = state.attempt.session_id
        for before, after in ((1_000, 990), (1_000, 100), (1_000, 990)):
            committed(session_id, before=before, after=after)
        assert CompressionState.objects.get(session=session_id).ineffective == 1

    def test_an_undo_is_not_fresh_any_more_once_another_summary_stands(self):
        state = states.running()
        session_id = state.attempt.session_id
        commit(state)
        chats.undo_summary(**state.who)
        refused = intake.request_compaction(session_id=session_id, trigger="hard")
        assert refused.reason == Reason.UNDO_FRESH
        committed(session_id, before=1_000, after=100)
        made = intake.request_compaction(session_id=session_id, trigger="hard")
        assert isinstance(made, CompactionAttempt), made

    def test_messages_that_had_no_room_open_an_attempt(self):
        """One that is larger than the rest together leaves a request far below the mark."""
        state = states.long_chat()
        session = Session.objects.filter(pk=state.turn.session_id)
        size = {"session_id": state.turn.session_id, "window": 2_000, "size": 100}
        session.update(reading_tokens=100, reading_live=session.get().live_tokens)
        intake.after_turn(**size, built_on_id=None)
        assert not CompactionAttempt.objects.exists()
        session.update(left_out=2)
        intake.after_turn(**size, built_on_id=None, left_out=2)
        assert CompactionAttempt.objects.get().trigger == "soft"

    def test_what_had_no_room_is_covered_first(self):
        state = states.running()
        Session.objects.filter(pk=state.attempt.session_id).update(left_out=2)
        commit(state)
        assert state.session().left_out == 0

    def test_a_reading_on_an_older_summary_says_nothing(self):
        """R19, where there was a summary before: the answer was under way at the adoption."""
        state = states.running()
        commit(state)
        older, session_id = Summary.objects.get().pk, state.attempt.session_id
        committed(session_id, before=1_000, after=100)
        intake.after_turn(session_id=session_id, window=2_000, size=9_999, built_on_id=older)
        assert CompressionState.objects.get(session=session_id).ineffective == 0


class TestSweeps:
    def test_a_hold_whose_gate_is_gone_is_released(self):
        state = states.held()
        assert sweeps.release_overheld() == 0
        CompactionAttempt.objects.update(hold_started_at=LONG_AGO)
        assert sweeps.release_overheld() == 1
        assert state.fresh_attempt().hold_released_at is not None

    def test_an_attempt_that_nobody_began_is_lost(self):
        state = states.opened()
        assert sweeps.end_overdue() == 0
        CompactionAttempt.objects.update(opened_at=LONG_AGO)
        assert sweeps.hint_queued() == 1
        assert sweeps.end_overdue() == 1
        assert (state.fresh_attempt().status, state.fresh_attempt().reason) == (
            "lost",
            "not_claimed",
        )

    def test_one_past_its_deadline_has_failed(self):
        state = states.running()
        CompactionAttempt.objects.update(deadline_at=LONG_AGO)
        assert sweeps.end_overdue() == 1
        assert state.fresh_attempt().reason == "deadline"

    def test_void_ones_are_superseded_without_their_hint(self):
        state = states.running()
        Session.objects.update(generation=99)
        assert sweeps.end_void() == 1
        assert state.fresh_attempt().status == "superseded"

    def test_the_whole_sweep(self):
        assert sweeps.sweep(force=True) == 0
        assert sweeps.sweep() == 0


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def facts(**more) -> Facts:
    return Facts(
        **{"trigger": "soft", "now": NOW, "size": 30, "mark": 20, "compactable": 9, **more}
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (facts(is_ended=True), Reason.ENDED),
        (facts(has_open=True), Reason.ATTEMPT_OPEN),
        (facts(is_paused=True), Reason.PAUSED),
        (facts(is_paused=True, trigger="operator"), None),
        (facts(is_paused=True, trigger="manual"), None),
        (facts(is_paused=True, trigger="overflow"), Reason.PAUSED),
        (facts(size=10), Reason.BELOW_MARK),
        (facts(size=10, is_over_messages=True), None),
        (facts(compactable=3), Reason.TOO_SHORT),
        (facts(grown_since_undo=5, window=100), Reason.UNDO_FRESH),
        (facts(grown_since_undo=10, window=100), None),
        (facts(provider_until=NOW + timedelta(1)), Reason.PROVIDER_BREAKER),
        (facts(provider_until=NOW), None),
        (facts(ineffective=2, probe_at=NOW), Reason.BREAKER),
        (facts(ineffective=2), None),
        (facts(grew=2, probe_at=NOW - timedelta(seconds=300)), None),
        (facts(cooldown_until=NOW + timedelta(1)), Reason.COOLDOWN),
        (facts(cooldown_until=NOW + timedelta(1), trigger="manual"), None),
        (facts(cooldown_until=NOW + timedelta(1), trigger="overflow", size=1), None),
    ],
)
def test_when_an_attempt_is_opened(given, reason):
    assert domain.refusal(given) is reason


def test_checks_come_in_order():
    ok = Claim(
        status=AttemptStatus.RUNNING,
        token=1,
        held_token=1,
        is_fenced=True,
        generation=1,
        session_generation=1,
        is_session_closed=False,
        deadline_at=None,
        now=NOW,
        rejection=None,
        before=10,
        after=5,
    )
    assert domain.may_commit(ok) == Commit()
    worse = {**vars(ok), "is_session_closed": True, "rejection": Reason.EMPTY}
    assert domain.may_commit(Claim(**worse)).reason is Reason.SESSION_ENDED
    assert domain.may_commit(Claim(**{**worse, "held_token": 2})) == Fenced()


@pytest.mark.parametrize(
    ("end", "seconds", "streak"),
    [
        (domain.End(AttemptStatus.SUPERSEDED, Reason.SESSION_ENDED, is_deferred=True), None, None),
        (domain.End(AttemptStatus.SUPERSEDED, Reason.GENERATION), None, None),
        (domain.End(AttemptStatus.SUPERSEDED, Reason.GENERATION, is_deferred=True), 60, None),
        (domain.End(AttemptStatus.CANCELLED, Reason.CANCELLED, by_person=True), 60, None),
        (domain.End(AttemptStatus.CANCELLED, Reason.CANCELLED), 60, None),
        (domain.End(AttemptStatus.CANCELLED, Reason.HOLD_EXPIRED, is_fenced=False), 60, None),
        (domain.End(AttemptStatus.LOST, Reason.SHUTDOWN), 60, None),
        (domain.End(AttemptStatus.FAILED, Reason.STALLED), 300, 1),
        (domain.End(AttemptStatus.FAILED, Reason.STALLED, streak=9), 3600, 10),
        (domain.End(AttemptStatus.FAILED, Reason.WOULD_GROW, streak=1), 900, 2),
        (domain.End(AttemptStatus.FAILED), 300, 1),
    ],
)
def test_what_follows_from_an_end(end, seconds, streak):
    follows = domain.consequence(end, flat=60, first=300)
    assert (follows.wait.seconds if follows.wait else None, follows.streak) == (seconds, streak)
