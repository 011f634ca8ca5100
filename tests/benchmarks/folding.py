"""What a turn feels of a summary that is being written, or that never comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compression_app import intake
from compression_app.domain import Trigger
from compression_app.models import CompactionAttempt
from sessions_app.models import Chat, ModelEndpoint, Turn
from tests.scripted import Behaviour, Rule
from tests.socket.conftest import rows, sign_in
from tests.states import State

from .figures import Compared, Figure
from .seeds import long_session
from .streams import Product, Timed

SMALL = 8_000  # the window of the chats that are folded
BELOW, ABOVE = 44, 104  # messages of a session below its marks, and of one above the hard mark
STUCK = Behaviour(text="never", hold="never", hold_at=1)


@dataclass(frozen=True)
class Folds:
    """How often, and how long a turn is held (a setting of the worker's)."""

    rounds: int = 5
    repeats: int = 2
    held: int = 4
    hold: float = 2.0
    tokens: int = 60


def small_chat(messages: int) -> State:
    """A chat of so many messages that the scripted model answers in a small window."""
    state = long_session(messages)
    endpoint = ModelEndpoint.objects.get(model="fake-chat", window=SMALL)
    Chat.objects.filter(pk=state.chat.pk).update(endpoint=endpoint)
    return state


def client_of(product: Product, state: State) -> Timed:
    """A socket on a chat, not opened yet."""
    return Timed(product.web.address, str(state.chat.uid), sign_in(state.chat.owner))


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait for something in rows; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return value


def attempts(state: State, **which: Any) -> Any:
    """The attempts of a chat."""
    return CompactionAttempt.objects.filter(session=state.turn.session_id, **which)


def begin(state: State) -> None:
    """Open an attempt and wait until its model has begun to speak."""
    opened = intake.request_compaction(session_id=state.turn.session_id, trigger=Trigger.MANUAL)
    assert isinstance(opened, CompactionAttempt), opened
    until(lambda: attempts(state, status="running", progress__gt=0).exists())


def leave(state: State) -> None:
    """Cancel whatever attempt there is."""
    intake.cancel(session_id=state.turn.session_id, by_person=False)
    assert not attempts(state, status__in=["queued", "running"]).exists()


async def beside(product: Product, folds: Folds) -> Compared:
    """Turn times without and with an attempt running in the same session."""
    compared = Compared()
    answer = " ".join(f"word{n}" for n in range(folds.tokens))
    for _ in range(folds.rounds):
        state = await rows(small_chat)(BELOW)
        client = await rows(client_of)(product, state)
        alone, along = [], []
        async with client:
            await client.frame("hello")
            for number in range(folds.repeats):
                alone.append((await client.timed(f"beside {number}a", answer)).ended)
                await rows(begin)(state)
                along.append((await client.timed(f"beside {number}b", answer)).ended)
                assert await rows(attempts(state, status="running").exists)()
                await rows(leave)(state)
        compared.add(alone, along)
    return compared


def started_after(state: State) -> float:
    """Seconds from the acceptance of a chat's newest turn to its start."""
    turn = Turn.objects.filter(chat=state.chat).order_by("-pk")[0]
    assert turn.started_at is not None
    return (turn.started_at - turn.created_at).total_seconds()


async def held(product: Product, folds: Folds) -> list[float]:
    """Seconds from arrival to start where the summary never comes."""
    found = []
    for number in range(folds.held):
        state = await rows(small_chat)(ABOVE)
        client = await rows(client_of)(product, state)
        async with client:
            await client.frame("hello")
            await client.timed(f"first token, held {number}", "one two three")
        assert await rows(attempts(state, hold_released_at__isnull=False).exists)()
        found.append(await rows(started_after)(state))
        await rows(leave)(state)
    return found


def script(product: Product, folds: Folds) -> None:
    """Tell both models what to do."""
    answer = " ".join(f"word{n}" for n in range(folds.tokens))
    product.model.script(
        rules=[
            Rule("first token", Behaviour(text="one two three")),
            Rule("beside", Behaviour(text=answer, tokens_per_second=50)),
        ]
    )
    product.model.script("fake-sum", default=STUCK)


def figures(product: Product, folds: Folds) -> list[Figure]:
    """B05 and B06, on a product whose worker holds turns for ``folds.hold`` seconds."""
    script(product, folds)
    compared = asyncio.run(beside(product, folds))
    waits = asyncio.run(held(product, folds))
    over = max(waits) - folds.hold
    return [
        compared.figure("B05", "turn time, a summary being written against none", 1.05),
        Figure(
            "B06",
            "start of a turn past its hold, summary stuck",
            round(over, 3),
            0.25,
            "s",
            rounds=len(waits),
            detail={"hold_s": folds.hold},
        ),
    ]
