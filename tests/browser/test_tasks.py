"""Background work as a person meets it: asked, allowed or denied, watched, ended, handed on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page

from processes_app import intake as processes
from processes_app.models import Approval, CompletionEvent, ProcessRecord
from sessions_app import intake
from sessions_app.models import Chat, Message
from tests.browser.conftest import OpenTab
from tests.browser.test_summaries import LOOKS, clean, picture, until
from tests.processes import facts
from tests.scripted.behaviour import Behaviour, Call, Rule

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.django_db(transaction=True)]

ASKS_FIRST = """
window.__asked = 0;
window.__told = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { window.__asked += 1; return (this.permission = "granted"); }
  constructor(title, more) { window.__told.push(`${title} ${more.body}`); }
  close() {}
};
document.hasFocus = () => window.__focused ?? true;
"""
TABLE = "--table order_events --since 2026-11-28T21:14Z"
BACKFILL = """for batch in 131 132 133; do
  echo "order_events  batch $batch/381   $batch,000 rows   2,60$((batch % 10)) rows/s"
done
while [ ! -e go ]; do sleep 0.1; done
echo "order_events  all 381 batches copied, 0 rows differ"
"""


@pytest.fixture
def folder(chat, supervisor, product_environment) -> Path:
    """The folder in which the chat's commands work, with a script that ends when it is told."""
    name = hashlib.sha256(chat.key.encode()).hexdigest()[:20]
    made = Path(product_environment["HERMES_WORKSPACE"]) / name
    (made / ".tmp").mkdir(parents=True, exist_ok=True)
    (made / "backfill.sh").write_text(BACKFILL)
    allowed = facts.allowed_person("allowed")
    chat.owner.user_permissions.set(allowed.user_permissions.all())
    intake.rename(chat_id=chat.pk, user_id=chat.owner_id, title="Move the orders database")
    yield made
    for row in ProcessRecord.objects.active():
        processes.ask_kill(row.pk, by="boundary")  # type: ignore[arg-type]
    until(lambda: not ProcessRecord.objects.active().exists())


def calls(scripted, command: str, *, background: bool = True, **more) -> None:
    """The model asks for a command when a person says please, and else answers."""
    arguments = {"command": command, "background": background, **more}
    call = Call("run_command", json.dumps(arguments))
    scripted.script(
        rules=[
            Rule("lease", Behaviour(text="I run it in four steps.", calls=(call,)), times=1),
            Rule("Report of background", Behaviour(text="The backfill is through.")),
        ],
        default=Behaviour(text="It runs. I go on when it is through."),
    )


def ask(here, page: Page) -> None:
    here.send("Please start the backfill.")
    page.wait_for_selector("#log .ask")


def allow(page: Page) -> None:
    page.click("#log .ask [data-answer=once]")
    page.wait_for_selector("#log .proc")


@pytest.mark.parametrize(("width", "height", "dark"), LOOKS)
def test_a_command_is_allowed_watched_and_its_result_comes(
    chat: Chat, folder: Path, scripted, tab: OpenTab, width: int, height: int, dark: bool
):
    calls(scripted, f"sh backfill.sh {TABLE}")
    here = tab(chat.owner, width=width, height=height, dark=dark)
    page = here.open(f"/chats/{chat.uid}/")
    look = f"{'dark' if dark else 'light'}-{width}"
    ask(here, page)
    assert page.evaluate("document.activeElement.id") == "composer"  # focus is never taken
    assert "Waits for your answer" in page.inner_text("#log .turn .live")
    here.until("document.querySelector('[data-tasks-open]').textContent === '1'")
    clean(page)
    picture(page, f"tasks-question-{look}")

    page.reload()
    here.ready()
    page.wait_for_selector("#log .ask")
    assert page.locator("#log .ask").count() == 1
    page.focus("#log .ask")
    page.keyboard.press("1")
    page.wait_for_selector("#log .proc [data-act=kill]")
    assert "Allowed once by you" in page.inner_text("#log .ask--done")
    here.until("document.querySelector('#log [data-tail]').textContent.includes('batch 133')")
    assert "The chat resumes when it finishes" in page.inner_text("#log .proc")
    here.done(1)
    page.click("[data-drawer-toggle]")
    page.wait_for_selector("#tasks .task [data-act=kill]")
    page.wait_for_timeout(400)  # the sheet has come in
    clean(page)
    picture(page, f"tasks-running-{look}")
    page.keyboard.press("Escape")

    (folder / "go").touch()
    page.wait_for_selector("#log .event")
    here.done(2)
    assert "Finished, exit 0" in page.inner_text("#log .event__what")
    assert page.locator("#log .msg--me").count() == 1  # it is not the person's message
    assert page.locator("#log .proc [data-act=kill]").count() == 0
    here.until("document.querySelector('[data-tasks-open]').hidden")
    page.click("#log .event__sum")
    assert "381 batches copied" in page.inner_text("#log .event .out")
    clean(page)
    picture(page, f"tasks-result-{look}")
    page.reload()
    here.ready()
    assert page.locator("#log .event").count() == 1
    with page.expect_navigation():
        page.click("#log .proc [data-log]")
    assert "381 batches copied" in page.inner_text(".paper__out")
    clean(page)


