"""Background work over a real socket: hello, updates, answers, kills, input, quiet rows."""

from __future__ import annotations

import asyncio

import pytest

from processes_app import intake, runner
from processes_app.models import Approval, ProcessInput, ProcessRecord
from sessions_app import intake as chats
from sessions_app.models import Turn
from tests import factories
from tests.processes import facts
from tests.tasks import COMMAND, asked, ran

from .client import Client
from .conftest import rows, sign_in
from .page import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


def made(maker, *arguments, **columns):
    """A state, and the cookie of its owner's login."""
    state = maker(*arguments, **columns)
    return state, sign_in(state.chat.owner)


def of_kind(client, kind):
    return [frame for frame in client.frames if frame["type"] == kind]


async def refused(client, kind, **fields):
    """The code with which a command is refused."""
    ref = f"r{len(client.frames)}{kind}"
    await client.send(kind, ref=ref, **fields)
    return (await client.frame("error", ref=ref))["code"]


async def test_hello_tells_what_runs_and_what_waits_for_an_answer(web):
    state, cookie = await rows(made)(ran, tail="half\n", output_bytes=5)
    other, key = await rows(made)(asked, cwd="checks")
    async with Client(web.address, str(state.chat.uid), cookie) as client:
        hello = await client.frame("hello")
        (process,) = hello["processes"]
        assert hello["approvals"] == []
        assert (process["id"], process["state"], process["tail"]) == (
            state.process.uid,
            "running",
            "half\n",
        )
        assert process["session"] == hello["session"]["id"]
        assert process["command"] == COMMAND
    async with Page(web.address, str(other.chat.uid), key) as page:
        hello = await page.frame("hello")
        (approval,) = hello["approvals"]
        assert (approval["id"], approval["state"]) == (other.approval.pk, "open")
        assert approval["answers"] == ["once", "always", "deny"]
        assert approval["directory"] == "checks"
        assert hello["turn"]["status"] == "waiting"
        assert "Go to the question" in hello["htmls"]["tasks"]
        assert f'id="ask-{other.approval.pk}"' in hello["html"]


async def test_a_chat_without_tasks_is_told_nothing_of_them(web):
    state, cookie = await rows(made)(facts.talked)
    async with Page(web.address, str(state.chat.uid), cookie) as page:
        hello = await page.frame("hello")
        assert (hello["processes"], hello["approvals"]) == ([], [])
        assert "Nothing runs" in hello["htmls"]["tasks"]
        await asyncio.sleep(2.2)  # two looks of the clock
        kinds = {frame["type"] for frame in page.frames}
    assert kinds.isdisjoint({"process.update", "approval.update", "completion.update", "tasks"})


async def test_one_answer_wins_whichever_tab_gives_it(web):
    state, cookie = await rows(made)(asked)
    where = (web.address, str(state.chat.uid), cookie)
    async with Page(*where) as one, Client(*where) as two:
        await one.frame("hello")
        await two.frame("hello")
        fields = {"approval": state.approval.pk}
        await one.send("approval.answer", answer="once", ref="a", **fields)
        await two.send("approval.answer", answer="deny", ref="b", **fields)
        first = await one.frame("approval.update")
        second = await two.frame("approval.update")
        await two.until(
            lambda: [f for c in (one, two) for f in of_kind(c, "error") if f["code"] == "answered"]
        )
        errors = of_kind(one, "error") + of_kind(two, "error")
        assert await refused(two, "approval.answer", answer="once", **fields) == "answered"
    approval = await rows(lambda: Approval.objects.get(pk=state.approval.pk))()

    assert len(errors) == 1
    assert first["approval"] == second["approval"]
    assert first["approval"]["state"] == approval.status
    assert first["approval"]["answer"] == approval.answer
    assert "ask--done" in first["html"]
    assert "html" not in second


async def test_an_answer_is_for_the_owner_and_the_chat_of_the_question(web):
    state, cookie = await rows(made)(asked)
    own = await rows(factories.chat)(state.chat.owner)
    stranger, key = await rows(made)(facts.talked)
    fields = {"approval": state.approval.pk, "answer": "once"}
    async with Client(web.address, str(own.uid), cookie) as client:
        await client.frame("hello")
        assert await refused(client, "approval.answer", **fields) == "not_found"
    async with Client(web.address, str(stranger.chat.uid), key) as client:
        await client.frame("hello")
        assert await refused(client, "approval.answer", **fields) == "not_found"
        assert await refused(client, "approval.answer", approval=1, answer="yes") == "malformed"
        assert await refused(client, "approval.answer", approval="1", answer="once") == "malformed"
    assert await rows(lambda: Approval.objects.get().status)() == "pending"


