"""What becomes of a turn, by what the provider does; cases B028, B057, B059, B061, B062."""

from __future__ import annotations

import pytest

from hermes.lib.leases import renewer
from sessions_app import intake, runner, sweeps, transcript
from sessions_app.domain import Code, Refused
from sessions_app.invariants import check_invariants
from sessions_app.models import Message, Session, Turn
from tests import factories
from tests.races.explorer import started
from tests.scripted.behaviour import Behaviour, Call, expected_answer
from tests.scripted.server import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("endpoint")]


def run(text: str, chat=None) -> Turn:
    """Say something and run it to its end."""
    turn = factories.say(chat or factories.chat(), text)
    runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    assert check_invariants() == []
    return turn


def rows(turn: Turn) -> list[tuple[str, str]]:
    session = Message.objects.filter(session=turn.session_id).order_by("seq")
    return list(session.values_list("role", "text"))


def texts(request: dict) -> list[tuple[str, str]]:
    return [(m["role"], m.get("content") or "") for m in request["body"]["messages"]]


def test_the_answer_is_what_was_sent(scripted):
    turn = run("say 50 words, please")

    assert turn.status == "completed"
    assert rows(turn)[1] == ("assistant", expected_answer("say 50 words, please"))
    assert (turn.prompt_tokens > 0, turn.completion_tokens > 0) == (True, True)
    session = Session.objects.get(pk=turn.session_id)
    assert session.reading_tokens == turn.prompt_tokens
    assert scripted.violations() == []


@pytest.mark.parametrize(
    "text",
    [
        "tabs\tand trailing blanks   \n\n",
        "CRLF\r\nlines\r\n",
        "\u2028 line separator, \ufeff BOM",
        "\u05e9\u05dc\u05d5\u05dd with English and 123",
        "an unclosed \u202e override",
        "👩\u200d👩\u200d👧 \U0001f1e9\U0001f1ea",
        "\x1b[2J and \x07",
        "\u00e9 and e\u0301",
        "QUJD" * 1024,
    ],
)
def test_text_reaches_the_model_as_it_was_said(scripted, text):
    turn = run(text)
    assert rows(turn)[0] == ("user", text)
    assert texts(scripted.requests("fake-chat")[-1])[-1] == ("user", text)


def test_what_no_database_holds_is_shown_as_a_replacement(scripted):
    scripted.script("fake-chat", default=Behaviour(text="an\x00swer"))
    turn = run("ab\x00cd \ud800")
    assert rows(turn) == [("user", "ab\ufffdcd \ufffd"), ("assistant", "an\ufffdswer")]