def test_a_foreground_command_says_when_it_resumes(
    chat: Chat, folder: Path, scripted, tab: OpenTab
):
    calls(scripted, "sh backfill.sh", background=False)
    here = tab(chat.owner)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    allow(page)
    page.wait_for_selector("#log .live >> text=Will resume when it finishes")
    assert page.locator("#log .live .spin").count() == 0
    assert "The answer goes on when it finishes" in page.inner_text("#log .proc")
    (folder / "go").touch()
    here.done(1)
    assert "Finished, exit 0" in page.inner_text("#log .proc")
    assert page.locator("#log .event").count() == 0


def test_a_denied_command_does_not_run(chat: Chat, folder: Path, scripted, tab: OpenTab):
    calls(scripted, "touch made")
    here = tab(chat.owner)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    page.click("#log .ask [data-answer=deny]")
    here.done(1)
    assert "Denied by you" in page.inner_text("#log .ask--done")
    assert page.locator("#log .proc").count() == 0
    assert not ProcessRecord.objects.exists()
    assert not (folder / "made").exists()


def test_two_tabs_agree_on_one_answer(chat: Chat, folder: Path, scripted, tab: OpenTab):
    calls(scripted, "echo done")
    one, two = tab(chat.owner), tab(chat.owner)
    first, second = one.open(f"/chats/{chat.uid}/"), two.open(f"/chats/{chat.uid}/")
    ask(one, first)
    second.wait_for_selector("#log .ask")
    second.evaluate(  # what a person does who has not seen yet that it was answered
        "window.__late = document.querySelector('#log .ask [data-answer=deny]')"
    )
    first.click("#log .ask [data-answer=once]")
    for page in (first, second):
        page.wait_for_selector("#log .ask--done >> text=Allowed once by you")
        page.wait_for_selector("#log .event")
    assert not second.evaluate("window.__late.isConnected")
    assert Approval.objects.get().answer == "once"
    assert ProcessRecord.objects.count() == 1


def test_an_answer_that_comes_too_late_says_so_in_its_card(
    chat: Chat, folder: Path, scripted, tab: OpenTab
):
    calls(scripted, "echo done")
    here = tab(chat.owner)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    Approval.objects.update(until="2026-01-01T00:00:00Z")
    page.click("#log .ask [data-answer=once]")
    page.wait_for_selector("#log .ask [data-ask-error]:not([hidden])")
    assert "This question is closed" in page.inner_text("#log .ask [data-ask-error]")
    intake.stop_turn(chat_id=chat.pk, user_id=chat.owner_id)
    page.wait_for_selector("#log .ask--done >> text=Withdrawn")


def test_a_command_is_ended_from_the_drawer(chat: Chat, folder: Path, scripted, tab: OpenTab):
    calls(scripted, "sh backfill.sh --table never")
    here = tab(chat.owner, width=1440)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    allow(page)
    here.send("/tasks")
    page.wait_for_selector("#tasks .task [data-act=kill]")
    page.click("#tasks .task [data-act=kill]")
    page.wait_for_selector("#dlg-sure[open]")
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    assert "sh backfill.sh --table never" in page.inner_text("#sure-c")
    clean(page)
    page.keyboard.press("Escape")
    assert ProcessRecord.objects.get().kill_asked_at is None
    page.click("#tasks .task [data-act=kill]")
    page.click("#sure-go")
    page.wait_for_selector("#log .event--quiet >> text=Killed by you")
    page.wait_for_selector("#tasks >> text=Killed by you")
    assert ProcessRecord.objects.get().kill_by == "person"
    clean(page)
    page.click("[data-act=tasks-close]")
    page.wait_for_selector("#drawer", state="hidden")
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("#drawer:visible")


