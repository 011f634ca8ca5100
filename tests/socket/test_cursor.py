"""Whatever happens to hints, text is put together once, in order and whole."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hermes.web.cursor import Closed, Cursor, Live, Move, Seen, Stream, TurnSeen

texts = st.text(alphabet="ab\n é😀", max_size=60)


@st.composite
def mistreated(draw):
    """A text, and its pieces as hints: some lost, some twice, in any order, some overlapping."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    pieces = [(a, text[a:b]) for a, b in itertools.pairwise(edges)]
    pieces += [(a, text[a : a + 5]) for a in draw(st.lists(st.integers(0, len(text)), max_size=3))]
    kept = [piece for piece in pieces if draw(st.booleans())]
    doubled = [piece for piece in kept if draw(st.booleans())]
    return text, draw(st.permutations(kept + doubled))


@given(mistreated(), st.integers(0, 40))
def test_a_stream_only_ever_holds_a_prefix(case, base):
    text, hints = case
    stream = Stream(1, 1, 1)
    stream.open(base, "")
    for offset, piece in hints:
        before = stream.text
        move = stream.take(base + offset, piece)
        assert text.startswith(stream.text)
        assert (move is Move.GREW) == (stream.text != before)


@given(mistreated(), st.integers(0, 40), st.data())
def test_rows_make_it_whole(case, base, data):
    text, hints = case
    stream = Stream(1, 1, 1)
    opened_after = data.draw(st.integers(0, len(hints)))
    for number, (offset, piece) in enumerate(hints):
        if number == opened_after:
            stream.open(base, text[: data.draw(st.integers(0, len(text)))])
        stream.take(base + offset, piece)
    stream.open(base, text)
    assert (stream.text, stream.end) == (text, base + len(text))
    assert not stream.has_gap


@given(mistreated(), st.data())
def test_a_step_that_is_committed_moves_the_base(case, data):
    text, hints = case
    base = data.draw(st.integers(0, len(text)))
    stream = Stream(1, 1, 1)
    stream.open(0, "")
    for offset, piece in hints:
        stream.take(offset, piece)
    stream.open(base, text[base:])
    assert (stream.base, stream.text) == (base, text[base:])


def seen(**fields):
    return Seen(**{"chat": 1, "session": 1, "version": 5, **fields})


def running(base=0, run=1):
    return TurnSeen(id=9, run=run, status="running", started=True, base=base)


def ended(length, said, **fields):
    told = {"id": 9, "run": 1, "status": "completed", "started": True, "base": length, "said": said}
    return TurnSeen(**{**told, **fields})


class Reader:
    """Applies frames as docs/frames.md says; fails on any gap or repeat."""

    def __init__(self):
        self.base, self.text, self.end = 0, "", None
        self.blocks: list[str] = []
        self.open = ""

    def take(self, frames):
        for frame in frames:
            match frame["type"]:
                case "turn.started" | "turn.tool":
                    self.base, self.text = frame["base"], ""
                    self.blocks, self.open = [], ""
                case "turn.delta":
                    assert frame["offset"] == self.base + len(self.text)
                    self.text += frame["text"]
                    self.open += frame["text"]
                case "turn.block":
                    assert frame["k"] == len(self.blocks)
                    assert frame["from"] == self.base + len("".join(self.blocks))
                    self.blocks.append(frame["html"])
                    self.open = frame["open"]
                    self.text = "".join(self.blocks) + self.open
                    assert frame["to"] == self.base + len("".join(self.blocks))
                case "turn.completed" | "turn.interrupted":
                    self.end = frame["len"]
                    self.text = self.text[: frame["len"] - self.base]


@given(mistreated(), st.integers(0, 30), st.data())
def test_a_client_gets_every_sign_once(case, base, data):
    text, hints = case
    stream, cursor, reader = Stream(9, 1, 1), Cursor(session=1), Reader()
    start = seen(turns=[running(base)], live=Live(9, 1, base, ""))
    looked = data.draw(st.integers(0, len(hints)))
    for number, (offset, piece) in enumerate(hints):
        if number == looked:
            stream.open(base, "")
            reader.take(cursor.advance(start, stream))
        stream.take(base + offset, piece)
        reader.take(cursor.follow(stream))
        assert text.startswith(reader.text)
    if looked == len(hints):
        stream.open(base, "")
        reader.take(cursor.advance(start, stream))
    said = "x" * base + text
    frames = cursor.advance(seen(version=6, turns=[ended(len(said), said)]), stream)
    reader.take(frames)
    assert reader.text == text
    assert reader.end == base + len(text)
    assert frames[-1]["type"] == "turn.completed"
    assert cursor.turn is None