class TestProviderErrors:
    @pytest.mark.parametrize(
        ("behaviour", "code", "calls"),
        [
            (Behaviour(status=401), "authentication", 1),
            (Behaviour(status=403), "permission", 1),
            (Behaviour(status=404), "not_found", 1),
            (Behaviour(status=500), "overloaded", 4),
            (Behaviour(status=429), "rate", 4),
            (Behaviour(status=429, headers={"Retry-After": "86400"}), "rate", 1),
            (Behaviour(text=""), "empty", 1),
            (Behaviour(text="\n\n"), "empty", 1),
            (Behaviour(text="", reasoning="hm"), "empty", 1),
            (Behaviour(text="", finish_reason="content_filter"), "refused", 1),
            (Behaviour(hang_up=True), None, 4),
        ],
    )
    def test_each_kind_is_told_apart(self, scripted, behaviour, code, calls):
        scripted.script("fake-chat", default=behaviour)
        turn = run("hello")

        assert turn.status == "failed"
        assert code is None or turn.error_code == code
        assert len(scripted.requests("fake-chat")) == calls
        assert rows(turn) == [("user", "hello")]
        assert "sk-right" not in turn.error_text

    def test_a_pause_that_the_provider_asks_for_is_kept(self, scripted):
        busy = Behaviour(status=429, headers={"Retry-After": "1"})
        scripted.script("fake-chat", queue=[busy])
        turn = run("hello")

        assert turn.status == "completed"
        first, second = scripted.requests("fake-chat")
        assert second["at"] - first["at"] >= 1

    def test_a_long_pause_is_waited_for_without_a_worker(self, scripted, settings):
        settings.HERMES_PROVIDER_PAUSE_SECONDS = 0
        scripted.script("fake-chat", queue=[Behaviour(status=503, headers={"Retry-After": "60"})])
        turn = run("hello")
        assert (turn.status, turn.wait_key, turn.error_code) == (
            "waiting",
            "provider",
            "overloaded",
        )
        assert turn.retry_at is not None
        assert list(sweeps.wake_waiting()) == []

        Turn.objects.filter(pk=turn.pk).update(wait_until=turn.created_at)
        assert list(sweeps.wake_waiting()) == [turn.session_id]
        runner.run_turns(turn.session_id)
        turn.refresh_from_db()
        assert (turn.status, turn.error_code, turn.retry_at) == ("completed", "", None)
        assert [role for role, _ in rows(turn)] == ["user", "assistant"]

    def test_the_wait_can_be_stopped(self, scripted, settings):
        settings.HERMES_PROVIDER_PAUSE_SECONDS = 0
        scripted.script("fake-chat", default=Behaviour(status=429, headers={"Retry-After": "60"}))
        turn = run("hello")
        intake.stop_turn(chat_id=turn.chat_id, user_id=turn.chat.owner_id)
        turn.refresh_from_db()
        assert turn.status == "cancelled"

    def test_failures_before_any_text_are_tried_again(self, scripted):
        scripted.script("fake-chat", queue=[Behaviour(status=500)] * 3)
        assert run("hello").status == "completed"
        assert len(scripted.requests("fake-chat")) == 4

    def test_a_request_that_is_too_long_is_tried_once_with_less(self, scripted):
        chat = factories.chat()
        for number in range(3):
            run(f"say 2000 words {number}", chat)
        too_long = Behaviour(
            status=400,
            body='{"error": {"message": "too long", "code": "context_length_exceeded"}}',
        )
        scripted.script("fake-chat", queue=[too_long])
        turn = run("and now?", chat)
        assert turn.status == "completed"
        *_, refused, taken = scripted.requests("fake-chat")
        assert len(str(taken["body"])) <= len(str(refused["body"]))


class TestStreamsThatEndBadly:
    def test_a_stump_is_kept_and_is_not_an_answer(self, scripted):
        scripted.script("fake-chat", default=Behaviour(cut_after=2000))
        turn = run("say 200 words")
        assert (turn.status, turn.error_code) == ("failed", "cut")
        partial = Message.objects.get(turn=turn, role="assistant")
        assert partial.is_partial
        assert expected_answer("say 200 words").startswith(partial.text)
        assert turn.length == len(partial.text) > 0

    def test_a_cut_before_any_text_is_tried_again(self, scripted):
        scripted.script("fake-chat", queue=[Behaviour(cut_after=0)])
        turn = run("hello")
        assert turn.status == "completed"
        assert [text for role, text in rows(turn) if role == "assistant"] == [
            expected_answer("hello")
        ]

    def test_silence_ends_by_the_idle_limit(self, scripted, settings):
        settings.HERMES_MODEL_IDLE_SECONDS = 0.5
        from sessions_app import endpoints

        endpoints._models.clear()
        scripted.script("fake-chat", default=Behaviour(stall_after=5))
        turn = run("hello")
        endpoints._models.clear()
        assert (turn.status, turn.error_code) == ("failed", "stalled")
        assert rows(turn)[1][1].startswith("w1 w2 w3 w4")

    def test_an_error_inside_the_stream_keeps_the_text(self, scripted):
        scripted.script(
            "fake-chat", default=Behaviour(text="so far", error_after={"message": "broke"})
        )
        turn = run("hello")
        assert turn.status == "failed"
        assert rows(turn)[1] == ("assistant", "so far")

    @pytest.mark.parametrize("reason", ["length", "content_filter"])
    def test_an_answer_that_was_ended_says_so(self, scripted, reason):
        scripted.script("fake-chat", default=Behaviour(text="so far", finish_reason=reason))
        turn = run("hello")
        assert (turn.status, turn.error_code) == ("completed", reason)

    def test_the_next_request_is_whole_after_each_of_them(self, scripted):
        chat = factories.chat()
        for behaviour in (
            Behaviour(text=""),
            Behaviour(cut_after=1500),
            Behaviour(status=401),
            Behaviour(text="\n"),
        ):
            scripted.script("fake-chat", queue=[behaviour])
            run("say 100 words", chat)
        turn = run("next", chat)
        assert turn.status == "completed"
        assert scripted.violations() == []
        sent = texts(scripted.requests("fake-chat")[-1])
        assert sum("say 100 words" in text for role, text in sent if role == "user") >= 1