@pytest.mark.parametrize(("width", "height", "dark"), LOOKS)
def test_a_result_of_a_closed_session_is_handed_on(
    chat: Chat, folder: Path, scripted, tab: OpenTab, width: int, height: int, dark: bool
):
    calls(scripted, f"sh backfill.sh {TABLE}")
    here = tab(chat.owner, width=width, height=height, dark=dark)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    allow(page)
    here.done(1)
    here.send("/new")
    page.wait_for_selector("#log .session--past")
    page.wait_for_selector("#log .proc >> text=does not wake the chat")
    (folder / "go").touch()
    page.wait_for_selector("#log .session--past .event--quiet")
    assert "you had started a new session" in page.inner_text("#log .event--quiet")
    page.click("#log .event--quiet .event__sum")
    clean(page)
    picture(page, f"tasks-quiet-{'dark' if dark else 'light'}-{width}")
    page.click("#log .event--quiet [data-act=bring]")
    here.until("document.querySelector('#composer').value.includes('381 batches copied')")
    assert page.evaluate("document.activeElement.id") == "composer"
    assert Message.objects.filter(kind="completion").count() == 0
    page.fill("#composer", f"So it is through?\n\n{page.input_value('#composer')}")
    page.press("#composer", "Enter")
    here.done(2)
    said = Message.objects.filter(role="user", kind="text").latest("pk")
    assert "381 batches copied" in said.text
    page.reload()
    here.ready()
    assert page.locator("#log .session--past .event--quiet").count() == 1


def test_a_chat_with_running_commands_is_not_deleted_by_one_press(
    chat: Chat, folder: Path, scripted, tab: OpenTab
):
    calls(scripted, "sh backfill.sh --table never")
    here = tab(chat.owner)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    allow(page)
    here.done(1)
    page.click(".head__tools .menu summary")
    page.click(".head__tools [data-act=delete]")
    page.wait_for_selector("#dlg-sure[open]")
    assert "1 command still runs" in page.inner_text("#sure-p")
    page.keyboard.press("Escape")
    assert Chat.objects.get(pk=chat.pk).deleted_at is None
    page.click(".head__tools .menu summary")
    page.click(".head__tools [data-act=delete]")
    with page.expect_navigation():
        page.click("#sure-go")
    assert Chat.objects.get(pk=chat.pk).deleted_at is not None
    until(lambda: ProcessRecord.objects.get().ended_at)


def test_a_person_types_into_a_command(chat: Chat, folder: Path, scripted, tab: OpenTab):
    calls(scripted, "echo name?; read name; echo hello $name", terminal=True)
    here = tab(chat.owner)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    allow(page)
    page.wait_for_selector("#log .proc__type input")
    here.until("document.querySelector('#log [data-tail]').textContent.includes('name?')")
    clean(page)
    page.fill("#log .proc__type input", "<b>Maren</b>")
    page.press("#log .proc__type input", "Enter")
    page.wait_for_selector("#log .event")
    here.until("document.querySelector('#log [data-tail]').textContent.includes('hello <b>Maren')")


def test_notifications_are_asked_for_by_a_press_only(
    chat: Chat, folder: Path, scripted, tab: OpenTab
):
    calls(scripted, "sh backfill.sh")
    here = tab(chat.owner, width=1440)
    here.page.add_init_script(ASKS_FIRST)
    page = here.open(f"/chats/{chat.uid}/")
    ask(here, page)
    allow(page)
    page.click("[data-drawer-toggle]")
    assert page.evaluate("window.__asked") == 0
    page.click("[data-act=notify]")
    page.wait_for_selector("[data-act=notify][aria-pressed=true]")
    assert page.evaluate("window.__asked") == 1
    page.evaluate("window.__focused = false")
    (folder / "go").touch()
    here.until("window.__told.length > 0")
    assert "A background command has ended" in page.evaluate("window.__told[0]")
    until(lambda: CompletionEvent.objects.get().settled_at)
    assert len(page.evaluate("window.__told")) == 1


def test_a_notification_shows_a_command_as_its_card_does(
    chat: Chat, folder: Path, scripted, tab: OpenTab
):
    calls(scripted, "sh back\u202efill.sh")
    here = tab(chat.owner, width=1440)
    here.page.add_init_script(ASKS_FIRST)
    page = here.open(f"/chats/{chat.uid}/")
    page.click("[data-drawer-toggle]")
    page.click("[data-act=notify]")
    page.wait_for_selector("[data-act=notify][aria-pressed=true]")
    page.evaluate("window.__focused = false")
    ask(here, page)
    here.until("window.__told.length > 0")
    assert "sh back⟨U+202E⟩fill.sh" in page.evaluate("window.__told[0]")