@given(texts, st.data())
def test_blocks_and_deltas_together_are_the_text(text, data):
    """Blocks close later than their text was sent, or sooner; their html is their text here."""
    stream, cursor, reader = Stream(9, 1, 1), Cursor(html=True, session=1), Reader()
    stream.open(0, "")
    reader.take(cursor.advance(seen(turns=[running()], live=Live(9, 1, 0, "")), stream))
    fed = closed = 0
    while closed < len(text):
        if fed < len(text):
            step = data.draw(st.integers(1, len(text) - fed))
            stream.take(fed, text[fed : fed + step])
            fed += step
        if data.draw(st.booleans()):
            reader.take(cursor.follow(stream))
            assert reader.text == text[:fed]
        if data.draw(st.booleans()):
            stop = data.draw(st.integers(closed, fed))
            if stop > closed:
                stream.blocks.append(Closed(len(stream.blocks), closed, stop, text[closed:stop]))
                closed = stop
        elif fed == len(text):
            stream.blocks.append(Closed(len(stream.blocks), closed, fed, text[closed:fed]))
            closed = fed
    reader.take(cursor.follow(stream))
    assert reader.text == text
    assert "".join(reader.blocks) == text


def test_an_end_with_less_than_was_shown_cuts_back():
    stream, cursor, reader = Stream(9, 1, 1), Cursor(session=1), Reader()
    stream.open(0, "all of this was shown")
    reader.take(cursor.advance(seen(turns=[running()], live=Live(9, 1, 0, "")), stream))
    end = ended(11, "all of this", status="interrupted", code="worker_lost")
    reader.take(cursor.advance(seen(version=6, turns=[end]), stream))
    assert (reader.text, reader.end) == ("all of this", 11)


def test_a_second_look_says_nothing_again():
    stream, cursor = Stream(9, 1, 1), Cursor(session=1)
    look = seen(queue=[{"turn": 3, "text": "x"}])
    assert [frame["type"] for frame in cursor.advance(look, None)] == ["queue"]
    assert cursor.advance(look, stream) == []


def test_a_new_run_begins_anew():
    stream, cursor, reader = Stream(9, 1, 1), Cursor(session=1), Reader()
    stream.open(0, "first try")
    reader.take(cursor.advance(seen(turns=[running()], live=Live(9, 1, 0, "")), stream))
    queued = TurnSeen(id=9, run=1, status="queued", started=True, base=0)
    frames = cursor.advance(seen(version=6, turns=[queued]), None)
    assert [frame["type"] for frame in frames] == ["turn.queued"]
    again = Stream(9, 2, 1)
    again.open(0, "sec")
    reader.take(
        cursor.advance(seen(version=7, turns=[running(run=2)], live=Live(9, 2, 0, "")), again)
    )
    assert reader.text == "sec"
    stream.take(9, " and late text")
    assert cursor.follow(stream) == []


def test_a_turn_that_ran_unseen_is_told_by_its_end():
    cursor = Cursor(session=1)
    frames = cursor.advance(seen(turns=[ended(3, None, messages=[])]), None)
    assert [frame["type"] for frame in frames] == ["turn.completed"]


def test_a_gate_that_holds_is_told_once():
    cursor = Cursor(session=1)
    held = TurnSeen(id=9, run=1, status="running", started=False, base=0, text="hi")
    assert [f["type"] for f in cursor.advance(seen(turns=[held]), None)] == ["turn.held"]
    assert cursor.advance(seen(turns=[held]), None) == []


def test_an_end_behind_the_next_turn_is_told_once_and_followed_no_more():
    # A claim changes no version: the next turn, accepted before the end, may come before it.
    cursor, stream, reader = Cursor(session=1), Stream(9, 1, 1), Reader()
    stream.open(0, "so far ")
    reader.take(cursor.advance(seen(turns=[running()]), stream))
    held = TurnSeen(id=10, run=1, status="running", started=False, base=0, text="next")
    stream.take(7, "so good")
    frames = cursor.advance(seen(turns=[held, ended(14, "so far so good")]), stream)
    reader.take(frames)

    assert [frame["type"] for frame in frames] == ["turn.held", "turn.delta", "turn.completed"]
    assert reader.text == "so far so good"
    assert cursor.follow(stream) == []
    assert cursor.busy == (10, 1, "held")
    assert cursor.advance(seen(turns=[held]), stream) == []
