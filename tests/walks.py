"""The three walks of docs/howto/mend.md in a real browser, timed: ``python -m tests.walks``.

The product runs as ``make run`` starts it, with a scripted model that answers at once. Each walk
plants its fault, waits until the dashboard tells of it, clicks what the page offers and waits until
the page says that all is well. Nothing is reloaded: the page is live.

With ``TEST_PICTURES`` set to a folder, the page is kept there as it tells of each fault.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from hermes.management.servers.valkey import free_port
from tests.product import Up
from tests.scripted import Behaviour, Call, RemoteScripted, Rule, scripted_process

CHROMIUM = os.environ.get("HERMES_TEST_CHROMIUM", "/usr/bin/chromium")
PICTURES = os.environ.get("TEST_PICTURES")
REASON = "A walk through what is wrong."
SESSIONS = 3  # whose summaries fail


@dataclass(frozen=True)
class Walk:
    """What one walk took, in seconds."""

    name: str
    shown: float  # from the fault until the dashboard tells of it
    mended: float  # from the first click until it says that all is well


class Operator:
    """A person with two tabs: the dashboard, and their own chats."""

    def __init__(self, browser: Browser, up: Up, model: RemoteScripted) -> None:
        self.up, self.model = up, model
        self.origin = f"http://127.0.0.1:{up.port}"
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(30_000)
        self.desk, self.talk = context.new_page(), context.new_page()
        found = re.search(r"user (\S+), password (\S+)", up.output)
        assert found, up.output
        self.desk.goto(f"{self.origin}/admin/login/?next=/admin/")
        self.desk.fill("[name=username]", found[1])
        self.desk.fill("[name=password]", found[2])
        self.desk.press("[name=password]", "Enter")
        self.desk.wait_for_selector("#verdict")

    def until(self, page: Page, what: Callable[[], object], seconds: float = 90) -> float:
        """Wait until it is true; return when that was."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                raise AssertionError(page.inner_text("body")[:1500])
            page.wait_for_timeout(50)
        return time.monotonic()

    def tells(self, words: str) -> float:
        """When the sentence on top, or what stands below it, holds these words."""
        return self.until(self.desk, lambda: words in self.desk.inner_text("[data-part=verdict]"))

    def is_well(self) -> float:
        """When it says that nothing needs anybody."""
        level = "#verdict >> xpath=ancestor::section"
        return self.until(
            self.desk,
            lambda: self.desk.locator(level).get_attribute("data-level") == "ok",
        )

    def home(self) -> None:
        """Back to the dashboard, by its link."""
        self.desk.click("nav a[href='/admin/'] >> nth=0")
        self.desk.wait_for_selector("#verdict")

    def say(self, text: str) -> None:
        """Write a message in the open chat and wait until its turn is answered."""
        answered = "#log .turn[data-status=completed]"
        before = self.talk.locator(answered).count()
        self.write(text)
        self.until(self.talk, lambda: self.talk.locator(answered).count() > before)

    def write(self, text: str) -> None:
        """Write in the open chat and press Enter."""
        self.talk.wait_for_selector("html[data-connection=ready]", state="attached")
        self.talk.fill("#composer", text)
        self.talk.press("#composer", "Enter")

    def confirm(self) -> None:
        """Give a reason on the page that says what would come of it, and confirm."""
        self.desk.fill("textarea[name=reason]", REASON)
        self.desk.click("form:has(textarea[name=reason]) button[type=submit]")

    def new_chat(self) -> None:
        """A chat without messages, in the other tab."""
        if self.talk.url == "about:blank":
            self.talk.goto(self.origin)
        self.talk.click("#new-chat button")
        self.talk.wait_for_selector("html[data-connection=ready]", state="attached")

    def refused(self) -> list[object]:
        """The requests for a summary so far."""
        return list(self.model.requests("fake-sum"))

    def retries(self) -> Locator:
        """The buttons "Retry now" beside failing sessions."""
        return self.desk.locator("[data-part=streaks] button[value=retry_now]")

    def picture(self, name: str) -> None:
        """Keep the dashboard as it is now."""
        if PICTURES:
            self.desk.screenshot(path=str(Path(PICTURES) / f"{name}.png"))