async def test_always_counts_as_once_where_it_is_not_offered(web):
    state, cookie = await rows(made)(asked, steered=True)
    async with Client(web.address, str(state.chat.uid), cookie) as client:
        hello = await client.frame("hello")
        assert hello["approvals"][0]["answers"] == ["once", "deny"]
        await client.send("approval.answer", approval=state.approval.pk, answer="always")
        told = (await client.frame("approval.update"))["approval"]
    assert (told["state"], told["answer"]) == ("allowed", "once")


async def test_stop_withdraws_the_question_in_every_tab(web):
    state, cookie = await rows(made)(asked)
    where = (web.address, str(state.chat.uid), cookie)
    async with Page(*where) as one, Client(*where) as two:
        await one.frame("hello")
        await two.frame("hello")
        await two.send("turn.stop")
        told = await one.frame("approval.update")
        ended = await one.frame("turn.cancelled")
        await two.frame("tasks", open=0)
        late = await refused(two, "approval.answer", approval=state.approval.pk, answer="once")
    assert told["approval"]["state"] == "withdrawn"
    assert "Withdrawn" in ended["html"]
    assert late == "answered"


async def test_a_kill_is_asked_for_once_and_told(web):
    state, cookie = await rows(made)(ran)
    stranger, key = await rows(made)(facts.talked)
    uid = state.process.uid
    async with Client(web.address, str(stranger.chat.uid), key) as client:
        await client.frame("hello")
        assert await refused(client, "process.kill", process=uid) == "not_found"
        assert await refused(client, "process.kill", process="") == "malformed"
    assert (await rows(state.process_row)()).kill_asked_at is None
    async with Page(web.address, str(state.chat.uid), cookie) as page:
        await page.frame("hello")
        await page.send("process.kill", process=uid)
        told = await page.frame("process.update")
        assert told["process"]["ending"]
        assert "Being ended" in told["html"]
        assert 'data-act="kill"' not in told["html"]
        await page.send("process.kill", process=uid)
        assert await refused(page, "process.kill", process="") == "malformed"  # so it was taken
        await rows(killed)(state)
        over = await page.until(
            lambda: [f for f in of_kind(page, "process.update") if f["process"]["ended_at"]]
        )
        assert over[0]["process"]["killed_by"] == "person"
        assert await refused(page, "process.kill", process=uid) == "not_running"
        assert [f["code"] for f in of_kind(page, "error")] == ["malformed", "not_running"]
        await rows(runner.deliver)(state.chat.key)
        quiet = await page.until(
            lambda: [f for f in of_kind(page, "completion.update") if "html" in f]
        )
    row = await rows(state.process_row)()
    assert (row.kill_by, row.kill_actor) == ("person", state.chat.owner.username)
    assert quiet[-1]["completion"]["state"] == "quiet"
    assert quiet[-1]["completion"]["reason"] == "killed"
    assert "Killed by you" in quiet[-1]["html"]


def killed(state):
    """What the supervisor records of a process that it was asked to end."""
    ended = intake.End("ended", "killed", signal_number=15)  # type: ignore[arg-type]
    assert intake.record_end(state.process.pk, ended)


async def test_input_goes_to_a_terminal_once_an_id(web):
    state, cookie = await rows(made)(ran, wants_pty=True)
    plain = await rows(ran)(state.chat, "sleep 9")
    uid = state.process.uid

    def typed():
        return list(ProcessInput.objects.order_by("pk").values_list("text", flat=True))

    async with Client(web.address, str(state.chat.uid), cookie) as client:
        await client.frame("hello")
        for _ in range(2):
            await client.send("process.input", process=uid, id="k1", text="yes\n")
        await client.send("process.input", process=uid, id="k2", text="no\n")
        big = "x" * 5000
        assert await refused(client, "process.input", process=uid, id="b", text=big) == "too_large"
        assert await refused(client, "process.input", process=uid, id="e", text="") == "empty"
        none = {"process": plain.process.uid, "id": "n", "text": "x"}
        assert await refused(client, "process.input", **none) == "no_terminal"
        assert await refused(client, "process.input", **{**none, "process": "p1"}) == "not_found"
        assert await rows(typed)() == ["yes\n", "no\n"]
        await rows(facts.end)(state.process)
        over = {"process": uid, "id": "k3", "text": "x"}
        assert await refused(client, "process.input", **over) == "not_running"


