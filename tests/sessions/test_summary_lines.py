"""Which summary stands after rows were taken out of the context, and brought back."""

from __future__ import annotations

import pytest
from django.db import transaction

from sessions_app import transcript
from sessions_app.models import Session
from tests import factories
from tests.states import State, violations

pytestmark = pytest.mark.django_db(transaction=True)


class TestLine:
    """Which summary stands after rewinds: one of the rows that are live, or none."""

    @staticmethod
    def chat(messages):
        state = State(factories.chat())
        TestLine.say(state, messages)
        return state

    @staticmethod
    def say(state, messages):
        for _ in range(messages // 2):
            state.turn = factories.say(state.chat, "word " * 20)
            claimed = transcript.claim(state.turn.session_id)
            transcript.start(claimed)
            transcript.finish(claimed, transcript.Step(text="text " * 20, model_name="m"))

    @staticmethod
    def change(state, call):
        with transaction.atomic():
            session = Session.objects.lock(state.turn.session_id)
            made = call(session)
            transcript.publish(session)
        assert violations(state) == []
        return made

    def fold(self, state, through):
        draft = transcript.Draft(text=f"to {through}", body="b", covers_through=through)
        return self.change(
            state,
            lambda session: transcript.apply_summary(
                session, draft, attempt_id=None, before=9, after=8
            ),
        )

    def rewind(self, state, seq):
        return self.change(state, lambda session: transcript.rewind(session, seq, "edit"))

    def current(self, state):
        return Session.objects.get(pk=state.turn.session_id).summary_id

    def test_a_summary_of_another_version_never_stands(self):
        state = self.chat(12)
        first = self.fold(state, 4)
        self.fold(state, 10)
        self.rewind(state, 7)
        assert self.current(state) == first.pk
        self.say(state, 6)
        self.fold(state, 16)
        self.rewind(state, 15)
        assert self.current(state) == first.pk

    def test_bringing_back_restores_the_summary(self):
        state = self.chat(12)
        first = self.fold(state, 4)
        second = self.fold(state, 10)
        made = self.rewind(state, 3)
        assert self.current(state) is None
        self.say(state, 2)
        other = self.fold(state, 13)
        self.change(state, lambda session: transcript.bring_back(session, made))
        assert self.current(state) == second.pk
        assert other.pk != second.pk != first.pk

    def test_bringing_back_restores_no_summary_that_was_undone(self):
        state = self.chat(12)
        first = self.fold(state, 4)
        self.fold(state, 10)
        self.change(state, transcript.undo_summary)
        made = self.rewind(state, 3)
        self.change(state, lambda session: transcript.bring_back(session, made))
        assert self.current(state) == first.pk

    def test_bringing_back_restores_no_summary_of_rows_that_are_out(self):
        state = self.chat(12)
        whole = self.rewind(state, 7)
        self.say(state, 4)
        self.fold(state, 14)  # of 1-6 and 13-14
        self.change(state, lambda session: transcript.bring_back(session, whole))
        assert self.current(state) is None