class TestTools:
    def test_a_call_and_its_result_are_messages(self, scripted, counter):
        scripted.script("fake-chat", queue=[Behaviour(calls=(Call("count"),), text="let me see")])
        turn = run("count")
        assert turn.status == "completed"
        assert [role for role, _ in rows(turn)] == ["user", "assistant", "tool", "assistant"]
        assert (counter.calls, scripted.violations()) == (["call_1"], [])

    def test_a_call_cut_in_its_arguments_is_not_run(self, scripted, counter):
        whole = Behaviour(calls=(Call("count", '{"wait": "' + "x" * 400, pieces=40),))
        scripted.script("fake-chat", queue=[Behaviour(**{**vars(whole), "cut_after": 2500})] * 4)
        turn = run("count")
        assert (turn.status, counter.calls) == ("failed", [])
        assert run("next", turn.chat).status == "completed"
        assert scripted.violations() == []

    @pytest.mark.parametrize(
        "call",
        [
            Call("count", '{"path": "a'),
            Call("count", '{"a":1}{"a":1}'),
            Call("count", "null"),
            Call("count", "[1]"),
            Call("count", '{"wait": 5}'),
            Call("count", '{"unknown": "x"}'),
            Call("no_such_tool"),
        ],
    )
    def test_a_call_that_cannot_be_run_is_answered_with_the_problem(self, scripted, counter, call):
        scripted.script("fake-chat", queue=[Behaviour(calls=(call,))])
        turn = run("count")
        assert (turn.status, counter.calls) == ("completed", [])
        result = Message.objects.get(turn=turn, role="tool")
        assert result.parts["ok"] is False
        assert len(result.text) > 10
        assert run("next", turn.chat).status == "completed"
        assert scripted.violations() == []

    def test_a_model_that_goes_on_calling_badly_is_stopped(self, scripted, counter):
        bad = Behaviour(calls=(Call("no_such_tool"),), repeat_calls=True)
        scripted.script("fake-chat", default=bad)
        turn = run("count")
        assert (turn.status, turn.error_code) == ("failed", "malformed")
        assert len(scripted.requests("fake-chat")) == runner.BAD_ROUNDS

    def test_a_model_that_never_ends_is_stopped(self, scripted, counter, settings):
        settings.HERMES_MODEL_CALLS_A_TURN = 4
        again = Behaviour(calls=(Call("count"),), repeat_calls=True)
        scripted.script("fake-chat", default=again)
        turn = run("count")
        assert (turn.status, turn.error_code) == ("failed", "ceiling")
        assert len(scripted.requests("fake-chat")) == 4

    def test_a_tool_that_breaks_is_a_result(self, scripted, counter, allow_errors):
        scripted.script("fake-chat", queue=[Behaviour(calls=(Call("count", '{"fail": true}'),))])
        assert run("count").status == "completed"

    def test_two_calls_with_one_id_are_two_calls(self, scripted, counter):
        scripted.script("fake-chat", queue=[Behaviour(calls=(Call("count"), Call("count")))])
        assert run("count").status == "completed"
        assert len(counter.calls) == 2
        assert scripted.violations() == []