async def test_so_much_input_and_no_more_waits(web):
    state, cookie = await rows(made)(ran, wants_pty=True)

    def fill():
        ProcessInput.objects.bulk_create(
            ProcessInput(process=state.process, call_id=f"c{n}", text="x") for n in range(100)
        )

    await rows(fill)()
    async with Client(web.address, str(state.chat.uid), cookie) as client:
        await client.frame("hello")
        more = {"process": state.process.uid, "id": "k", "text": "x"}
        assert await refused(client, "process.input", **more) == "too_many"


async def test_output_is_told_without_any_hint_and_as_text(web):
    state, cookie = await rows(made)(ran)

    def grow():
        rows = ProcessRecord.objects.filter(pk=state.process.pk)
        rows.update(tail="\x1b[31mred\x1b[0m <b>bold</b>\n", output_bytes=30)

    async with Page(web.address, str(state.chat.uid), cookie) as page:
        await page.frame("hello")
        await rows(grow)()
        told = await page.frame("process.update", 4)
        drawer = await page.frame("tasks", 4)
    assert told["process"]["tail"] == "red <b>bold</b>\n"
    assert "red &lt;b&gt;bold&lt;/b&gt;" in told["html"]
    assert "<b>" not in told["html"]
    assert "red &lt;b&gt;bold" in drawer["html"]


async def test_an_end_is_told_and_then_what_became_of_it(web):
    state, cookie = await rows(made)(ran)

    def finish():
        facts.end(state.process, exit_code=2, body="no\n")
        runner.deliver(state.chat.key)

    async with Page(web.address, str(state.chat.uid), cookie) as page:
        await page.frame("hello")
        await rows(finish)()
        over = await page.until(
            lambda: [f for f in of_kind(page, "process.update") if f["process"]["ended_at"]]
        )
        news = await page.until(
            lambda: [
                f
                for f in of_kind(page, "completion.update")
                if f["completion"]["state"] == "accepted"
            ]
        )
        await page.frame("tasks", open=0)
    assert (over[-1]["process"]["exit_code"], over[-1]["process"]["reason"]) == (2, "exited")
    assert "Failed, exit 2" in over[-1]["html"]
    turn = await rows(lambda: Turn.objects.get(source="completion").pk)()
    assert news[-1]["completion"]["turn"] == turn
    assert "html" not in news[-1]  # its turn tells it


async def test_a_result_of_a_closed_session_is_told_to_that_session(web):
    state, cookie = await rows(made)(ran)
    async with Page(web.address, str(state.chat.uid), cookie) as page:
        hello = await page.frame("hello")
        await page.send("session.new", id="n1")
        changed = await page.frame("session.changed", reason="new")
        assert changed["processes"][0]["id"] == state.process.uid
        await rows(facts.end)(state.process)
        await rows(runner.deliver)(state.chat.key)
        (quiet,) = await page.until(
            lambda: [f for f in of_kind(page, "completion.update") if "html" in f]
        )
    assert quiet["completion"]["session"] == hello["session"]["id"]
    assert quiet["completion"]["reason"] == "closed_by_user"
    assert "you had started a new session" in quiet["html"]
    assert 'data-act="bring"' in quiet["html"]
    assert not await rows(lambda: Turn.objects.filter(source="completion").exists())()


async def test_the_command_lists_the_tasks(web):
    state, cookie = await rows(made)(ran)
    async with Client(web.address, str(state.chat.uid), cookie) as client:
        await client.frame("hello")
        told = await client.submit("/tasks")
        help_ = await client.submit("/help")
    assert told["code"] == "tasks"
    assert told["text"] == f"{state.process.uid} · Running: {COMMAND}"
    assert "/tasks" in help_["text"]


async def test_a_waiting_turn_says_what_it_waits_for(web):
    state, cookie = await rows(made)(facts.talked)
    async with Page(web.address, str(state.chat.uid), cookie) as page:
        await page.frame("hello")
        waiting = await rows(asked)(state.chat)
        told = await page.frame("turn.waiting")
        update = await page.frame("approval.update")
        assert told["code"] == "approval"
        assert f'id="ask-{waiting.approval.pk}"' in told["html"]
        assert "Waits for your answer" in told["html"]
        assert update["approval"]["state"] == "open"
        await page.frame("tasks", open=1)
    await rows(chats.stop_turn)(**state.who)
