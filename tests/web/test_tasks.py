"""Background work on pages: questions, processes, results, logs: text, for the owner only."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hermes.web import commands, fragments, numbers, reading, selectors, tasking, tasks
from hermes.web.cursor import Cursor
from processes_app import domain, files, intake, runner
from processes_app.domain import Answer, KillBy
from processes_app.models import Approval, ProcessRecord
from sessions_app import intake as chats
from sessions_app import transcript
from sessions_app.models import Chat
from tests import factories
from tests.processes import facts
from tests.tasks import COMMAND, asked, ran
from tests.web.payloads import BASE
from tests.web.safety import problems
from tests.web.test_pages import OURS, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def page(state) -> str:
    return signed_in(state.chat.owner).get(f"/chats/{state.chat.uid}/").content.decode()


def log_of(state) -> str:
    return page(state).partition('id="log"')[2].partition('id="notices"')[0]


def end(state, **columns) -> None:
    facts.end(state.process_row(), **columns)


# --- Questions -----------------------------------------------------------------------------------


def test_a_question_shows_command_and_folder_and_three_equal_answers():
    state = asked(cwd="checks/nightly")
    html = log_of(state)

    assert f'class="cmd" tabindex="0" role="region" aria-label="Command">{COMMAND}</pre>' in html
    assert "checks/nightly" in html
    assert re.findall(r'data-answer="(\w+)"', html) == ["once", "always", "deny"]
    assert "btn--primary" not in html
    assert "autofocus" not in html
    assert "Waits for your answer" in html
    assert "spinner" not in html
    assert "tool__sum" not in html  # the card says all that the call is


def test_always_is_not_offered_where_output_stands_behind_the_question():
    html = log_of(asked(steered=True))

    assert re.findall(r'data-answer="(\w+)"', html) == ["once", "deny"]
    assert "only once" in html


@pytest.mark.parametrize(
    ("said", "words"),
    [("once", "Allowed once"), ("always", "Always allowed"), ("deny", "Denied by you")],
)
def test_an_answered_question_says_how(said, words):
    state = asked()
    assert intake.answer(
        approval_id=state.approval.pk, owner_id=state.chat.owner_id, said=Answer(said)
    )
    html = log_of(state)

    assert words in html
    assert "data-answer" not in html


def test_a_stopped_turn_withdraws_its_question():
    state = asked()
    chats.stop_turn(**state.who)

    assert "Withdrawn" in log_of(state)
    assert "data-answer" not in page(state)


def test_signs_that_cannot_be_seen_are_told_in_a_command():
    html = log_of(asked(command="rm \u202etxt.exe\u202c a\u200bb \x1b[2K"))

    assert "⟨U+202E⟩txt.exe⟨U+202C⟩ a⟨U+200B⟩b ␛[2K" in html


@pytest.mark.parametrize(
    "hidden",
    [
        "rm -rf x\rls",
        "ls \x1b]0;rm -rf x\x07",
        "ls\u3164rm -rf x",
        "ls\u00a0rm -rf x",
        "ls\U000e0041 rm -rf x",
        "ls\ufe0f rm -rf x",
        "ls\u2003rm -rf x",
        "ls\u034f rm -rf x",
    ],
)
def test_no_sign_hides_a_part_of_a_command_in_a_line_or_a_whole(hidden):
    shown = tasks.exact(hidden)
    line = domain.one_line(shown, 300)
    assert "rm -rf x" in line
    assert line == shown
    odd = {sign for sign in hidden if sign not in " lsrm-fx0;]"}
    assert not odd & set(shown)


def test_what_can_be_seen_stays_as_it_is():
    command = "grep -rn 'größe … 日本 🙂' . | head\n\ttail"
    assert tasks.exact(command) == command


# --- Processes -----------------------------------------------------------------------------------


def test_a_running_process_is_a_card_with_its_output_and_no_tool_row():
    state = ran(tail="one\n\x1b[31mtwo\x1b[0m <b>three</b>\n", output_bytes=30)
    html = log_of(state)

    assert "Running" in html
    assert "two &lt;b&gt;three&lt;/b&gt;" in html
    assert "The chat resumes when it finishes" in html
    assert f'data-act="kill" data-process="{state.process.uid}"' in html
    assert "tool__sum" not in html
    assert html.count(f'id="proc-{state.process.uid}"') == 1


def test_an_ended_process_says_its_exit_code():
    state = ran()
    end(state, exit_code=3, body="no\n")

    assert "Failed, exit 3" in log_of(state)
    assert 'data-act="kill"' not in page(state)


def test_without_a_sandbox_an_exit_code_is_what_was_reported():
    state = ran(sandbox="none")
    end(state)

    assert "Finished, exit 0, as reported" in log_of(state)


def test_a_result_is_a_row_of_ours_and_never_the_persons_words():
    state = ran()
    end(state)
    runner.deliver(state.chat.key)
    turn = facts.reporting(state.chat)[0]
    transcript.start(transcript.claim(turn.session_id))
    html = fragments.turn_html(turn.pk)

    assert "Finished, exit 0" in html
    assert f"news-{state.event.pk}" in html
    assert "msg--me" not in html
    assert "DATA " not in html  # the frame for the model is not for people


def test_a_result_of_a_closed_session_is_a_quiet_row_there():
    state = ran()
    facts.reset(state)
    end(state)
    runner.deliver(state.chat.key)
    html = log_of(state)

    past = html.partition("session--past")[2]
    assert "event--quiet" in past
    assert "you had started a new session" in past
    assert 'data-act="bring"' in past
    assert not facts.reporting(state.chat)


def test_quiet_rows_stand_where_they_happened():
    state = ran()
    intake.ask_kill(state.process.pk, by=KillBy.PERSON, actor="me")
    intake.record_end(
        state.process.pk,
        intake.End("ended", "killed", signal_number=15, body=""),  # type: ignore[arg-type]
    )
    runner.deliver(state.chat.key)
    later = ran(state.chat, "sleep 5")
    html = log_of(state)

    first, row, second = (
        html.index(f'id="turn-{state.turn.pk}"'),
        html.index("Killed by you</b>"),
        html.index(f'id="turn-{later.turn.pk}"'),
    )
    assert first < row < second


def test_nothing_of_a_process_becomes_markup():
    for payload in BASE[:40]:
        state = ran(command=payload, tail=payload, output_bytes=9)
        end(state, body=payload)
        Approval.objects.all().delete()
        chores = tasking.processes.of_chat(state.chat.key)
        look = tasks.look_at(chores, "m", {}, None)
        made = fragments.process_html(look.procs[state.process.uid])
        made += fragments.drawer_html(look.drawer)
        made += fragments.news_html(tasks.news_of(chores.events[0]))
        state = asked(command=payload)
        (ask,) = tasks.drawer_of(tasking.processes.of_chat(state.chat.key)).asks
        made += fragments.ask_html(ask)
        assert problems(made, allowed=OURS | {"dl", "dt", "dd", "code", "pre", "b"}) == [], payload


# --- Drawer, command, list of chats --------------------------------------------------------------


def test_the_drawer_has_what_waits_what_runs_and_what_has_ended():
    state = ran(command="sleep 100", tail="batch 3\n", output_bytes=8)
    ended = ran(state.chat, "make ended")
    end(ended, exit_code=2)
    asked(state.chat, "rm x")
    drawer = tasks.drawer_of(tasking.processes.of_chat(state.chat.key))
    html = fragments.drawer_html(drawer)

    order = [html.index(words) for words in ("Waits for you", "Running", "Recent")]
    assert order == sorted(order)
    assert "batch 3" in html
    assert "Failed, exit 2" in html
    assert drawer.open == 2


def test_a_chat_that_waits_for_an_answer_is_marked_in_the_list():
    state = asked()
    other = factories.chat(state.chat.owner)
    factories.say(other, "hello")

    assert (
        "waits for your answer"
        in signed_in(other.owner).get(f"/chats/{other.uid}/").content.decode()
    )


def test_a_quiet_result_makes_its_chat_unread_until_it_is_read():
    state = ran()
    other = factories.chat(state.chat.owner)
    factories.say(other, "hello")
    facts.reset(state)

    def is_unread():
        rows = [
            row for bunch in selectors.sidebar(state.chat.owner_id, other) for row in bunch.chats
        ]
        return next(row.is_unread for row in rows if row.chat.pk == state.chat.pk)

    session = Chat.objects.get(pk=state.chat.pk).current_id
    chats.mark_read(**state.who, session_id=session, seq=0)
    before = is_unread()
    end(state)
    runner.deliver(state.chat.key)
    then = is_unread()
    chats.mark_read(**state.who, session_id=session, seq=0)

    assert (before, then, is_unread()) == (False, True, False)


# --- Logs and results ----------------------------------------------------------------------------


def test_a_log_is_for_its_owner_only(settings, tmp_path):
    settings.VAR = tmp_path
    state = ran(tail="from the row\n", output_bytes=13)
    owner, stranger = signed_in(state.chat.owner), signed_in(factories.person())
    path = f"/processes/{state.process.uid}/"

    assert "from the row" in owner.get(path).content.decode()
    assert stranger.get(path).status_code == 404
    assert owner.get("/processes/p0000000000/").status_code == 404
    chats.delete_chat(**state.who)
    assert owner.get(path).status_code == 404


def test_a_log_is_readable_text_and_whole(settings, tmp_path):
    settings.VAR = tmp_path
    state = ran()
    folder = files.root() / state.process.uid
    folder.mkdir(parents=True)
    (folder / "log").write_bytes(b"\x1b[32mgreen\x1b[0m <script>x</script>\n" * 9000)
    client = signed_in(state.chat.owner)
    shown = client.get(f"/processes/{state.process.uid}/").content.decode()
    plain = client.get(f"/processes/{state.process.uid}/?as=text")

    assert "green &lt;script&gt;x&lt;/script&gt;" in shown
    assert "<script>x" not in shown
    assert "\x1b" not in shown
    assert "Only the end is shown" in shown
    assert plain["Content-Type"].startswith("text/plain")
    assert plain.content.decode().count("green <script>x</script>\n") == 9000


def test_a_result_can_be_handed_on_by_its_owner_only():
    state = ran()
    facts.reset(state)
    end(state, body="a ``` in it\n")
    runner.deliver(state.chat.key)
    path = f"/chats/{state.chat.uid}/results/{state.event.pk}/"
    text = signed_in(state.chat.owner).get(path).content.decode()

    assert text == f"Finished, exit 0: {COMMAND}\n\n````\na ``` in it\n````\n"
    assert signed_in(factories.person()).get(path).status_code == 404
    other = factories.chat(state.chat.owner)
    assert (
        signed_in(other.owner).get(f"/chats/{other.uid}/results/{state.event.pk}/").status_code
        == 404
    )


# --- Deleting ------------------------------------------------------------------------------------


def test_deleting_a_chat_with_running_commands_has_to_be_meant():
    state = ran()
    client = signed_in(state.chat.owner)
    refused = client.post(f"/chats/{state.chat.uid}/delete/")

    assert (refused.status_code, refused.json()["code"]) == (409, "running")
    assert "1 command still runs" in refused.json()["message"]
    assert Chat.objects.get(pk=state.chat.pk).deleted_at is None
    assert client.post(f"/chats/{state.chat.uid}/delete/", {"sure": "1"}).status_code == 200
    assert Chat.objects.get(pk=state.chat.pk).deleted_at is not None
    assert ProcessRecord.objects.get(pk=state.process.pk).kill_by == KillBy.BOUNDARY


# --- What it costs -------------------------------------------------------------------------------


def test_a_page_with_tasks_takes_a_bounded_number_of_queries(django_assert_max_num_queries):
    state = ran()
    for number in range(20):
        end(ran(state.chat, f"make {number}"))
    runner.deliver(state.chat.key)
    client = signed_in(state.chat.owner)
    client.get(f"/chats/{state.chat.uid}/")

    with django_assert_max_num_queries(15):
        client.get(f"/chats/{state.chat.uid}/")


def test_the_poll_is_one_query_with_tasks_and_without(django_assert_num_queries):
    state, idle = ran(), facts.talked()
    with django_assert_num_queries(1):
        rows = numbers.poll([], [state.chat.pk, idle.chat.pk], [])

    marks = {row[1]: row[8] for row in rows if row[0] == "c"}
    assert marks[idle.chat.pk] == ""
    assert marks[state.chat.pk] == numbers.marks_of(state.turn.session_id)[1]
    assert marks[state.chat.pk] != ""


@pytest.mark.parametrize("html", [False, True])
def test_a_look_at_a_chat_reads_its_tasks_once_a_change(html, django_assert_num_queries):
    state = ran()
    viewer = reading.Viewer(state.chat.owner_id, "me", "", "")
    cursor = Cursor(html=html)
    cursor.advance(reading.look(viewer, str(state.chat.uid), cursor, reason="hello"), None)
    idle = facts.talked()
    other = reading.Viewer(idle.chat.owner_id, "other", "", "")
    quiet = Cursor(html=html)
    quiet.advance(reading.look(other, str(idle.chat.uid), quiet, reason="hello"), None)

    with CaptureQueriesContext(connection) as without:
        assert quiet.advance(reading.look(other, str(idle.chat.uid), quiet), None) == []
    with django_assert_num_queries(len(without)):
        assert cursor.advance(reading.look(viewer, str(state.chat.uid), cursor), None) == []
    ProcessRecord.objects.update(tail="more\n", output_bytes=5)
    told = cursor.advance(reading.look(viewer, str(state.chat.uid), cursor), None)
    assert [frame["type"] for frame in told] == ["process.update", "tasks"]
    assert ("html" in told[0]) is html


def test_a_card_is_the_same_in_a_page_and_in_a_frame():
    state = ran(tail="x\n", output_bytes=2)
    chores = tasking.processes.of_chat(state.chat.key)
    session = state.turn.session
    look = tasks.look_at(chores, "m", {session.key: session.pk}, session.pk)
    card = fragments.process_html(look.procs[state.process.uid])

    assert card in fragments.turn_html(state.turn.pk)


def test_undo_gives_a_person_no_words_of_the_machine_to_send():
    state = facts.ended()
    runner.deliver(state.chat.key)
    facts.run_turns(state)
    assert len(facts.told(state.chat)) == 1
    who = {"chat_id": state.chat.pk, "user_id": state.chat.owner_id, "actor": "me"}

    assert commands.run(commands.Asked(**who, id="one"), "/undo")["drafts"] == []
    assert commands.run(commands.Asked(**who, id="two"), "/undo")["drafts"] == ["hello"]
