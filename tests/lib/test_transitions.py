"""Compare-and-set on one row."""

from __future__ import annotations

import pytest

from sessions_app.models import Turn
from tests import states
from tests.races.explorer import race

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_move_lands_once():
    state = states.queued()
    moves = race(
        8, lambda: Turn.objects.advance(state.turn.pk, "cancelled", finished_at="2026-01-01T00:00Z")
    )

    assert sorted(moves) == [False] * 7 + [True]


def test_a_move_that_no_chart_knows_is_a_mistake():
    state = states.queued()
    with pytest.raises(ValueError, match="no move of Turn leads to 'nowhere'"):
        Turn.objects.advance(state.turn.pk, "nowhere")
    with pytest.raises(ValueError, match="no move of Turn"):
        Turn.objects.advance(state.turn.pk, "completed", frm=["queued"])


@pytest.mark.parametrize("name", ["session__ended_at", "chat__key"])
def test_other_rows_are_neither_compared_nor_set(name):
    state = states.queued()
    with pytest.raises(ValueError, match="own columns"):
        Turn.objects.advance(state.turn.pk, "cancelled", when={name: None})
    with pytest.raises(ValueError, match="own columns"):
        Turn.objects.amend(state.turn.pk, "queued", **{name: None})


def test_a_compared_column_with_another_value_stops_the_move():
    state = states.claimed()
    assert not Turn.objects.amend(state.turn.pk, "running", when={"fence_token": 7}, put_back=3)
    assert Turn.objects.amend(state.turn.pk, "running", when={"fence_token": 1}, put_back=3)
    assert state.again().put_back == 3
