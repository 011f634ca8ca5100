"""Two properties of "Resume Means Resume" (arXiv:2608.03836), with commands that really run.

An effect happens once: the command writes a line into a file each time it runs, and whoever asks
for it, starts it or tells of it is killed at one statement after another. News is used up once,
however many deliver it at the same moment.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from hermes.lib.db import db_now
from processes_app import intake, runner, verdicts
from processes_app.domain import KillBy, ProcessReason, ProcessStatus
from processes_app.models import CompletionEvent, ProcessRecord
from processes_app.supervisor import Supervisor
from sessions_app import transcript
from sessions_app.models import History
from tests import factories
from tests.faults import crash
from tests.races.explorer import race

from . import facts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]

FULL = os.environ.get("HERMES_TEST_SIZE") == "full"
SEED = int(os.environ.get("HERMES_TEST_SEED", "1"))
KILLS = 1000 if FULL else 24
COMPLETIONS = 20 if FULL else 2
# More points than each has statements: the last of them are lives without a kill.
ASKING, SUPERVISING, TELLING = 40, 44, 60


@pytest.fixture(autouse=True)
def _many(settings, caplog):
    settings.HERMES_PROCESSES_IN_ALL = settings.HERMES_PROCESSES_A_PERSON = 100_000
    settings.HERMES_AUTOMATIC_TURNS = settings.HERMES_WAKES_AN_HOUR = 100_000
    caplog.set_level("WARNING")


def points(chance: random.Random, count: int):
    """Every point once, in any order, again and again."""
    while True:
        yield from chance.sample(range(count), count)


def supervise(process_id: int) -> None:
    """A supervisor that leaves when the process has ended."""
    supervisor, deadline = Supervisor(), time.monotonic() + 30
    while ProcessRecord.objects.active().filter(pk=process_id).exists():
        assert time.monotonic() < deadline, "it did not end"
        supervisor.look()
        time.sleep(0.01)


def test_a_command_that_was_asked_for_runs_once(places):
    chance = random.Random(SEED)
    asking, supervising, telling = (
        points(chance, count) for count in (ASKING, SUPERVISING, TELLING)
    )
    kills, lives = 0, 0
    while kills < KILLS:
        state = facts.talked()
        state.turn = factories.say(state.chat, "run it")
        state.claimed = transcript.claim(state.turn.session_id)
        transcript.start(state.claimed)
        journal = places / f"journal-{lives}"

        def ask(state=state, journal=journal):
            command = f"echo ran >> {journal}"
            return intake.start_process(
                state.claimed.facts, "call-1", intake.Ask(command, is_foreground=False)
            )

        codes = [crash.in_child(ask, next(asking))]
        ask()
        state.process = ProcessRecord.objects.get(origin_chat=state.chat.key)
        codes.append(crash.in_child(lambda s=state: supervise(s.process.pk), next(supervising)))
        supervise(state.process.pk)
        codes.append(crash.in_child(lambda s=state: verdicts.settle(s.chat.key), next(telling)))
        assert set(codes) <= {crash.CAME_THROUGH, crash.EMPTY, crash.DIED}
        facts.states.run_all(state)
        facts.run_turns(state)

        assert journal.read_text() == "ran\n"
        assert len(facts.told(state.chat)) == 1
        assert CompletionEvent.objects.get(process=state.process).status == "delivered"
        assert facts.violations(state) == []
        kills += codes.count(crash.DIED)
        lives += 1
    print(
        f"\nresume: effect exactly-once: {lives} commands, {kills} kills, each ran once and was "
        "told once"
    )


def _killed_by_its_person() -> facts.Background:
    state = facts.running()
    intake.ask_kill(state.process.pk, by=KillBy.PERSON, actor="me")
    end = intake.End(ProcessStatus.ENDED, ProcessReason.KILLED, body="done\n", ended_at=db_now())
    intake.record_end(state.process.pk, end)
    return state


@pytest.mark.parametrize("count", [2, 8, 16])
def test_news_is_used_up_once(count):
    for number in range(2 * COMPLETIONS):
        is_quiet = bool(number % 2)
        state = _killed_by_its_person() if is_quiet else facts.ended()
        event = state.event
        answers = race(count, lambda: runner.deliver_event(event.pk))  # noqa: B023

        placed = [] if is_quiet else [True]  # what is quiet is put into no turn
        assert [answer for answer in answers if answer] == placed
        facts.run_turns(state)
        status = "quiet" if is_quiet else "delivered"
        moves = History.objects.filter(subject=f"completion:{event.pk}", to=status)
        assert (state.event.status, moves.count()) == (status, 1)
        assert len(facts.told(state.chat)) == len(placed)
        assert facts.violations(state) == []
    print(
        f"\nresume: consume-once: {count} at once, {COMPLETIONS} that start a turn and "
        f"{COMPLETIONS} quiet ones, exactly 1 each"
    )
