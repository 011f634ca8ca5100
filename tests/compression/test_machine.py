"""A state machine over all that can meet in one chat: whatever the order, invariants hold."""

from __future__ import annotations

import contextlib
import itertools
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from compression_app import fence, intake, sweeps
from compression_app.domain import Reason
from compression_app.models import CompactionAttempt
from hermes.lib import hints
from hermes.lib.db import DbNow
from hermes.lib.leases import Lease
from sessions_app import intake as sessions
from sessions_app import sweeps as turn_sweeps
from sessions_app import transcript
from sessions_app.domain import Done, Refused
from sessions_app.models import Chat, Message, ModelEndpoint, Session, Turn
from sessions_app.transcript import Draft, Step
from tests import factories, states
from tests.states import State, violations

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
BODY = "## Goal\nShip.\n## Done\nAll.\n## Next step\nNone."


class Folding(RuleBasedStateMachine):
    """One chat; the model of it is: what was said stays said, in order, for ever."""

    steps = 0
    ids = itertools.count(1)

    @initialize()
    def begin(self):
        self.chat = factories.chat()
        self.who = {"chat_id": self.chat.pk, "user_id": self.chat.owner_id}
        self.said: dict[tuple[int, int], str] = {}
        self.claimed = None
        self.lease: Lease | None = None

    def session(self) -> Session | None:
        chat = Chat.objects.get(pk=self.chat.pk)
        return None if chat.current_id is None else Session.objects.get(pk=chat.current_id)

    def attempt(self) -> CompactionAttempt | None:
        return CompactionAttempt.objects.filter(
            session__chat=self.chat, status__in=["queued", "running"]
        ).first()

    # --- turns ---------------------------------------------------------------------------------

    @rule(words=st.integers(20, 400))
    def say(self, words):
        factories.say(self.chat, f"q{next(self.ids)} " + "word " * words)

    @rule()
    def claim(self):
        session = self.session()
        if session is not None and (claimed := transcript.claim(session.pk)) is not None:
            self.claimed = claimed
            if claimed.turn.started_at is None:
                transcript.start(claimed)

    @rule(words=st.integers(0, 300))
    def finish(self, words):
        if self.claimed is not None:
            transcript.finish(self.claimed, Step(text="a " + "text " * words, model_name="m"))
            self.claimed = None

    @rule()
    def call_a_tool(self):
        if self.claimed is None:
            return
        call = states.ToolCall(f"c{next(self.ids)}", "current_time", "{}")
        if transcript.append_step(self.claimed, Step(text="", calls=(call,), model_name="m")):
            transcript.append_result(self.claimed, call, Done("noon"))

    @rule()
    def stop(self):
        turn = sessions.stop_turn(**self.who)
        if turn is not None and turn.status == "running":
            sessions.end_stopped(turn)

    @rule()
    def lose_the_turn_worker(self):
        Turn.objects.filter(chat=self.chat, status="running").update(lease_expires_at=DbNow())
        list(turn_sweeps.end_abandoned())

    # --- people --------------------------------------------------------------------------------

    @rule()
    def new(self):
        sessions.new_session(**self.who, client_id=f"n{next(self.ids)}")

    @rule(which=st.sampled_from(["regenerate", "rewind_to", "continue_turn", "undo_summary"]))
    def again(self, which):
        with contextlib.suppress(Refused):
            getattr(sessions, which)(**self.who)

    @rule(pick=st.integers(0, 5))
    def edit(self, pick):
        turns = Turn.objects.filter(chat=self.chat, source="person", first_seq__isnull=False)
        for turn in turns.order_by("-pk")[pick : pick + 1]:
            with contextlib.suppress(Refused):
                sessions.edit_message(
                    **self.who,
                    turn_id=turn.pk,
                    client_turn_id=f"e{next(self.ids)}",
                    text="differently " * 30,
                )

    @rule(pick=st.integers(0, 3))
    def bring_back(self, pick):
        session = self.session()
        if session is None:
            return
        rewinds = session.rewinds.filter(undone_at=None).order_by("-pk")
        for made in rewinds[pick : pick + 1]:
            with contextlib.suppress(Refused):
                sessions.bring_back(**self.who, rewind_id=made.pk)

    @rule()
    def idle_end(self):
        session = self.session()
        if session is not None:
            Session.objects.filter(pk=session.pk).update(touched_at="2020-01-01T00:00Z")
            sessions.end_idle(session_id=session.pk, chat_id=self.chat.pk, hours=1)

    # --- compaction ----------------------------------------------------------------------------

    @rule(trigger=st.sampled_from(["soft", "hard", "manual", "overflow"]))
    def open(self, trigger):
        session = self.session()
        if session is not None:
            intake.request_compaction(session_id=session.pk, trigger=trigger)

    @rule()
    def claim_attempt(self):
        attempt = self.attempt()
        if attempt is not None:
            claimed = fence.claim(attempt.pk, endpoint_id=attempt.pk, model_name="m")
            self.lease = claimed.lease if claimed is not None else self.lease

    @precondition(lambda self: self.lease is not None)
    @rule(outcome=st.sampled_from(["good", "good", "bad", "big", "error", "progress"]))
    def think(self, outcome):
        attempt = CompactionAttempt.objects.get(pk=self.lease.pk)
        match outcome:
            case "good" | "bad" | "big":
                body = BODY + (" more" * 20_000 if outcome == "big" else "")
                draft = Draft(text=body, body=body, covers_through=attempt.cut)
                rejection = Reason.EMPTY if outcome == "bad" else None
                fence.commit(self.lease, fence.Written(draft, rejection))
            case "error":
                fence.fail(self.lease, Reason.PROVIDER, retry_after=0.001)
            case _:
                fence.progress(self.lease, 5)

    @rule()
    def hold_and_release(self):
        attempt = self.attempt()
        turn = Turn.objects.filter(chat=self.chat).order_by("-pk").first()
        if attempt is not None and turn is not None:
            fence.hold(attempt.pk, turn.pk, attempt.session_id)
            fence.release(attempt.pk, attempt.session_id)

    @rule()
    def cancel(self):
        session = self.session()
        if session is not None:
            intake.cancel(session_id=session.pk, actor="me")

    @rule()
    def sweep(self):
        sweeps.end_void()
        sweeps.end_overdue()

    @rule()
    def lose_the_attempt(self):
        CompactionAttempt.objects.filter(session__chat=self.chat, status="running").update(
            lease_expires_at=DbNow()
        )
        sweeps.end_abandoned()

    @rule()
    def let_time_pass(self):
        for session in Session.objects.filter(chat=self.chat):
            session.cooldowns.update(until=DbNow())

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def nothing_is_broken(self):
        if not hasattr(self, "chat"):
            return
        type(self).steps += 1
        assert violations(State(self.chat)) == []

    @invariant()
    def what_was_said_stays_said(self):
        if not hasattr(self, "chat"):
            return
        rows = Message.objects.filter(session__chat=self.chat)
        now = {(s, q): text for s, q, text in rows.values_list("session_id", "seq", "text")}
        for place, text in self.said.items():
            assert now[place] == text
        self.said = now


def test_whatever_the_order_invariants_hold(db, monkeypatch, caplog):
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)
    ModelEndpoint.objects.create(name="small", kind="offline", window=2_000)
    case = Folding.TestCase()
    case.settings = settings(
        max_examples=200 if FULL else 6,
        stateful_step_count=50 if FULL else 30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    case.runTest()
    print(f"\nstate machine: {Folding.steps} steps")
