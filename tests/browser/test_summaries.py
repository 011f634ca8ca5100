"""Summaries as a person meets them: pill, divider, meter, preview; undone, dismissed, deferred."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from compression_app import fence
from compression_app import intake as compactions
from compression_app.models import CompactionAttempt
from hermes.lib import hints
from sessions_app import intake, transcript
from sessions_app.models import Session, Summary
from tests import factories
from tests.browser.conftest import OpenTab
from tests.scripted.behaviour import Behaviour
from tests.scripted.server import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.django_db(transaction=True)]

SUMMARY = """## Goal
Move the orders database from MySQL 5.7 to PostgreSQL 16 with at most 90 s of write stop, on Sunday 6 December, 06:00 UTC.

## Constraints and preferences
"No dual writes from the app. If a checksum differs we do not switch."

## Done
Schema converted and reviewed (migrate/schema.sql, 41 tables). Dry run of 28 November: 12 tables copied, 11 equal.

## In progress
order_events: rows written during the copy are missing, from 2026-11-28T21:14Z on.

## Decisions
Keep bigint ids; money as numeric(12,2), not float; time zone conversion in the loader, not in SQL.

## Next step
Backfill order_events, then compare again."""  # noqa: E501 - the text of a model
SAID = [
    "Compare the copies of the twelve tables with the source and tell me which differ.",
    "Which rows are missing in order_events, and since when?",
    "Write the backfill so that it can be stopped and started again.",
    "What happens to money columns? They are floats on the old side.",
    "Plan the switch for Sunday: who does what, and when do we turn back?",
    "Draft the note to the shop team. Two paragraphs, no promises.",
]
ANSWER = (
    "Eleven of the twelve tables are equal by count and by checksum. `order_events` is not: the "
    "copy lacks rows that were written while it ran. The loader reads in pages by id and never "
    "looks back, so what is inserted below its place is not seen again. "
)
FOLDER = os.environ.get("TEST_PICTURES", "")


def picture(page: Page, name: str) -> None:
    """Keep a picture of the page where they are asked for."""
    if FOLDER:
        page.wait_for_timeout(250)
        page.screenshot(path=str(Path(FOLDER) / f"{name}.png"))


def clean(page: Page) -> None:
    """Nobody is kept out of what is shown."""
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert found.response["violations"] == []


@pytest.fixture
def long(chat, scripted):
    """The chat with so much in it that a summary pays, below every mark."""
    intake.register_endpoint(
        name="Summaries",
        base_url=scripted.base_url,
        api_key="",
        model="fake-sum",
        window=64_000,
        role="summary",
        priority=10,
    )
    for number, text in enumerate(SAID * 2):
        with unhinted():
            turn = factories.say(chat, text)
            claimed = transcript.claim(turn.session_id)
            transcript.start(claimed)
            said = ANSWER if number > 9 else ANSWER * 18
            transcript.finish(claimed, transcript.Step(text=said, model_name="seeded"))
    intake.rename(chat_id=chat.pk, user_id=chat.owner_id, title="Move the orders database")
    scripted.script(
        "fake-sum", default=Behaviour(text=SUMMARY, hold="go", hold_at=4, reasoning="Hm. " * 40)
    )
    yield chat
    scripted.release("go")


@contextmanager
def unhinted() -> Iterator[None]:
    """What is accepted here is claimed here: no worker is told of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hints, "enqueue", lambda task, *args: True)
        yield


def session(chat) -> Session:
    return Session.objects.select_related("summary").get(chat=chat)


def attempt() -> CompactionAttempt:
    return CompactionAttempt.objects.order_by("-pk").first()


def until(condition, seconds: float = 15.0):
    wait_for(lambda: {"counts": None, "value": condition()}, lambda seen: seen["value"], seconds)


LOOKS = [(1440, 900, False), (390, 844, True)]
if FOLDER or os.environ.get("HERMES_TEST_SIZE") == "full":
    LOOKS += [(1440, 900, True), (390, 844, False)]


