"""The properties of "Resume Means Resume" (arXiv:2608.03836), as far as turns and transcripts go.

No model takes part. Each test prints what it came to; ``HERMES_TEST_SIZE=full`` takes the full
sizes. Effects and completions have theirs in ``tests/processes/test_effects.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from hermes.lib import hints
from hermes.lib.db import DbNow
from hermes.lib.viewers import viewer_of
from hermes.web import frames, requests
from sessions_app import intake, sweeps, transcript
from sessions_app.domain import Done, Refused
from sessions_app.invariants import check_invariants
from sessions_app.models import Chat, ClientRequest, Message, Rewind, Session, Turn, TurnChunk
from tests import factories, states
from tests.faults import crash
from tests.races.explorer import race
from tests.socket.conftest import sign_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
ACKED = 20_000 if FULL else 120
FORKS = 100 if FULL else 6
RECOVERIES = 10 if FULL else 3
PAYLOADS = 200


@pytest.fixture(autouse=True)
def _no_hints(monkeypatch):
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)
    monkeypatch.setattr(hints, "push", lambda *_: None)


def told(name: str, text: str) -> None:
    print(f"\nresume: {name}: {text}")


def digest(value: Any) -> str:
    """What stands for a state."""
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --- Prefix continuation -------------------------------------------------------------------------


def write_on(state: states.State, acks: int) -> None:
    """Talk until killed; every message is acknowledged once its transaction has committed."""
    while True:
        turn = factories.say(state.chat, "next", client_id=f"{os.getpid()}-{time.monotonic_ns()}")
        claimed = transcript.claim(turn.session_id)
        assert claimed is not None
        if transcript.start(claimed):
            os.write(acks, b".")
        if transcript.finish(claimed, states.answer("done")):
            os.write(acks, b".")


def killed_writer(state: states.State, messages: int) -> int:
    """Let a process of its own write so many messages, kill it -9; how many were acknowledged."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            crash._fresh_connections()
            crash._without_hints()
            write_on(state, write)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    acked = 0
    while acked < messages and (came := os.read(read, 1)):
        acked += len(came)
    time.sleep(random.uniform(0, 0.01))  # it dies wherever it is by then
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    while came := os.read(read, 4096):
        acked += len(came)
    os.close(read)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the writer ended by itself"
    return acked