class TestWaiting:
    @pytest.fixture
    def waiting(self, scripted, counter):
        calls = (Call("count", '{"wait": "k"}', id="one"), Call("count", id="two"))
        scripted.script("fake-chat", queue=[Behaviour(calls=calls)])
        turn = run("count")
        assert (turn.status, turn.wait_key) == ("waiting", "k")
        return turn

    def test_it_goes_on_where_it_was(self, waiting, counter, scripted):
        later = factories.say(waiting.chat, "meanwhile")
        assert runner.run_turns(waiting.session_id) is False
        counter.ready.add("k")
        key = {"turn_id": waiting.pk, "session_id": waiting.session_id}
        assert not intake.resume(**key, key="another")
        assert intake.resume(**key, key="k")
        assert not intake.resume(**key, key="k")
        runner.run_turns(waiting.session_id)

        waiting.refresh_from_db()
        later.refresh_from_db()
        assert (waiting.status, later.status) == ("completed", "completed")
        assert counter.calls == ["one", "two"]
        roles = [role for role, _ in rows(waiting)]
        assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
        assert scripted.violations() == []

    def test_a_wake_up_that_came_too_early_is_not_lost(self, scripted, counter, monkeypatch):
        original = transcript.wait

        def wait(*args, **kwargs):
            landed = original(*args, **kwargs)
            counter.ready.add("k")  # what is waited for comes just as the turn begins to wait
            return landed

        monkeypatch.setattr(transcript, "wait", wait)
        scripted.script("fake-chat", queue=[Behaviour(calls=(Call("count", '{"wait": "k"}'),))])
        assert run("count").status == "completed"

    def test_the_sweep_asks_for_it(self, waiting, counter):
        assert list(sweeps.wake_waiting()) == []
        counter.ready.add("k")
        assert list(sweeps.wake_waiting()) == [waiting.session_id]

    def test_stop_answers_its_calls(self, waiting, scripted):
        intake.stop_turn(chat_id=waiting.chat_id, user_id=waiting.chat.owner_id)
        waiting.refresh_from_db()
        assert waiting.status == "cancelled"
        assert Message.objects.filter(turn=waiting, role="tool").count() == 2
        assert run("next", waiting.chat).status == "completed"
        assert scripted.violations() == []

    def test_new_ends_it(self, waiting):
        reply = intake.new_session(
            chat_id=waiting.chat_id, user_id=waiting.chat.owner_id, client_id="n"
        )
        waiting.refresh_from_db()
        assert (waiting.status, reply["drafts"]) == ("cancelled", [])
        assert check_invariants() == []


class TestContext:
    def test_it_is_bounded_and_says_what_is_left_out(self, scripted, endpoint):
        type(endpoint).objects.update(window=1024)
        chat = factories.chat()
        for number in range(6):
            turn = run(f"say 150 words {number}", chat)
            assert turn.status == "completed"
        sent = texts(scripted.requests("fake-chat")[-1])
        assert sent[0][0] == "system"
        assert sent[-1] == ("user", "say 150 words 5")
        assert len(sent) < 12
        session = Session.objects.get(pk=turn.session_id)
        assert session.left_out > 0
        assert scripted.violations() == []

    def test_a_message_that_alone_does_not_fit_is_refused(self, endpoint):
        type(endpoint).objects.update(window=1024)
        with pytest.raises(Refused) as refused:
            factories.say(factories.chat(), "word " * 2000)
        assert refused.value.code is Code.TOO_LONG
        assert "at most" in refused.value.message

    def test_an_edit_that_alone_does_not_fit_is_refused(self, endpoint):
        turn = run("hello")
        type(endpoint).objects.update(window=1024)
        with pytest.raises(Refused) as refused:
            intake.edit_message(
                chat_id=turn.chat_id,
                user_id=turn.chat.owner_id,
                turn_id=turn.pk,
                client_turn_id="e",
                text="word " * 2000,
            )
        assert refused.value.code is Code.TOO_LONG
        assert rows(turn)[0] == ("user", "hello")

    def test_the_request_does_not_grow_with_the_transcript(self, scripted, endpoint):
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        type(endpoint).objects.update(window=2048)
        chat = factories.chat()
        counts = []
        for _ in range(10):
            with CaptureQueriesContext(connection) as queries:
                run("say 200 words", chat)
            counts.append(len([q for q in queries if "SELECT" in q["sql"]]))
        # More once messages have no room: a summary is asked for. But not more each time.
        assert counts[4] <= counts[2]
        assert counts[-1] <= counts[-4]


