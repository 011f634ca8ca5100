"""Summaries over a real socket: holds, the deferral, previews, undo, progress, cancelling."""

from __future__ import annotations

import pytest

from compression_app import intake as compactions
from sessions_app import intake
from sessions_app.models import Session, Summary
from tests.compression.conftest import session_over_mark
from tests.scripted import Behaviour
from tests.scripted.remote import scripted_process

from .client import Client
from .conftest import rows, sign_in
from .page import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]

SUMMARY = "## Goal\nShip it.\n\n## Done\nMuch.\n\n## Next step\nGo on."


@pytest.fixture
def socket_environment(socket_environment):
    return {**socket_environment, "HERMES_TURN_HOLD_SECONDS": "1.5"}


@pytest.fixture
def model(transactional_db):
    with scripted_process() as server:
        for role, name, window in (("chat", "fake-chat", 8_000), ("summary", "fake-sum", 32_000)):
            intake.register_endpoint(
                name=name,
                base_url=server.base_url,
                api_key="k",
                model=name,
                window=window,
                role=role,
                priority=9,
            )
        server.script("fake-chat", default=Behaviour(text="All is well."))
        server.script("fake-sum", default=Behaviour(text=SUMMARY, hold="go", hold_at=2))
        yield server
        server.release("go")


@pytest.fixture
def over(model, processes):
    """A session above the hard mark, in which nothing was summarised yet; and its cookie."""
    compactions.set_paused(scope="everything", paused=True, actor="test")
    state = session_over_mark()
    compactions.set_paused(scope="everything", paused=False, actor="test")
    return state.chat, sign_in(state.chat.owner)


def updates(client):
    return [each for each in client.frames if each["type"] == "compaction.update"]


def phases(client):
    return list(dict.fromkeys(each["phase"] for each in updates(client)))


def session(chat):
    return Session.objects.select_related("summary").get(chat=chat)


async def test_a_hold_is_shown_and_ended_and_its_deferral_told_once(over, model, web, own_worker):
    chat, cookie = over
    async with Page(web.address, str(chat.uid), cookie) as page:
        hello = await page.frame("hello")
        assert hello["compaction"]["state"] == "none"
        turn = (await page.submit("what now?"))["turn"]
        held = await page.until(
            lambda: next((f for f in page.frames if f["type"] == "turn.held" and f["until"]), None)
        )
        assert held["turn"] == turn
        update = await page.frame("compaction.update", phase="held")
        assert update["until"] is not None
        assert "This turn waits" in update["html"]
        notice = await page.frame("notice", code="compaction_deferred")
        assert notice["turn"] == turn
        assert "deferred" in notice["text"]
        await page.until(lambda: page.status.get(turn) == "completed", 20)
        again = (await page.submit("and then?"))["turn"]
        await page.until(lambda: page.status.get(again) == "completed", 20)
        async with Client(web.address, str(chat.uid), cookie) as other:
            late = await other.frame("hello")
            assert late["compaction"]["phase"] == "deferred"
            await other.frame("notice", code="compaction_deferred")
        model.release("go")
        changed = await page.frame("session.changed", reason="summary")
        assert "divide--fold" in changed["html"]
        assert changed["compaction"]["state"] == "committed"
        assert changed["meter"]["summary"] > 0
        await page.until(lambda: page.frames[-1])
    told = [f["code"] for f in page.frames if f["type"] == "notice"]
    assert told == ["compaction_deferred"]
    assert [each for each in phases(page) if each in {"held", "deferred"}] == ["held", "deferred"]
    assert page.faults == []


async def test_a_preview_is_changed_and_taken_then_undone(over, model, web, own_worker):
    chat, cookie = over
    model.script("fake-sum", default=Behaviour(text=SUMMARY))
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        await client.send("compaction.preview", focus="the plan", ref="p")
        assert (await client.frame("notice", ref="p"))["code"] == "compaction_started"
        preview = await client.frame("compaction.preview", 20)
        assert preview["summary"] == SUMMARY
        assert preview["focus"] == "the plan"
        assert preview["after"] < preview["before"]
        assert preview["goes"][0]["count"] >= 4
        assert (await rows(session)(chat)).summary is None
        async with Client(web.address, str(chat.uid), cookie) as late:
            hello = await late.frame("hello")
            assert hello["preview"]["attempt"] == preview["attempt"]

        asked = {"preview": preview["attempt"]}
        await client.send("compaction.request", **asked, summary=" ", ref="a")
        assert (await client.frame("error", ref="a"))["code"] == "empty"
        text = SUMMARY + "\n\nRemember the milk."
        await client.send("compaction.request", **asked, summary=text, ref="b")
        assert (await client.frame("notice", ref="b"))["code"] == "compaction_done"
        changed = await client.frame("session.changed", reason="summary")
        assert changed["compaction"]["state"] == "committed"
        assert changed["preview"] is None
        summary = (await rows(session)(chat)).summary
        assert "milk" in summary.text
        await client.send("compaction.request", **asked, ref="c")
        assert (await client.frame("error", ref="c"))["code"] == "not_found"

        client.frames.clear()
        await client.send("summary.undo", summary=summary.pk + 1, ref="d")
        assert (await client.frame("error", ref="d"))["code"] == "nothing_to_redo"
        await client.send("summary.undo", summary=summary.pk, ref="e")
        assert (await client.frame("notice", ref="e"))["code"] == "summary_undone"
        changed = await client.frame("session.changed", reason="summary")
        assert changed["compaction"]["state"] == "undone"
        assert (await rows(session)(chat)).summary is None
        assert (await rows(Summary.objects.get)()).reverted_at is not None
    assert client.faults == []


async def test_it_is_cancelled_and_progress_is_told(over, model, web, own_worker):
    chat, cookie = over
    model.script(
        "fake-sum", default=Behaviour(text=SUMMARY, reasoning="hm " * 400, tokens_per_second=20)
    )
    async with Client(web.address, str(chat.uid), cookie) as client:
        await client.frame("hello")
        asked = await client.submit("/compact the plan")
        assert asked["code"] == "compaction_started"
        await client.until(
            lambda: len({each["progress"] for each in updates(client) if each["progress"]}) > 1, 20
        )
        again = await client.submit("/compact")
        assert again["code"] == "compaction_attached"
        await client.send("compaction.cancel")
        ended = await client.frame("compaction.update", phase="ended")
        assert ended["state"] == "cancelled"
        assert (await client.frame("notice", code="compaction_cancelled"))["level"] == "info"
        await client.send("compaction.cancel", ref="x")
        assert (await client.frame("error", ref="x"))["code"] == "nothing_runs"
    assert client.faults == []