def test_prefix_continuation():
    """acked ≤ stored ≤ acked + 1 at each kill, without a gap; then it goes on."""
    state = states.fresh()
    session = Session.objects.get(chat=state.chat)
    acked = kills = 0
    stored = session.last_seq
    while acked < ACKED:
        mine = killed_writer(state, random.randint(1, min(600, ACKED // 3)))
        kills += 1
        acked += mine
        session.refresh_from_db()
        assert mine <= session.last_seq - stored <= mine + 1
        seqs = list(Message.objects.filter(session=session).values_list("seq", flat=True))
        assert sorted(seqs) == list(range(1, session.last_seq + 1))
        states.run_all(state)
        assert check_invariants(session.pk) == []
        session.refresh_from_db()
        stored = session.last_seq
    told("prefix continuation", f"{acked} acknowledged, {kills} kills, 0 lost")


# --- Fork determinism ----------------------------------------------------------------------------


def random_state(seed: int) -> states.State:
    """A transcript of its own: exchanges, tool calls, versions, things undone."""
    chosen = random.Random(seed)
    state = states.fresh()
    for number in range(chosen.randint(3, 9)):
        state.turn = factories.say(state.chat, f"question {number} of {seed} ✓")
        claimed = transcript.claim(state.turn.session_id)
        transcript.start(claimed)
        if chosen.random() < 0.4:
            transcript.append_step(claimed, states.answer("let me look", calls=(states.CALL,)))
            transcript.append_result(claimed, states.CALL, Done(f"noon {number}"))
        transcript.finish(claimed, states.answer(f"answer {number} of {seed}"))
        if chosen.random() < 0.3:
            intake.rewind_to(**state.who)
    return state


def transcript_of(session: Session) -> list[tuple[Any, ...]]:
    """What a branch has to hold, closed up."""
    rows = Message.objects.filter(session=session).live().order_by("seq")
    found = rows.values_list("role", "kind", "text", "parts", "tokens", "is_partial")
    return [(number, *row) for number, row in enumerate(found, 1)]


def test_fork_determinism():
    """Branching twice at one message gives the same transcript, and it is the live one."""
    for seed in range(FORKS):
        state = random_state(seed)
        session = Session.objects.get(chat=state.chat)
        at = random.Random(seed).choice(
            list(Message.objects.filter(session=session).live().values_list("seq", flat=True))
        )
        hashes = []
        for key in ("one", "two"):
            made = intake.branch(**state.who, client_id=key, seq=at, session_id=session.pk)
            copy = Session.objects.get(chat__uid=made["chat"])
            numbers = (copy.last_seq, copy.live_count, copy.live_tokens)
            hashes.append(digest([transcript_of(copy), numbers]))
            assert check_invariants(copy.pk) == []
        live = Message.objects.filter(session=session, seq__lte=at).live().count()
        assert hashes[0] == hashes[1]
        assert transcript_of(copy) == transcript_of(session)[:live]
        assert copy.last_seq == live
    told("fork determinism", f"{FORKS} transcripts, {2 * FORKS} branches, all equal")


# --- Checkpoint validity -------------------------------------------------------------------------

VALID: dict[str, dict[str, Any]] = {
    "turn.submit": {"id": "a", "text": "hello"},
    "turn.continue": {"id": "a"},
    "turn.regenerate": {"id": "a"},
    "turn.edit": {"id": "a", "turn": 1, "text": "hello"},
    "rewind.undo": {"rewind": 1},
    "queue.edit": {"turn": 1, "text": "hello"},
    "queue.delete": {"turn": 1},
    "queue.promote": {"turn": 1},
    "session.new": {"id": "a"},
    "chat.branch": {"id": "a", "session": 1, "seq": 1},
}
WRONG: dict[str, list[Any]] = {
    "id": [None, "", 7, "x" * 65, ["a"], "a\x00b", "\ud800", {"a": 1}, True],
    "text": [None, "", 7, " \n\t ", ["hello"], {"text": "hello"}, "x" * 300_000],
    "turn": [None, -1, "1", 1.5, True, 2**63, 10**9, [1], {}],
    "rewind": [None, -1, "1", 1.5, False, 2**64, 10**9],
    "session": [None, -1, "1", 1.5, True, 2**63, 10**9],
    "seq": [None, -1, "1", 1.5, True, 2**63, 10**9],
}


def mutated_frame(chosen: random.Random) -> str:
    """A frame that says something that cannot be stored."""
    kind = chosen.choice(sorted(VALID))
    frame = {"type": kind, **VALID[kind]}
    name = chosen.choice(sorted(VALID[kind]))
    match chosen.randrange(8):
        case 0:
            del frame[name]
        case 1:
            frame["type"] = chosen.choice([None, 1, "turn", kind.upper(), kind + ".x", [kind]])
        case 2:
            frame["chat"] = "00000000-0000-0000-0000-000000000000"
        case 3:
            return json.dumps(frame)[: chosen.randint(1, 12)]
        case 4:
            frame["ref"] = chosen.choice([1, "r" * 129, ["r"]])
        case _:
            frame[name] = chosen.choice(WRONG[name])
            if frame[name] is None and kind == "turn.regenerate":
                frame["id"] = None
    return json.dumps(frame)


def all_rows() -> list[int]:
    """How many rows there are of everything that a client can make."""
    return [m.objects.count() for m in (Chat, Session, Turn, Message, Rewind, ClientRequest)]


def test_mutated_frames_write_nothing():
    """What a client sends is refused with a code, and nothing of it is stored."""
    chosen = random.Random(11)
    state = states.fresh()
    viewer = viewer_of(sign_in(state.chat.owner).partition("=")[2])
    before, session = all_rows(), Session.objects.get(chat=state.chat)
    codes: dict[str, int] = {}
    for _ in range(PAYLOADS):
        text = mutated_frame(chosen)
        command = frames.parse(text, chat=str(state.chat.uid), session=session.pk)
        if isinstance(command, frames.Bad):
            code = command.code
        else:
            with pytest.raises(Refused) as refused:
                requests.carry_out(viewer, state.chat.pk, command)
            code = str(refused.value.code)
        codes[code] = codes.get(code, 0) + 1
        assert all_rows() == before, text[:200]
    session.refresh_from_db()
    assert session.version == Session.objects.get(pk=session.pk).version
    assert len(codes) >= 4
    told("checkpoint validity", f"{PAYLOADS} mutated frames refused, {codes}")


def bad_rows(state: states.State, other: Turn) -> list[Callable[[], object]]:
    """Writes of rows that may not be."""
    turn, session = state.turn, Session.objects.get(chat=state.chat)
    mine = Turn.objects.filter(pk=turn.pk)
    ours = Session.objects.filter(pk=session.pk)
    first = Message.objects.filter(session=session, seq=1)
    now = DbNow()
    return [
        lambda: mine.update(status="completed"),
        lambda: mine.update(status="running", lease_expires_at=None),
        lambda: mine.update(status="waiting", lease_expires_at=None, wait_key=""),
        lambda: mine.update(status="cancelled", finished_at=now),
        lambda: mine.update(finished_at=now),
        lambda: mine.update(client_turn_id=other.client_turn_id),
        lambda: mine.update(position=None),
        lambda: mine.update(fence_token=-1),
        lambda: mine.update(session=None),
        lambda: Turn.objects.filter(pk=other.pk).update(
            status="running", finished_at=None, lease_expires_at=now
        ),
        lambda: ours.update(ended_at=now),
        lambda: ours.update(end_reason="session_reset"),
        lambda: ours.update(live_tokens=-1),
        lambda: ours.update(live_count=-1),
        lambda: ours.update(last_seq=-1),
        lambda: Session.objects.create(key="k", chat=state.chat, number=2),
        lambda: Session.objects.create(
            key="k", chat=state.chat, number=1, ended_at=now, end_reason="session_reset"
        ),
        lambda: first.update(seq=2),
        lambda: first.update(seq=-1),
        lambda: first.update(text="", parts={}),
        lambda: first.update(session=None),
        lambda: first.update(tokens=-5),
        lambda: Message.objects.create(session=session, seq=1, role="user", text="again"),
        lambda: Message.objects.create(session=session, seq=9, role="user"),
        lambda: Message.objects.create(session_id=10**9, seq=1, role="user", text="nowhere"),
        lambda: Message.objects.create(session=session, seq=9, role="user", text="a\x00b"),
        lambda: Rewind.objects.create(session=session, group=1, after_seq=0, from_seq=2, to_seq=1),
        lambda: TurnChunk.objects.create(turn=turn, run=1, n=0, offset=0, text="twice"),
        lambda: TurnChunk.objects.create(turn=turn, run=1, n=9, offset=-1, text="before"),
        lambda: Chat.objects.filter(pk=state.chat.pk).update(key=None),
    ]


def test_mutated_rows_are_refused_by_the_database():
    """What no code should write, no code can write."""
    state = states.running()
    other = Turn.objects.filter(chat=state.chat, status="completed").get()
    before, refused = all_rows(), 0
    for number, write in enumerate(bad_rows(state, other)):
        try:
            with transaction.atomic():
                write()
        except (DatabaseError, ValueError):  # ValueError: NUL, which the driver refuses
            refused += 1
        else:
            pytest.fail(f"row {number} was written")
    assert all_rows() == before
    assert states.violations(state) == []
    told("checkpoint validity", f"{refused} mutated rows refused")


# --- Recovery determinism ------------------------------------------------------------------------


def lost_states() -> list[states.State]:
    """Turns whose worker is gone, at every stage."""
    made = [states.claimed, states.started, states.running, states.calling]
    return [make() for make in made]


def state_of(all_states: list[states.State]) -> list[Any]:
    """What recovery is to bring about, without keys and times."""
    found: list[Any] = []
    for state in all_states:
        turn = state.again()
        session = turn.session
        found.append(
            [
                (turn.status, turn.put_back, turn.error_code, turn.fence_token, turn.length),
                (session.version, session.last_seq, session.live_tokens, session.live_count),
                transcript_of(session),
            ]
        )
    return found


def expire(all_states: list[states.State]) -> None:
    for state in all_states:
        Turn.objects.filter(chat=state.chat, status="running").update(lease_expires_at=DbNow())


def test_recovery_determinism():
    """Two recoverers at once leave what one leaves, and a second recovery changes nothing."""
    hashes = set()
    for _ in range(RECOVERIES):
        for recoverers in (1, 2):
            lost = lost_states()
            expire(lost)
            race(recoverers, lambda: list(sweeps.end_abandoned()))
            once = digest(state_of(lost))
            list(sweeps.end_abandoned())
            assert digest(state_of(lost)) == once
            assert [line for state in lost for line in states.violations(state)] == []
            hashes.add(once)
            Turn.objects.filter(status="queued").update(status="cancelled", finished_at=DbNow())
    assert len(hashes) == 1
    told("recovery determinism", f"{RECOVERIES} × 2 recoverers at once, one state")
