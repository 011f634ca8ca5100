"""What a page is told as html is what a page that is opened afresh shows."""

from __future__ import annotations

import random

import pytest

from hermes.web import rendering
from sessions_app import intake
from sessions_app.models import Message
from tests.scripted import Behaviour, Call, Rule
from tests.scripted.remote import scripted_process

from .conftest import rows, someone
from .page import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]

MARKDOWN = (
    "# Head\n\nA paragraph with **bold** and [a link][1].\n\n- one\n- two\n\n  more\n\n"
    "```python\nprint('x')\n\nprint('y')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    "<script>alert(1)</script>\n\n日本語の段落、👩‍👩‍👧 with signs of every width.\n\n"
    "> a quote\nthat goes on\n\n1. first\n2. second\n\nThe last words, unfinished"
)
LATER = "An early [link][1].\n\nMore.\n\n[1]: https://example.org/\n"


@pytest.fixture
def model(transactional_db):
    with scripted_process() as server:
        intake.register_endpoint(
            name="scripted",
            base_url=server.base_url,
            api_key="k",
            model="fake-chat",
            window=100_000,
            role="chat",
            priority=9,
        )
        yield server


async def test_blocks_that_were_sent_are_the_answer(model, web, worker):
    texts = {"long": MARKDOWN * 3, "later": LATER}
    model.script(
        rules=[
            Rule("long", Behaviour(text=texts["long"], tokens_per_second=150)),
            Rule("later", Behaviour(text=texts["later"], tokens_per_second=6)),
        ]
    )
    chat, cookie = await rows(someone)()
    for name, text in texts.items():
        async with Page(web.address, str(chat.uid), cookie) as page:
            turn = (await page.submit(name))["turn"]
            await page.frame("turn.block", turn=turn)
            async with Page(web.address, str(chat.uid), cookie) as second:
                await second.frame("hello")
                await page.until(lambda t=turn: page.status.get(t) == "completed", 20)
                await second.until(lambda t=turn: second.status.get(t) == "completed", 20)
            final = rendering.final_blocks(text)
            assert page.ends[turn][0] == final, name
            assert second.ends[turn][0] == final, name
            assert page.faults == second.faults == []
            if name == "long":
                assert page.patched <= 2  # what was closed while it streamed stays as it is
        async with Page(web.address, str(chat.uid), cookie) as fresh:
            hello = await fresh.frame("hello")
            assert all(block.strip() in hello["html"] for block in final)
            assert page.ends[turn][1].strip()
            assert "<script" not in hello["html"]
    assert await rows(Message.objects.filter(role="assistant").count)() == 2


async def test_a_step_with_a_tool_starts_the_text_anew(model, web, worker):
    text = "Before the call.\n\nStill before. " * 20
    model.script(
        rules=[
            Rule(
                "tool",
                Behaviour(
                    text=text,
                    calls=(Call("current_time"),),
                    finish_reason="tool_calls",
                    tokens_per_second=100,
                ),
                times=1,
            ),
            Rule("tool", Behaviour(text=MARKDOWN, tokens_per_second=60)),
        ]
    )
    chat, cookie = await rows(someone)()
    async with Page(web.address, str(chat.uid), cookie) as page:
        turn = (await page.submit("tool"))["turn"]
        await page.frame("turn.tool", turn=turn, seconds=20)
        async with Page(web.address, str(chat.uid), cookie) as second:
            await page.until(lambda: page.status.get(turn) == "completed", 20)
            await second.until(lambda: second.status.get(turn) == "completed", 20)
        assert page.ends[turn][0] == rendering.final_blocks(MARKDOWN)
        assert second.ends.get(turn, page.ends[turn]) == page.ends[turn]
        assert page.faults == second.faults == []
    said = Message.objects.order_by("seq").filter(role="assistant").values_list("text", flat=True)
    assert await rows(lambda: list(said))() == [text, MARKDOWN]


async def test_views_that_come_at_any_time_agree(model, web, worker):
    model.script(rules=[Rule("go", Behaviour(text=MARKDOWN * 2, tokens_per_second=60))])
    chat, cookie = await rows(someone)()
    async with Page(web.address, str(chat.uid), cookie) as first:
        turn = (await first.submit("go"))["turn"]
        await first.frame("turn.started", turn=turn)
        views = []
        seeded = random.Random(5)
        for _ in range(4):
            reached = first.end + seeded.randint(5, 120)
            await first.until(lambda r=reached: first.end >= r or first.live is None)
            views.append(await Page(web.address, str(chat.uid), cookie).open())
        for view in [first, *views]:
            await view.until(lambda v=view: v.status.get(turn) == "completed", 20)
            assert view.ends[turn][0] == rendering.final_blocks(MARKDOWN * 2)
            assert view.faults == []
            if view is not first:
                await view.close()


async def test_what_changes_beside_the_log_comes_as_html(model, web, worker):
    model.script(default=Behaviour(text="x " * 200, tokens_per_second=40))
    chat, cookie = await rows(someone)()
    async with Page(web.address, str(chat.uid), cookie) as page:
        hello = await page.frame("hello")
        turn = (await page.submit("one"))["turn"]
        await page.frame("turn.started", turn=turn)
        await page.submit("waiting <b>here</b>")
        queue = await page.until(
            lambda: next((f for f in page.frames if f["type"] == "queue" and f["items"]), None)
        )
        await page.submit("/title Ours & theirs")
        head = await page.frame("chat.changed")
        await page.send("turn.stop")
        stopped = await page.frame("turn.cancelled", turn=turn)
        meter = await page.frame("meter")
        notice = await page.frame("notice")
    assert set(hello["htmls"]) == {"chat", "tasks"}
    assert "waiting &lt;b&gt;here" in queue["html"]
    assert (
        "Ours &amp; theirs" in [f for f in page.frames if f["type"] == "chat.changed"][-1]["html"]
    )
    assert head["html"]
    assert f'data-turn="{turn}"' in stopped["html"]
    assert meter["html"]
    assert "Ours &amp; theirs" in notice["html"]
