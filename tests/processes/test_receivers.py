"""What listening to the transcript costs, and that nothing due is missed by being cheap."""

from __future__ import annotations

import pytest

from processes_app import intake, sweeps, tasks, verdicts
from processes_app.domain import KillBy, process_key
from processes_app.facts import concerned, looked_at
from processes_app.models import ProcessRecord
from sessions_app.models import Chat, Session, Turn
from tests import factories, states
from tests.benchmarks.counting import counted, rows_touched
from tests.benchmarks.seeds import analyze

from . import facts

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hinted(monkeypatch):
    found: list[tuple] = []
    for module in ("events", "turns"):
        monkeypatch.setattr(
            f"processes_app.intake.{module}.enqueue", lambda *words: found.append(words)
        )
    return found


def follow(state) -> list[str]:
    turn = Turn.objects.filter(chat=state.chat).latest("pk")
    with counted() as queries:
        intake.follow_turn(session_id=turn.session_id, turn_id=turn.pk)
    return queries.told()


def test_a_turn_without_anything_costs_one_statement(hinted):
    state = facts.talked()

    assert len(follow(state)) == 1
    assert hinted == []


def test_an_old_process_and_settled_news_cost_no_more(hinted):
    state = facts.ended()
    facts.run_turns(state)
    hinted.clear()

    assert len(follow(state)) == 1
    assert hinted == []


def test_news_that_is_due_is_hinted_once_with_its_address(hinted):
    state = facts.ended()

    assert len(follow(state)) == 1
    assert hinted == [(tasks.deliver, state.chat.key)]


def test_a_report_of_another_address_is_hinted_too(hinted):
    state = facts.accepted()
    state.event.__class__.objects.filter(pk=state.event.pk).update(origin_chat="elsewhere")
    follow(state)

    assert hinted == [(tasks.deliver, "elsewhere")]


def test_what_belonged_to_the_turn_is_ended(hinted):
    state = facts.talked()
    turn = Turn.objects.get(chat=state.chat)
    process = facts.add_process(state, is_foreground=True, turn_id_meant=turn.pk, call_id="c")
    follow(state)

    assert ProcessRecord.objects.get(pk=process.pk).kill_by == KillBy.TURN


def test_however_often_a_person_began_afresh_settling_reads_the_same():
    def sessions_read(resets: int) -> int:
        state = facts.talked()
        for _ in range(resets):
            facts.reset(state)
        factories.say(state.chat, "again")
        process = facts.add_process(state)
        facts.end(process)
        chats = list(Chat.objects.filter(pk__in=concerned(state.chat.key, [])))
        found = looked_at(chats, [process.origin_session]).count()
        assert verdicts.settle(state.chat.key).accepted == 1
        return found

    assert sessions_read(1) == sessions_read(30) == 1


def test_a_wake_up_that_was_lost_is_found_behind_many_that_wait():
    """More turns than a sweep looks at wait for processes that run; the one behind them goes on."""

    def waits(process: ProcessRecord) -> Turn:
        turn = Turn.objects.get(pk=state.turn.pk)
        Turn.objects.filter(pk=turn.pk).update(wait_key=process_key(process.uid))
        return turn

    for _ in range(sweeps.BATCH + 1):
        state = states.waiting()
        waits(facts.add_process(state))
    state = states.waiting()
    turn = waits(facts.add_process(state))
    facts.end(ProcessRecord.objects.latest("pk"))

    assert sweeps.wake_for_ended() == 1
    assert Turn.objects.get(pk=turn.pk).status == "queued"


def test_news_whose_hint_was_lost_is_found_behind_chats_that_wait(monkeypatch):
    """Chats whose report waits behind a long turn keep no sweep from the chats behind them."""
    monkeypatch.setattr(sweeps, "BATCH", 2)
    for _ in range(sweeps.BATCH):
        state = facts.accepted()
        facts.end(facts.add_process(state))
    state = facts.ended()

    sweeps.settle_due()
    assert state.event.status == "accepted"


def test_looking_for_delegated_agents_walks_through_no_chats():
    owner = factories.person()
    chats = Chat.objects.bulk_create(Chat(key=f"c{n}", owner=owner) for n in range(2000))
    Session.objects.bulk_create(Session(key=c.key, chat=c, number=1) for c in chats)
    analyze()

    assert rows_touched(sweeps.tell_delegated).rows <= 1
