"""The same work in a short and in a long session: appending, reading, folding."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction

from compression_app import fence, intake, source
from compression_app.domain import Trigger
from compression_app.models import CompactionAttempt
from hermes.web import selectors
from sessions_app import intake as chats
from sessions_app import runner, transcript
from sessions_app.domain import EndpointKind
from sessions_app.models import Chat, ModelEndpoint, Session
from sessions_app.transcript import context
from tests import factories, states

from .counting import Touched, rows_touched
from .figures import Figure, in_turn
from .ground import without_hints
from .seeds import analyze, long_session

WINDOW = 3_000  # of the model whose context is built: both sessions fill it
SMALL = 8_000  # of the model whose sessions are folded: few rows at the end stay verbatim
FOLDED = 60  # live rows above the summary, in both


@dataclass(frozen=True)
class Lengths:
    """How long, and how often."""

    short: int = 100
    long: int = 100_000
    rounds: int = 5
    repeats: int = 20


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """The call as one that returns its seconds."""

    def run() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return run


def exchange(state: states.State) -> None:
    """One exchange from acceptance to answer: five transactions, two messages."""
    turn = factories.say(state.chat, "How late is it at the harbour?")
    claimed = transcript.claim(turn.session_id)
    transcript.start(claimed)
    transcript.finish(claimed, transcript.Step(text="Noon, and the tide is in.", model_name="m"))


def build(state: states.State) -> context.Context:
    """The context of the next request."""
    specs = [tool.spec for tool in runner.tools().values()]
    return context.build(state.turn.session_id, window=WINDOW, tools=specs)


def page(state: states.State, *, before: int | None = None) -> selectors.Page:
    """A page of the transcript: the newest turns, or those before a row."""
    return selectors.page_of(Session.objects.get(pk=state.turn.session_id), before=before)


@dataclass
class Folding:
    """An attempt that has read its rows and may commit; undone, so that it can be had again."""

    state: states.State

    def __post_init__(self) -> None:
        self.session_id = self.state.turn.session_id
        small, _ = ModelEndpoint.objects.get_or_create(
            name="small", kind=EndpointKind.OFFLINE, window=SMALL, priority=-1
        )
        Chat.objects.filter(pk=self.state.chat.pk).update(endpoint=small)

    def ready(self) -> tuple[fence.Claimed, fence.Written]:
        opened = intake.request_compaction(session_id=self.session_id, trigger=Trigger.MANUAL)
        assert isinstance(opened, CompactionAttempt), opened
        claimed = fence.claim(opened.pk, endpoint_id=None, model_name="m")
        assert claimed is not None
        read = source.read(claimed.attempt.session, claimed.attempt.cut, 50_000)
        assert read is not None
        assert fence.lower_cut(claimed.lease, read.cut, before_tokens=1)
        draft = transcript.Draft(text="Much was said.", body="Much.", covers_through=read.cut)
        return claimed, fence.Written(draft)

    def commit(self) -> float:
        """Seconds of one commit; the summary is taken back afterwards."""
        claimed, written = self.ready()
        began = time.perf_counter()
        verdict = fence.commit(claimed.lease, written)
        took = time.perf_counter() - began
        assert type(verdict).__name__ == "Commit", verdict
        chats.undo_summary(**self.state.who)
        return took


def folded(times: int, *, rows: int = FOLDED) -> states.State:
    """A session that was summed up so many times, so many rows each, and has as many above."""
    state = long_session(rows * (times + 1))
    for number in range(1, times + 1):
        with transaction.atomic():
            session = Session.objects.lock(state.turn.session_id)
            draft = transcript.Draft("Said before.", "Said.", covers_through=number * rows)
            transcript.apply_summary(session, draft, attempt_id=None, before=9, after=1)
            transcript.publish(session)
    return state


def rows_of_an_attempt(state: states.State) -> Touched:
    """What the server reads from opening an attempt to handing it over; it is cancelled then."""
    folding = Folding(state)
    touched = rows_touched(folding.ready)
    assert intake.cancel(session_id=folding.session_id, by_person=False)
    return touched


def rows_after_summaries(few: int, many: int, *, rows: int = FOLDED) -> tuple[Touched, Touched]:
    """What an attempt on the same number of new rows reads after few and after many summaries."""
    made = [folded(times, rows=rows) for times in (few, many)]
    analyze()
    return rows_of_an_attempt(made[0]), rows_of_an_attempt(made[1])


def figures(lengths: Lengths) -> list[Figure]:
    """B07 to B11."""
    with without_hints():
        return list(_figures(lengths))


def _figures(lengths: Lengths):
    short, long = long_session(lengths.short), long_session(lengths.long)
    fold = [
        Folding(long_session(size, covered=size - FOLDED)) for size in (lengths.short, lengths.long)
    ]
    analyze()
    size = f"{lengths.short:,} against {lengths.long:,} messages"
    often = {"rounds": lengths.rounds, "repeats": lengths.repeats}

    assert len(build(short).messages) == len(build(long).messages)
    compared = in_turn(timed(lambda: build(short)), timed(lambda: build(long)), **often)
    yield compared.figure("B08", f"context load, {size}", 1.2)

    deepest = 2 * selectors.TURNS + 1
    first = timed(lambda: page(long))
    last = timed(lambda: page(long, before=deepest))
    assert len(page(long).groups) == len(page(long, before=deepest).groups)
    compared = in_turn(first, last, **often)
    yield compared.figure("B09", f"history page, first against deepest of {lengths.long:,}", 1.3)

    compared = in_turn(timed(lambda: exchange(short)), timed(lambda: exchange(long)), **often)
    yield compared.figure("B07", f"append an exchange, {size}", 1.2)

    compared = in_turn(fold[0].commit, fold[1].commit, **often)
    yield compared.figure("B10", f"fence.commit, {size}", 1.2)

    few, many = rows_after_summaries(1, 50)
    yield Figure(
        "B11",
        "rows read by an attempt, after 1 against 50 summaries",
        round(many.rows / few.rows, 3),
        1.1,
        detail={"rows_after_1": few.rows, "rows_after_50": many.rows},
    )