def summary_key(who: Operator) -> Walk:
    """The summary model refuses its key, in three sessions."""
    for _ in range(SESSIONS):
        before = len(who.refused())
        who.new_chat()
        while len(who.refused()) == before:
            who.say("say 400 words")
            who.talk.wait_for_timeout(500)
        if not before:
            failed = time.monotonic() - 0.5
            shown = who.tells("The summary model refuses its key") - failed
    who.until(who.desk, lambda: who.retries().count() == SESSIONS)
    who.picture("mend-key")

    who.model.script("fake-sum", Behaviour(key="right"))
    clicked = time.monotonic()
    who.desk.get_by_role("link", name="Look at the models").click()
    who.desk.get_by_role("link", name="From settings (summary)").click()
    who.desk.fill("[name=api_key]", "right")
    who.desk.get_by_role("button", name="Save", exact=True).click()
    who.desk.wait_for_selector("text=was changed successfully")
    who.home()
    for left in range(SESSIONS, 0, -1):
        who.retries().first.click()
        who.confirm()
        who.home()
        who.until(who.desk, lambda left=left: who.retries().count() < left)
    return Walk("summary model refuses its key", shown, who.is_well() - clicked)


def worker_gone(who: Operator) -> Walk:
    """The only worker of the queue "background" hangs, and is ended."""
    worker = who.up.identities()["background"]
    assert worker is not None
    os.kill(worker.pid, signal.SIGSTOP)
    froze = time.monotonic()
    shown = who.tells("No worker takes the queue") - froze
    who.picture("mend-worker")

    clicked = time.monotonic()
    who.desk.get_by_role("link", name="Show the workers").click()
    who.desk.wait_for_selector("#result_list, table")
    who.home()
    os.kill(worker.pid, signal.SIGKILL)
    return Walk("a worker is gone", shown, who.is_well() - clicked)


def results_dropped(who: Operator) -> Walk:
    """A person types /new while a command runs, and asks where its result is."""
    arguments = json.dumps({"command": "sleep 8; echo all rows copied", "background": True})
    call = Call("run_command", arguments)
    who.model.script(rules=[Rule("backfill", Behaviour(text="I start it.", calls=(call,)))])
    who.new_chat()
    who.write("Please start the backfill.")
    who.talk.click("#log .ask [data-answer=once]")
    who.talk.wait_for_selector("#log .proc")
    who.write("/new")
    closed = time.monotonic()
    row = "[data-part=dropped] tr:has-text('closed_by_user') td:last-child"
    shown = who.until(who.desk, lambda: who.desk.inner_text(row) == "1") - closed

    clicked = time.monotonic()
    who.desk.click("[data-part=dropped] header .more")
    group = who.desk.locator("details.group:has-text('closed_by_user')")
    if group.get_attribute("open") is None:  # the first one is open
        group.locator("summary").click()
    who.desk.get_by_role("link", name="Try redelivering all of them").click()
    who.desk.wait_for_selector("text=all of them would be dropped again")
    who.picture("mend-dropped")
    who.desk.get_by_role("link", name="Choose them in the list").click()
    who.desk.check("input.action-select >> nth=0")
    who.desk.select_option("select[name=action]", label="Deliver as quiet row")
    who.desk.get_by_role("button", name="Run").click()
    who.confirm()
    told = "shown by an operator, without an answer"
    came = who.until(who.talk, lambda: told in who.talk.inner_text("#log"))
    return Walk("results were dropped", shown, came - clicked)


def walk_all() -> list[Walk]:
    """Do all three at one installation."""
    var = Path(tempfile.mkdtemp(prefix="hermes-walks-"))
    with scripted_process() as model, sync_playwright() as playwright:
        model.script("fake-sum", Behaviour(key="right"))
        up = Up(
            var,
            free_port(),
            HERMES_MODEL_BASE_URL=model.base_url,
            HERMES_MODEL_NAME="fake-chat",
            HERMES_MODEL_CONTEXT="4096",
            HERMES_SUMMARY_MODEL_BASE_URL=model.base_url,
            HERMES_SUMMARY_MODEL_NAME="fake-sum",
            HERMES_SUMMARY_MODEL_API_KEY="wrong",
        )
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            who = Operator(browser, up.start().until_up(), model)
            who.is_well()
            return [walk(who) for walk in (summary_key, worker_gone, results_dropped)]
        except Exception:
            for number, page in enumerate(browser.contexts[0].pages):
                page.screenshot(path=f"{tempfile.gettempdir()}/hermes-walk-{number}.png")
            raise
        finally:
            browser.close()
            up.end()
            shutil.rmtree(var, ignore_errors=True)


def main() -> int:
    """Walk, and print what it took."""
    print(f"{'walk':<32}{'shown after':>12}{'mended':>9}  seconds")
    for walk in walk_all():
        print(f"{walk.name:<32}{walk.shown:>12.1f}{walk.mended:>9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
