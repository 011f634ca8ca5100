"""What becomes of news in rows: batches, pace, lineages, operators, turns that did not start."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hermes.lib.db import db_now
from processes_app import gate, intake, runner, sweeps, verdicts
from processes_app.domain import Deliver, EventKind
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app import sweeps as session_sweeps
from sessions_app import transcript
from sessions_app.domain import Drop, Pass
from sessions_app.models import Chat, History, Session, Turn
from tests import factories, states
from tests.faults.crash import losing

from . import facts

pytestmark = pytest.mark.django_db(transaction=True)


def outcome(event) -> tuple[str, str]:
    event.refresh_from_db()
    return event.status, event.reason or event.quiet_because or event.held


def many(state, count: int) -> list[CompletionEvent]:
    for number in range(count):
        facts.end(facts.add_process(state, command=f"echo {number}"), body=f"n-{number}.\n")
    return list(CompletionEvent.objects.filter(origin_chat=state.chat.key).order_by("pk"))


def test_many_exits_make_one_turn_of_ten_oldest_first():
    state = facts.talked()
    events = many(state, 25)
    runner.deliver(state.chat.key)
    assert [event.status for event in _again(events)].count("accepted") == 10
    assert len(facts.reporting(state.chat)) == 1
    facts.run_turns(state)

    texts = facts.told(state.chat)
    assert [len([n for n in range(25) if f"n-{n}." in text]) for text in texts] == [10, 10, 5]
    order = [texts[0].index(f"n-{n}.") for n in range(10)]
    assert order == sorted(order)
    assert facts.violations(state) == []


def test_a_hundred_exits_make_ten_turns_and_people_come_first(settings):
    settings.HERMES_AUTOMATIC_TURNS = settings.HERMES_WAKES_AN_HOUR = 1000
    state = facts.talked()
    events = many(state, 100)
    runner.deliver(state.chat.key)
    said = factories.say(state.chat, "me first")
    facts.run_turns(state)

    assert len(facts.told(state.chat)) == 10
    assert {event.status for event in _again(events)} == {"delivered"}
    first = Turn.objects.filter(chat=state.chat, source="completion").order_by("started_at")[0]
    assert Turn.objects.get(pk=said.pk).started_at < first.started_at
    assert facts.violations(state) == []


def test_what_cannot_move_is_not_asked_for_again_at_once(monkeypatch):
    monkeypatch.setattr(verdicts, "BATCH", 15)
    state = facts.talked()
    many(state, 20)
    assert runner.deliver(state.chat.key)
    assert not runner.deliver(state.chat.key)


def test_what_waits_behind_a_queued_turn_is_not_even_locked():
    state = facts.talked()
    many(state, 25)
    runner.deliver(state.chat.key)
    with CaptureQueriesContext(connection) as queries:
        settled = verdicts.settle(state.chat.key)
    assert settled.looked_at == 0
    assert len([each for each in queries if "FOR NO KEY UPDATE" in each["sql"]]) == 0
    facts.run_turns(state)
    assert len(facts.told(state.chat)) == 3


def test_behind_a_queued_turn_other_sessions_are_settled():
    state = facts.accepted()
    facts.end(facts.add_process(state))
    other = facts.end(facts.add_process(state, origin_session="purged"))
    assert other
    runner.deliver(state.chat.key)
    assert [event.status for event in CompletionEvent.objects.order_by("pk")] == [
        "accepted",
        "pending",
        "dropped",
    ]


def _again(events):
    return list(CompletionEvent.objects.filter(pk__in=[event.pk for event in events]))


def test_queued_people_go_first():
    state = facts.ended()
    runner.deliver(state.chat.key)
    said = factories.say(state.chat, "me first")
    claimed = transcript.claim(said.session_id)

    assert claimed.turn.pk == said.pk


def test_news_is_nobodys_activity():
    state = facts.ended()
    before = Chat.objects.get(pk=state.chat.pk)
    facts.run_turns(state)
    after = Chat.objects.get(pk=state.chat.pk)

    assert (after.active_at, after.title) == (before.active_at, before.title)


def test_unknown_types_are_dropped_by_name(allow_errors):
    state = facts.ended()
    CompletionEvent.objects.update(kind="watch_match")
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("dropped", "unknown_type")
    assert [record.getMessage() for record in allow_errors] == ["completion dropped"]


def test_old_news_is_quiet():
    state = facts.running()
    facts.end(state.process, ended_at=db_now() - timedelta(hours=7))
    version = Chat.objects.get(pk=state.chat.pk).version
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("quiet", "too_old")
    assert state.event.delivered_to == state.process.origin_session
    assert Chat.objects.get(pk=state.chat.pk).version > version
    assert facts.reporting(state.chat) == []


def test_an_inactive_owner_gets_nothing():
    state = facts.ended()
    state.chat.owner.is_active = False
    state.chat.owner.save(update_fields=["is_active"])
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("dropped", "owner_inactive")


def test_a_person_who_began_another_session_is_shown_it_quietly():
    state = facts.running()
    facts.end_idle(state)
    chat = Chat.objects.get(pk=state.chat.pk)
    other = Session.objects.create(chat=chat, key="newer", number=2, begun_by="user")
    Chat.objects.filter(pk=chat.pk).update(current=other)
    facts.end(state.process)
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("quiet", "newer_session")


def test_sessions_begun_by_the_system_are_followed():
    state = facts.running()
    facts.end_idle(state)
    other = Session.objects.create(chat=state.chat, key="newer", number=2, begun_by="system")
    Chat.objects.filter(pk=state.chat.pk).update(current=other)
    facts.end(state.process)
    facts.run_turns(state)

    assert outcome(state.event) == ("delivered", "")
    assert state.event.delivered_to == "newer"
    assert facts.violations(state) == []


def test_a_deleted_chat_is_a_boundary_also_after_an_idle_end():
    state = facts.running()
    facts.end_idle(state)
    chats.delete_chat(**state.who)
    facts.end(state.process)
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("dropped", "closed_by_user")


# --- Lineages ------------------------------------------------------------------------------------


def continued(state, count: int, *, cyclic: bool = False) -> list[Session]:
    """The open session ended by compression, so many times over."""
    made = [Session.objects.get(chat=state.chat, ended_at=None)]
    for number in range(2, count + 2):
        Session.objects.filter(pk=made[-1].pk).update(ended_at=db_now(), end_reason="compression")
        made.append(
            Session.objects.create(
                chat=state.chat, key=f"tip-{number}", number=number, continues=made[-1].key
            )
        )
    if cyclic:
        Session.objects.filter(pk=made[-1].pk).update(ended_at=db_now(), end_reason="compression")
        Session.objects.filter(pk=made[0].pk).update(continues=made[-1].key)
    Chat.objects.filter(pk=state.chat.pk).update(current=made[-1])
    return made


def test_a_lineage_of_five_leads_to_its_tip():
    state = facts.running()
    continued(state, 5)
    facts.end(state.process)
    facts.run_turns(state)

    assert outcome(state.event) == ("delivered", "")
    assert state.event.delivered_to == "tip-6"
    assert facts.violations(state) == []


def test_a_cycle_is_dropped(allow_errors):
    state = facts.running()
    continued(state, 2, cyclic=True)
    facts.end(state.process)
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("dropped", "owner_unproven")


def test_a_tip_that_is_not_there_yet_is_waited_for(allow_errors):
    state = facts.running()
    Session.objects.filter(chat=state.chat).update(ended_at=db_now(), end_reason="compression")
    facts.end(state.process)
    event = state.event
    assert runner.deliver_event(event.pk) is False
    assert outcome(event) == ("pending", "tip")
    assert (event.attempt, event.waits_since is not None) == (1, True)
    _due(event, waits_since=db_now() - timedelta(minutes=3))
    assert runner.deliver_event(event.pk) is None
    assert outcome(event) == ("dropped", "owner_unproven")


def _due(event, **columns):
    CompletionEvent.objects.filter(pk=event.pk).update(due_at=db_now(), **columns)


def delegated(state, depth: int = 1) -> Session:
    """A session of an agent that was delegated so many times over."""
    key = Session.objects.get(chat=state.chat, ended_at=None).key
    for number in range(depth):
        chat = Chat.objects.create(
            key=f"agent:main:delegate:{number}",
            owner=state.chat.owner,
            is_hidden=True,
            delegated_by=key,
        )
        session = Session.objects.create(chat=chat, key=f"child-{number}", number=1)
        Chat.objects.filter(pk=chat.pk).update(current=session)
        key = session.key
    return session


def of_child(state, session: Session, **columns) -> CompletionEvent:
    state.process = facts.add_process(
        state, origin_session=session.key, origin_chat=session.chat.key, **columns
    )
    facts.end(state.process)
    return state.event


def test_a_deleted_chat_ends_the_agents_that_it_has_delegated():
    state = facts.talked()
    last = delegated(state, 3)
    process = facts.add_process(state, origin_session=last.key, origin_chat=last.chat.key)
    chats.delete_chat(**state.who)

    assert not Session.objects.filter(chat__is_hidden=True, ended_at=None).exists()
    process.refresh_from_db()
    assert process.kill_by == "boundary"


def test_a_deleted_chat_ends_the_agents_of_its_earlier_sessions():
    state = facts.talked()
    child = delegated(state)
    facts.add_process(state, origin_session=child.key, origin_chat=child.chat.key)
    chats.new_session(**state.who, client_id="n1")
    sweeps.end_orphans()
    assert Session.objects.filter(pk=child.pk, ended_at=None).exists()

    chats.delete_chat(**state.who)
    sweeps.end_orphans()

    assert not Session.objects.filter(pk=child.pk, ended_at=None).exists()


def test_agents_of_a_chat_that_was_brought_back_go_on():
    state = facts.talked()
    child = delegated(state)
    facts.add_process(state, origin_session=child.key, origin_chat=child.chat.key)
    with losing():
        chats.delete_chat(**state.who)
    chats.undelete_chat(**state.who)

    sweeps.end_orphans()

    assert Session.objects.filter(pk=child.pk, ended_at=None).exists()


@pytest.mark.parametrize("works", ["a turn", "a process"])
def test_the_sweep_ends_delegated_agents_where_the_hint_was_lost(works):
    state = facts.talked()
    child = delegated(state)
    if works == "a turn":
        hidden = Chat.objects.filter(pk=child.chat_id)
        hidden.update(is_hidden=False)  # nobody else can say something there
        factories.say(child.chat, "go on")
        hidden.update(is_hidden=True)
    else:
        facts.add_process(state, origin_session=child.key, origin_chat=child.chat.key)
    with losing():
        chats.delete_chat(**state.who)
    assert Session.objects.filter(pk=child.pk, ended_at=None).exists()

    sweeps.end_orphans()

    assert not Session.objects.filter(pk=child.pk, ended_at=None).exists()
    assert not ProcessRecord.objects.active().filter(kill_asked_at=None).exists()


def test_a_new_session_leaves_delegated_agents_at_work():
    state = facts.talked()
    delegated(state)
    chats.new_session(**state.who, client_id="n1")

    assert Session.objects.filter(chat__is_hidden=True, ended_at=None).exists()


@pytest.mark.parametrize("depth", [1, 5, 15])
def test_news_of_a_delegated_child_goes_to_its_owner(depth):
    state = facts.talked()
    event = of_child(state, delegated(state, depth))
    assert runner.deliver_event(event.pk) is True
    facts.run_turns(state)

    assert len(facts.told(state.chat)) == 1
    runner.deliver(event.origin_chat)
    assert outcome(event) == ("delivered", "")
    assert facts.violations(state) == []


def test_more_than_sixteen_hops_prove_nothing(allow_errors):
    state = facts.talked()
    event = of_child(state, delegated(state, 17))
    runner.deliver_event(event.pk)

    assert outcome(event) == ("dropped", "owner_unproven")


def test_a_broken_way_and_a_circle_prove_nothing(allow_errors):
    state = facts.talked()
    child = delegated(state)
    event = of_child(state, child)
    Chat.objects.filter(pk=child.chat_id).update(delegated_by="nobody")
    runner.deliver_event(event.pk)
    assert outcome(event) == ("dropped", "owner_unproven")
    Chat.objects.filter(pk=child.chat_id).update(delegated_by=child.key)
    assert verdicts.redeliver(event.pk, actor="op", why="fixed")
    runner.deliver_event(event.pk)

    assert outcome(event) == ("dropped", "owner_unproven")


def test_a_boundary_of_the_owner_closes_for_its_children():
    state = facts.talked()
    child = delegated(state)
    facts.reset(state)
    state.process = facts.add_process(state, origin_session=child.key, origin_chat=child.chat.key)
    facts.end(state.process)
    event = state.event
    runner.deliver_event(event.pk)

    assert outcome(event) == ("dropped", "closed_by_user")


# --- Without a stamp -----------------------------------------------------------------------------


def unstamped(state) -> CompletionEvent:
    state.process = facts.add_process(state, origin_session=None)
    facts.end(state.process)
    return state.event


def test_without_a_stamp_the_last_idle_session_is_reopened():
    state = facts.talked()
    state.process = facts.add_process(state, origin_session=None)
    facts.end_idle(state)
    facts.end(state.process)
    facts.run_turns(state)

    assert outcome(state.event) == ("delivered", "")
    assert Session.objects.filter(chat=state.chat).count() == 1


def test_without_a_stamp_and_a_session_one_is_begun():
    chat = Chat.objects.create(key="agent:main:new", owner=facts.allowed_person())
    state = facts.Background(chat)
    state.process = facts.add_process(
        facts.talked(), origin_session=None, origin_chat=chat.key, owner_id_meant=chat.owner_id
    )
    facts.end(state.process)
    facts.run_turns(state)

    assert outcome(state.event) == ("delivered", "")
    session = Session.objects.get(chat=chat)
    assert (session.begun_by, Chat.objects.get(pk=chat.pk).current_id) == ("system", session.pk)
    assert Chat.objects.get(pk=chat.pk).begun_at is not None


def test_without_a_stamp_and_a_chat_there_is_nobody():
    state = facts.talked()
    event = unstamped(state)
    CompletionEvent.objects.filter(pk=event.pk).update(origin_chat="agent:nobody")
    runner.deliver("agent:nobody")

    assert outcome(event) == ("dropped", "unknown_chat")


# --- Pace ----------------------------------------------------------------------------------------


def test_beyond_the_wake_budget_news_waits_and_comes_as_one_digest(settings):
    settings.HERMES_WAKES_AN_HOUR = 1
    state = facts.ended()
    facts.run_turns(state)
    events = many(state, 13)[1:]
    runner.deliver(state.chat.key)
    assert {outcome(event) for event in events} == {("pending", "budget")}
    assert {event.attempt for event in events} == {1}
    runner.deliver(state.chat.key)
    Turn.objects.filter(source="completion").update(created_at=db_now() - timedelta(hours=2))
    for event in events:
        _due(event)
    facts.run_turns(state)

    texts = facts.told(state.chat)
    assert len(texts) == 2
    assert "held back" in texts[1]
    assert [f"echo {n}" in texts[1] for n in range(12)] == [True] * 12
    assert {outcome(event)[0] for event in events} == {"delivered"}
    assert facts.violations(state) == []


def test_after_many_automatic_turns_news_waits_for_the_person(settings):
    settings.HERMES_AUTOMATIC_TURNS = 3
    state = facts.talked()
    for _ in range(3):
        many(state, 1)
        facts.run_turns(state)
    waiting = many(state, 1)[-1]
    facts.run_turns(state)
    assert outcome(waiting) == ("pending", "streak")
    factories.say(state.chat, "I am back")
    facts.run_turns(state)
    facts.run_turns(state)

    assert outcome(waiting) == ("delivered", "")
    assert "held back" in facts.told(state.chat)[-1]


# --- Turns that did not start --------------------------------------------------------------------


def test_a_turn_that_was_reset_before_it_started_is_judged_again():
    state = facts.accepted()
    facts.reset(state)
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("dropped", "closed_by_user")
    assert state.event.attempt == 2
    assert facts.told(state.chat) == []
    assert facts.violations(state) == []


def test_the_gate_passes_what_is_wanted_and_other_turns():
    state = facts.held()
    assert gate.still_wanted(state.claimed.facts) == Pass()
    other = states.claimed()
    assert gate.still_wanted(other.claimed.facts) == Pass()


@pytest.mark.parametrize("how", ["taken", "inactive", "gone"])
def test_the_gate_drops_what_is_not(how):
    state = facts.held()
    if how == "inactive":
        type(state.chat.owner).objects.filter(pk=state.chat.owner_id).update(is_active=False)
    elif how == "gone":
        CompletionEvent.objects.filter(pk=state.event.pk).update(
            status="pending", turn_id_meant=None
        )
    else:
        state.process.refresh_from_db()
        facts.ProcessRecord.objects.filter(pk=state.process.pk).update(
            reason="killed", kill_by="agent", kill_asked_at=db_now()
        )
    assert isinstance(gate.still_wanted(state.claimed.facts), Drop)


def test_the_gate_drops_what_goes_elsewhere_by_now():
    state = facts.held()
    assert not verdicts.is_wanted(state.turn.pk, "another session")


def test_a_dropped_turn_gives_its_other_news_to_a_new_one():
    state = facts.talked()
    one, two = many(state, 2)
    runner.deliver(state.chat.key)
    facts.ProcessRecord.objects.filter(pk=one.process_id).update(
        reason="killed", kill_by="agent", kill_asked_at=db_now()
    )
    facts.run_turns(state)

    assert (outcome(one), outcome(two)) == (("consumed", ""), ("delivered", ""))
    assert two.attempt == 2
    assert len(facts.told(state.chat)) == 1
    assert facts.violations(state) == []


def test_a_turn_that_is_gone_is_no_turn():
    state = facts.accepted()
    CompletionEvent.objects.filter(pk=state.event.pk).update(turn_id_meant=10**9)
    runner.deliver(state.chat.key)

    assert outcome(state.event) == ("pending", "queued")  # the turn of another is queued there
    assert state.event.attempt == 2


def test_nothing_due_is_nothing_done():
    state = facts.talked()
    assert verdicts.settle(state.chat.key) == verdicts.Settled()


def test_take_only_for_an_ended_process_and_a_running_turn():
    state = facts.running()
    factories.say(state.chat, "wait")
    claimed = transcript.claim(state.session.pk)
    transcript.start(claimed)
    assert not intake.take(state.process.pk, claimed.facts, "c")
    facts.end(state.process)
    assert intake.take(state.process.pk, claimed.facts, "c")
    transcript.finish(claimed, states.answer("done"))
    assert not intake.take(state.process.pk, claimed.facts, "c")
    facts.run_turns(state)

    assert outcome(state.event) == ("delivered", "")  # its result never stood in the turn


# --- Operators -----------------------------------------------------------------------------------


def test_an_operator_redelivers_shows_and_discards():
    state = facts.ended()
    state.chat.owner.user_permissions.clear()
    runner.deliver(state.chat.key)
    event = state.event
    assert outcome(event) == ("dropped", "owner_inactive")
    assert verdicts.show_quietly(event.pk, actor="op", why="look")
    assert outcome(event) == ("quiet", "operator")
    assert not verdicts.show_quietly(event.pk, actor="op", why="look")
    assert verdicts.discard(event.pk, actor="op", why="enough")
    assert outcome(event) == ("dropped", "discarded")
    assert not verdicts.discard(event.pk, actor="op", why="enough")
    state.chat.owner.user_permissions.add(facts.Permission.objects.get(codename="start_process"))
    assert verdicts.foresee([event.pk]) == {event.pk: Deliver(state.process.origin_session)}
    assert intake.redeliver(event_id=event.pk, actor="op", why="allowed again")
    assert not intake.redeliver(event_id=event.pk, actor="op", why="twice")
    facts.run_turns(state)

    assert outcome(event) == ("delivered", "")
    assert event.attempt == 2
    assert verdicts.foresee([event.pk]) == {}
    assert not verdicts.redeliver(event.pk, actor="op", why="no")
    told = History.objects.filter(subject=f"completion:{event.pk}", actor="op", kind="verdict")
    assert [row.reason for row in told.order_by("pk")] == ["look", "enough", "allowed again"]
    assert facts.violations(state) == []


def test_what_an_operator_shows_quietly_marks_its_chat_as_not_read():
    state = facts.ended()
    session = state.session
    assert chats.mark_read(
        chat_id=state.chat.pk,
        user_id=state.chat.owner_id,
        session_id=session.pk,
        seq=session.last_seq,
    )
    assert verdicts.show_quietly(state.event.pk, actor="me", why="told by hand")

    assert Chat.objects.get(pk=state.chat.pk).read_session is None


def test_what_is_gone_cannot_be_acted_on():
    for act in (verdicts.redeliver, verdicts.show_quietly, verdicts.discard):
        assert not act(10**9, actor="op", why="?")
    assert verdicts.foresee([10**9]) == {}
    assert runner.deliver_event(10**9) is None


def test_an_event_of_a_child_is_told_as_of_an_agent():
    state = facts.talked()
    session = Session.objects.get(chat=state.chat)
    event = CompletionEvent.objects.create(
        kind=EventKind.DELEGATION,
        child_session="child",
        origin_chat=state.chat.key,
        origin_session=session.key,
        happened_at=db_now(),
        title="find it",
        body="found",
    )
    facts.run_turns(state)

    assert outcome(event) == ("delivered", "")
    assert "Delegated agent child" in facts.told(state.chat)[0]
    assert facts.violations(state) == []


def test_the_sweep_finds_what_hints_have_lost():
    from processes_app import sweeps

    state = facts.ended()
    assert sweeps.sweep(force=True) == 1
    assert outcome(state.event) == ("accepted", "")
    Turn.objects.filter(source="completion").update(created_at=db_now() - timedelta(minutes=1))
    assert list(session_sweeps.find_queued()) == [state.session.pk]
    from sessions_app import runner as turns

    turns.run_turns(state.session.pk)
    sweeps.sweep(force=True)
    assert outcome(state.event) == ("delivered", "")


@pytest.mark.parametrize("is_stamped", [True, False])
def test_news_held_for_its_number_still_comes_as_a_digest_behind_a_queued_turn(
    settings, is_stamped
):
    settings.HERMES_WAKES_AN_HOUR = 1
    state = facts.ended()
    facts.run_turns(state)
    (waiting,) = many(state, 1)[1:]
    if not is_stamped:
        for rows in (ProcessRecord.objects, CompletionEvent.objects):
            rows.update(origin_session=None)
    runner.deliver(state.chat.key)
    assert outcome(waiting) == ("pending", "budget")
    settings.HERMES_WAKES_AN_HOUR = 100
    (first,) = many(state, 1)[2:]
    runner.deliver(state.chat.key)
    assert outcome(first) == ("accepted", "")
    _due(waiting)
    runner.deliver(state.chat.key)
    runner.deliver(state.chat.key)

    assert outcome(waiting) == ("pending", "budget")
    assert outcome(first) == ("accepted", "")


def test_old_news_of_a_chat_without_a_session_is_quiet_nowhere():
    chat = Chat.objects.create(key="agent:main:unused", owner=facts.allowed_person())
    state = facts.Background(chat)
    state.process = facts.add_process(
        facts.talked(), origin_session=None, origin_chat=chat.key, owner_id_meant=chat.owner_id
    )
    facts.end(state.process, ended_at=db_now() - timedelta(hours=7))
    runner.deliver(chat.key)

    assert outcome(state.event) == ("quiet", "too_old")
    assert state.event.delivered_to == ""


def test_a_writer_that_finds_its_locked_event_moved_stops_everything():
    state = facts.ended()
    stale = state.event
    verdicts.discard(stale.pk, actor="op", why="first")
    with pytest.raises(RuntimeError):
        verdicts._consume(stale)


def test_what_somebody_else_has_accepted_meanwhile_is_left_to_them(monkeypatch):
    state = facts.ended()
    event = state.event
    seen = [(event.pk, event.process_id, event.origin_session)]

    movable = verdicts._movable

    def read_too_early(found):
        monkeypatch.setattr(verdicts, "_movable", movable)
        assert verdicts.settle(state.chat.key).accepted == 1
        return seen

    monkeypatch.setattr(verdicts, "_movable", read_too_early)
    settled = verdicts.settle(state.chat.key)

    assert (settled.accepted, settled.delivered, settled.closed) == (0, 0, 0)
    assert outcome(event)[0] == "accepted"
    assert len(facts.reporting(state.chat)) == 1


def test_an_operator_shows_what_has_no_stamp_in_its_chat_and_nothing_where_there_is_none():
    state = facts.ended(origin_session=None)
    current = Session.objects.get(chat=state.chat)
    assert verdicts.show_quietly(state.event.pk, actor="op", why="look")
    assert state.event.delivered_to == current.key
    gone = facts.ended()
    facts.purge(gone)
    assert not verdicts.show_quietly(gone.event.pk, actor="op", why="look")
