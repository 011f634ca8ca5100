"""The history is appended to, and the database refuses anything else."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from sessions_app.models import History
from sessions_app.transcript import moving_history
from tests import states

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.update(reason="never was"),
        lambda rows: rows.delete(),
        lambda rows: rows[0].save(),
        lambda rows: rows[0].delete(),
    ],
    ids=["update", "delete", "save one", "delete one"],
)
def test_nothing_that_was_written_changes(change):
    states.fresh()
    before = list(History.objects.order_by("pk").values())
    assert before
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        change(History.objects.order_by("pk"))
    assert list(History.objects.order_by("pk").values()) == before


def test_sample_data_moves_and_the_guard_stands_again():
    states.fresh()
    with moving_history():
        History.objects.update(actor="sample")
    assert set(History.objects.values_list("actor", flat=True)) == {"sample"}
    with pytest.raises(IntegrityError), transaction.atomic():
        History.objects.update(actor="")


def test_a_fault_while_moving_leaves_the_guard():
    states.fresh()
    with pytest.raises(ZeroDivisionError), moving_history():
        History.objects.update(actor=str(1 // 0))
    with pytest.raises(IntegrityError), transaction.atomic():
        History.objects.update(actor="")