class TestStop:
    @pytest.mark.parametrize("script", ["delay", "silent", "endless"])
    def test_it_ends_whatever_the_model_does(self, scripted, script):
        behaviour = {
            "delay": Behaviour(delay=60),
            "silent": Behaviour(stall_after=3),
            "endless": Behaviour(endless=True, tokens_per_second=50),
        }[script]
        scripted.script("fake-chat", default=behaviour)
        turn = factories.say(factories.chat(), "hello")
        worker = started(lambda: runner.run_turns(turn.session_id))
        wait_for(lambda: scripted.requests("fake-chat"), bool, 5)
        intake.stop_turn(chat_id=turn.chat_id, user_id=turn.chat.owner_id)
        worker.join(2)

        assert not worker.is_alive()
        turn.refresh_from_db()
        assert (turn.status, turn.error_code) == ("cancelled", "stopped")
        assert check_invariants() == []
        scripted.wait(lambda report: report["counts"]["fake-chat"]["open"] == 0)
        assert scripted.requests("fake-chat")[-1]["end"] == "gone"

    def test_a_worker_that_leaves_hands_back_what_has_no_text(self, scripted):
        scripted.script("fake-chat", queue=[Behaviour(delay=60)])
        turn = factories.say(factories.chat(), "hello")
        worker = started(lambda: runner.run_turns(turn.session_id))
        wait_for(lambda: scripted.requests("fake-chat"), bool, 5)
        renewer.leave()
        worker.join(5)
        renewer.stay()
        turn.refresh_from_db()
        assert (turn.status, turn.put_back) == ("queued", 1)
        runner.run_turns(turn.session_id)
        turn.refresh_from_db()
        assert turn.status == "completed"

    def test_a_worker_that_leaves_keeps_the_text(self, scripted):
        scripted.script("fake-chat", queue=[Behaviour(stall_after=3)])
        turn = factories.say(factories.chat(), "hello")
        worker = started(lambda: runner.run_turns(turn.session_id))
        wait_for(turn.chunks.exists, bool, 5)
        renewer.leave()
        worker.join(5)
        renewer.stay()
        turn.refresh_from_db()
        assert (turn.status, turn.error_code) == ("interrupted", "shutdown")
        assert rows(turn)[1][1].startswith("w1 w2")


def test_continue_goes_on_after_a_partial_answer(scripted):
    scripted.script("fake-chat", queue=[Behaviour(text="half", finish_reason="length")])
    turn = run("hello")
    intake.continue_turn(chat_id=turn.chat_id, user_id=turn.chat.owner_id, client_turn_id="k")
    runner.run_turns(turn.session_id)
    assert scripted.violations() == []
    assert [role for role, _ in rows(turn)] == ["user", "assistant", "user", "assistant"]


def test_retry_after_a_failure_does_not_say_it_twice(scripted):
    scripted.script("fake-chat", queue=[Behaviour(status=401)])
    turn = run("hello")
    intake.regenerate(chat_id=turn.chat_id, user_id=turn.chat.owner_id, turn_id=turn.pk)
    runner.run_turns(turn.session_id)
    assert rows(turn) == [("user", "hello"), ("assistant", expected_answer("hello"))]


def test_a_gate_that_breaks_lets_the_turn_pass(settings, allow_errors):
    settings.HERMES_TURN_GATES = ["tests.flows.test_answers.broken_gate"]
    assert run("hello").status == "completed"


def broken_gate(turn):
    raise RuntimeError("a gate that breaks")


def test_a_gate_may_drop(settings):
    from sessions_app.domain import Drop

    settings.HERMES_TURN_GATES = ["tests.flows.test_answers.dropping_gate"]
    turn = run("hello")
    assert (turn.status, turn.error_code, turn.error_text) == ("cancelled", "dropped", "not wanted")
    assert Drop("x").reason == "x"


def dropping_gate(turn):
    from sessions_app.domain import Drop

    return Drop("not wanted")
