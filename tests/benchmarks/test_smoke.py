"""Small sizes of the benchmarks: that they run, and what can be counted instead of timed."""

from __future__ import annotations

import pytest

from hermes.web import selectors
from sessions_app import intake

from . import costs, lengths, streams
from .counting import rows_touched
from .figures import Compared, in_turn
from .ground import Ground, without_hints
from .seeds import analyze, long_session

LONG = ("sessions_app_message", "sessions_app_turn")  # tables that no reading may walk through


@pytest.fixture
def _quiet(transactional_db):
    with without_hints():
        yield


@pytest.mark.usefixtures("_quiet")
def test_a_turn_and_a_page_take_the_statements_that_are_named():
    turn, page = costs.queries_of_a_turn(), costs.queries_of_a_page()
    assert 10 < len(turn) <= costs.TURN, "\n".join(turn.told())
    assert 5 < len(page) <= costs.PAGE, page.told()
    assert any("transcript.turns.claim" in name for name in turn.names)
    assert any("save_chunk" in name for name in turn.names)  # other threads are counted too


@pytest.mark.usefixtures("_quiet")
def test_no_length_makes_the_server_read_more():
    short, long = long_session(100), long_session(12_000)
    fold = [lengths.Folding(long_session(size, covered=size - 60)) for size in (100, 12_000)]
    analyze()
    deepest = 2 * selectors.TURNS + 1
    works = {
        "context": (lambda: lengths.build(short), lambda: lengths.build(long)),
        "page": (lambda: lengths.page(short), lambda: lengths.page(long)),
        "deepest": (lambda: lengths.page(long), lambda: lengths.page(long, before=deepest)),
        "append": (lambda: lengths.exchange(short), lambda: lengths.exchange(long)),
        "commit": (fold[0].commit, fold[1].commit),
    }
    for name, (a, b) in works.items():
        one, other = rows_touched(a), rows_touched(b)
        # A page that is full reads one row more and the turns beside its rows.
        assert other.rows <= 1.2 * one.rows + 2 * selectors.ROWS, (name, one, other)
        assert not other.scanned & set(LONG), (name, other)
        assert other.statements <= one.statements + 1, (name, one, other)


@pytest.mark.usefixtures("_quiet")
def test_no_length_makes_taking_the_last_exchange_back_read_more():
    short, long = long_session(100), long_session(12_000)
    analyze()
    one, other = (rows_touched(lambda s=s: intake.rewind_to(**s.who)) for s in (short, long))

    assert other.rows <= one.rows + 50, (one, other)
    assert not other.scanned & set(LONG), other


@pytest.mark.usefixtures("_quiet")
def test_a_scan_is_seen():
    """The count would show a reading that walks through a transcript."""
    state = long_session(12_000)
    analyze()
    from sessions_app.models import Message

    touched = rows_touched(lambda: list(Message.objects.filter(text__contains="nowhere")))
    assert touched.rows >= 12_000
    assert touched.scanned == {"sessions_app_message"}
    assert len(lengths.build(state).messages) > 10


@pytest.mark.usefixtures("_quiet")
def test_an_attempt_reads_what_is_new_however_often_it_was_done():
    few, many = lengths.rows_after_summaries(1, 12)
    assert many.rows <= 1.1 * few.rows, (few, many)


@pytest.mark.process
async def test_more_streams_than_connections(transactional_db, process_environment, tmp_path):
    pool, crowd = 8, 16
    flow = streams.Flow(rate=100.0, crowd=crowd, crowd_tokens=60)
    ground = Ground(tmp_path, process_environment)
    with ground.ends:
        product = await streams.rows(streams.start)(
            ground, threads=crowd, small=8_000, HERMES_DB_POOL=str(pool)
        )
        streams.script(product.model, flow)
        most, at_once = await streams.most_connections(product, flow)
    assert at_once == crowd
    assert set(most) == {streams.WEB, streams.WORKER}
    assert max(most.values()) <= pool, most


def test_ratios_are_those_of_rounds():
    compared = Compared()
    for a, b in ((1.0, 2.0), (2.0, 2.0), (1.0, 1.5)):
        compared.add([a], [b])
    assert (compared.ratio, compared.rounds) == (1.5, 3)
    ticks = iter(range(100))
    assert in_turn(lambda: next(ticks) + 1, lambda: 2, rounds=3, repeats=2).rounds == 3