@pytest.mark.parametrize(("width", "height", "dark"), LOOKS)
def test_a_summary_is_previewed_changed_taken_and_undone(
    long, scripted, tab: OpenTab, width: int, height: int, dark: bool
):
    here = tab(long.owner, width=width, height=height, dark=dark)
    page = here.open(f"/chats/{long.uid}/")
    look = f"{'dark' if dark else 'light'}-{width}"
    page.click(".meter__sum")
    clean(page)
    assert page.locator(".meter__pop .m-mark").count() == 2
    picture(page, f"compaction-meter-{look}")
    page.click(".meter__pop [data-act=fold]")
    page.wait_for_selector("#dlg-fold[open] [data-stage=idle]")
    clean(page)
    page.fill("#fold-focus", "the order_events backfill and the switch on Sunday")
    page.click("[data-act=fold-write]")
    page.wait_for_selector("#dlg-fold [data-stage=writing]")
    page.wait_for_selector("#pill .pill--run", state="attached")
    clean(page)
    page.click("#dlg-fold .dialog__head [data-dialog-close]")
    here.until("document.querySelector('#pill').textContent.includes('tokens') || innerWidth < 600")
    picture(page, f"compaction-pill-{look}")
    clean(page)
    scripted.release("go")
    page.wait_for_selector("#pill [data-act=fold]")
    page.click("#pill [data-act=fold]")
    page.wait_for_selector("#dlg-fold[open] [data-stage=preview]")
    assert page.input_value("#fold-focus").startswith("the order_events")
    clean(page)
    picture(page, f"compaction-preview-{look}")

    page.fill("#fold-text", " ")
    page.click("[data-act=fold-use]")
    page.wait_for_selector("#fold-error:not([hidden])")
    assert session(long).summary is None
    page.fill("#fold-text", SUMMARY + "\n\nAnd remember the milk.")
    page.click("[data-act=fold-use]")
    page.wait_for_selector("#log .divide--fold")
    page.wait_for_selector("#dlg-fold:not([open])", state="attached")
    page.wait_for_selector("#pill .pill--ok")
    assert "remember the milk" in session(long).summary.text
    page.click("[data-act=dismiss]")
    page.locator("#log .divide--fold").scroll_into_view_if_needed()
    clean(page)
    picture(page, f"compaction-divider-{look}")
    assert SAID[0] in page.inner_text("#log")  # the originals stay

    page.click("#log .divide--fold [data-act=summary]")
    page.wait_for_selector("#dlg-summary[open]")
    assert "remember the milk" in page.inner_text("#summary-body")
    clean(page)
    picture(page, f"compaction-view-{look}")
    page.keyboard.press("Escape")
    page.click("#log [data-act=summary-undo]")
    page.wait_for_selector("#log .divide--unfolded")
    page.wait_for_selector("#pill .pill--idle")
    assert session(long).summary is None
    assert Summary.objects.get().reverted_at is not None
    clean(page)


def test_a_turn_that_waits_is_let_go_and_told_so_once(long, scripted, tab: OpenTab):
    scripted.script("fake-chat", default=Behaviour(text="All is well."))
    here = tab(long.owner, width=1440, height=900)
    page = here.open(f"/chats/{long.uid}/")
    compactions.request_compaction(session_id=long.current_id or session(long).pk, trigger="manual")
    until(lambda: attempt().status == "running")
    page.wait_for_selector("#pill .pill--run")
    clock = "document.querySelector('#pill time').textContent"
    before = page.evaluate(clock)
    here.until(f"{clock} !== {before!r}")
    said = page.inner_text("#say")
    here.until(f"{clock} > '0:02'")
    assert page.inner_text("#say") == said  # the clock is not announced

    pk = session(long).pk
    with unhinted():
        turn = factories.say(long, "Which rows?")
        claimed = transcript.claim(pk)
    assert fence.hold(attempt().pk, turn.pk, pk) > 0
    page.wait_for_selector("#pill .pill--wait")
    assert "This turn waits for a summary" in page.inner_text("#pill")
    picture(page, "compaction-held")
    fence.release(attempt().pk, pk)
    transcript.start(claimed)
    page.wait_for_selector(f"#turn-{turn.pk} [data-notice=compaction_deferred]")
    picture(page, "compaction-deferred")
    clean(page)
    transcript.finish(claimed, transcript.Step(text="Those of Saturday.", model_name="seeded"))
    here.until(
        f"document.querySelector('#turn-{turn.pk}')?.textContent.includes('Those of Saturday')"
    )
    assert page.locator("[data-notice=compaction_deferred]").count() == 1
    page.reload()
    here.ready()
    page.wait_for_selector(f"#turn-{turn.pk} [data-notice=compaction_deferred]")
    scripted.release("go")
    page.wait_for_selector("#log .divide--fold")
    assert page.locator("[data-notice=compaction_deferred]").count() == 0
    page.wait_for_selector("#pill .pill--ok")


def test_it_is_cancelled_started_again_and_dismissed(long, scripted, tab: OpenTab):
    here = tab(long.owner)
    page = here.open(f"/chats/{long.uid}/")
    here.send("/compact the switch")
    page.wait_for_selector("#pill .pill--run")
    assert attempt().focus == "the switch"
    page.click("#pill [data-act=compact-cancel]")
    page.wait_for_selector("#pill .pill--idle")
    assert "cancelled" in page.inner_text("#pill")
    page.click("#pill [data-act=compact]")
    page.wait_for_selector("#pill .pill--run")
    scripted.release("go")
    page.wait_for_selector("#pill .pill--ok")
    page.click("#pill [data-act=pill-dismiss]")
    assert page.inner_text("#pill") == ""
    page.reload()
    here.ready()
    assert page.inner_text("#pill") == ""
    assert page.locator("#log .divide--fold").count() == 1


def test_a_failure_is_quiet_and_says_when_the_next_try_is(long, scripted, tab: OpenTab):
    scripted.script("fake-sum", default=Behaviour(text="nothing of the kind"))
    here = tab(long.owner, width=1440, height=900)
    page = here.open(f"/chats/{long.uid}/")
    here.send("/compact")
    page.wait_for_selector("#pill .pill--fail")
    assert "next try in" in page.inner_text("#pill")
    assert "left out required parts" in page.inner_text("#pill")
    clean(page)
    picture(page, "compaction-failed")
