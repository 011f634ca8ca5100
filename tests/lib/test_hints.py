"""Hints: sent on commit, lost without harm."""

from __future__ import annotations

import time

import pytest
from django.db import transaction

from hermes.lib import hints

pytestmark = pytest.mark.django_db(transaction=True)


class Task:
    name = "a task"

    def __init__(self, error: Exception | None = None) -> None:
        self.sent = []
        self.error = error

    def apply_async(self, args):
        if self.error is not None:
            raise self.error
        self.sent.append(args)


@pytest.fixture(autouse=True)
def _rested():
    hints._broker.end()
    yield
    hints._broker.end()


def test_a_task_is_published_after_the_commit_and_not_before():
    task = Task()
    with transaction.atomic():
        hints.enqueue_on_commit(task, 1)
        assert task.sent == []
    assert task.sent == [(1,)]


def test_a_rollback_publishes_nothing():
    task = Task()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        hints.enqueue_on_commit(task, 1)
        raise ZeroDivisionError
    assert task.sent == []


def test_a_dead_broker_costs_the_next_callers_nothing():
    broken, well = Task(OSError("refused")), Task()
    assert not hints.enqueue(broken, 1)
    began = time.monotonic()
    assert not hints.enqueue(well, 2)
    assert time.monotonic() - began < 0.1
    assert well.sent == []
    hints._broker.end()
    assert hints.enqueue(well, 3)
    assert well.sent == [(3,)]


def test_a_hook_that_fails_hides_no_other():
    task = Task(RuntimeError("no broker"))
    other = Task()
    with transaction.atomic():
        hints.enqueue_on_commit(task, 1)
        transaction.on_commit(lambda: other.apply_async((2,)))
    assert other.sent == [(2,)]


def test_a_condition_decides():
    task = Task()
    assert not hints.enqueue_when(False, task, 1)
    assert hints.enqueue_when(True, task, 2)
    assert task.sent == [(2,)]


def test_a_push_arrives_through_the_layer():
    import asyncio

    from channels.layers import get_channel_layer

    async def scene():
        layer = get_channel_layer()
        name = await layer.new_channel()
        await layer.group_add("session.77", name)
        hints.push("session.77", {"type": "session.moved", "version": 5})
        async with asyncio.timeout(10):
            return await layer.receive(name)

    assert asyncio.run(scene()) == {"type": "session.moved", "version": 5}
