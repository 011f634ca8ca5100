"""Light and dark, wide and narrow, by keyboard, for those who listen."""

from __future__ import annotations

import re
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone

from sessions_app import intake
from sessions_app.models import Chat, Message, Session, Turn, TurnChunk
from tests import factories
from tests.browser.conftest import OpenTab
from tests.scripted.behaviour import Behaviour

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.django_db(transaction=True)]

ANSWER = """## A heading

Words with `code`, **weight** and [a link](http://a.test/).

| Table | Count |
|---|--:|
| `orders_with_a_very_long_name_that_needs_room` | 41,822,907,000 |

```python
def answer(question: str) -> str:  # goes on for so long that no phone shows all of it
    return "42"
```

$$
t = \\frac{B}{c - w}
$$

> Said elsewhere.
"""


def every_state(chat: Chat) -> None:
    """A chat with every part that the log can show."""
    intake.new_session(chat_id=chat.pk, user_id=chat.owner_id, client_id="a")
    session = Session.objects.get(chat=chat)
    Chat.objects.filter(pk=chat.pk).update(begun_at=timezone.now())
    seq = 0

    def turn(text: str, answer: str, status: str, code: str = "", **more) -> Turn:
        nonlocal seq
        made = Turn.objects.create(
            chat=chat,
            session=session,
            text=text,
            status=status,
            error_code=code,
            position=seq + 1,
            first_seq=seq + 1,
            started_at=timezone.now(),
            finished_at=None if status == "waiting" else timezone.now(),
            **more,
        )
        seq += 1
        Message.objects.create(session=session, turn=made, seq=seq, role="user", text=text)
        if answer:
            seq += 1
            Message.objects.create(
                session=session,
                turn=made,
                seq=seq,
                role="assistant",
                text=answer,
                parts={"reasoning": "Because."},
            )
        return made

    turn("what is there " * 12, ANSWER, "completed")
    used = turn("use tools", "", "completed")
    asked = [
        {"id": "1", "name": "read_file", "arguments": '{"path": "a/b"}'},
        {"id": "2", "name": "run_query", "arguments": '{"sql": "SELECT 1"}'},
    ]
    came = {"role": "tool", "kind": "result"}
    for row in (
        {"role": "assistant", "parts": {"calls": asked}},
        {**came, "text": "x" * 300, "parts": {"call_id": "1", "name": "read_file", "ok": True}},
        {**came, "text": "no", "parts": {"call_id": "2", "name": "run_query", "ok": False}},
        {"role": "assistant", "text": "Done."},
    ):
        seq += 1
        Message.objects.create(session=session, turn=used, seq=seq, **row)
    turn("stop it", "Half of an", "cancelled", "stopped")
    turn("fail", "", "failed", "authentication", error_text="HTTP 401")
    turn("lost", "Half", "interrupted", "worker_lost")
    turn("wait", "", "waiting", "rate", wait_key="provider", wait_until=timezone.now())
    Session.objects.filter(pk=session.pk).update(last_seq=seq)
    Chat.objects.filter(pk=chat.pk).update(title="Every state " * 6)


def serious(page) -> list[str]:
    """What an accessibility check finds that would keep somebody out."""
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert len(found.response["passes"]) >= 10  # it has looked
    return [
        f"{each['id']}: {node['html'][:160]}"
        for each in found.response["violations"]
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_nobody_is_kept_out(chat, web, tab: OpenTab, dark: bool):
    out = tab(None, dark=dark, bypass_csp=True)
    page = out.page
    page.goto(out.origin + "/login/")
    assert serious(page) == []
    one = tab(chat.owner, dark=dark, bypass_csp=True)
    page = one.open(f"/chats/{chat.uid}/")
    assert serious(page) == []
    every_state(Chat.objects.get(pk=chat.pk))
    page = one.open(f"/chats/{chat.uid}/")
    page.evaluate("for (const each of document.querySelectorAll('#log details')) each.open = true")
    assert serious(page) == []
    page.click(".meter__sum")
    assert serious(page) == []
    page.keyboard.press("Escape")
    page.fill("#composer", "/")
    assert serious(page) == []
    page.keyboard.press("Escape")
    page.evaluate("document.querySelector('#dlg-keys').showModal()")
    assert serious(page) == []


def test_the_theme_is_there_before_anything_is_painted(chat, tab: OpenTab):
    one = tab(chat.owner, dark=True)
    page = one.open(f"/chats/{chat.uid}/")
    ground = "getComputedStyle(document.body).backgroundColor"

    assert page.evaluate(ground) == "rgb(20, 22, 26)"
    page.click(".person")
    page.click("text=Light")
    assert page.evaluate(ground) == "rgb(251, 250, 248)"
    page.reload(wait_until="commit")
    page.wait_for_selector("body", state="attached")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.parametrize("width", [320, 390, 900, 1440])
def test_nothing_is_wider_than_the_screen(chat, tab: OpenTab, width: int):
    every_state(chat)
    one = tab(chat.owner, width=width, height=844)
    page = one.open(f"/chats/{chat.uid}/")
    page.evaluate("for (const each of document.querySelectorAll('#log details')) each.open = true")
    wide = page.evaluate(
        """() => {
          const view = document.querySelector("#scroll");
          return [document.documentElement.scrollWidth - innerWidth,
                  view.scrollWidth - view.clientWidth];
        }"""
    )

    assert wide == [0, 0]


def test_right_to_left(chat, tab: OpenTab):
    every_state(chat)
    one = tab(chat.owner, width=390)
    page = one.open(f"/chats/{chat.uid}/")
    page.evaluate("document.documentElement.dir = 'rtl'")

    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_everything_by_keyboard(chat, scripted, tab: OpenTab):
    scripted.script(queue=[Behaviour(), Behaviour(hold="never", hold_at=2)])
    one = tab(chat.owner)
    page = one.open(f"/chats/{chat.uid}/")
    focused = "document.activeElement.id"
    assert page.evaluate(focused) == "composer"
    page.keyboard.type("say 3 words")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("please")
    page.keyboard.press("Enter")
    one.done(1)
    assert Message.objects.get(role="user").text == "say 3 words\nplease"
    page.keyboard.type("say 9 words")
    page.keyboard.press("Enter")
    one.streams("w2")
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Stopped by you")

    page.keyboard.press("ArrowUp")
    page.wait_for_selector(".msg__edit textarea")
    assert page.input_value(".msg__edit textarea") == "say 9 words"
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.is_visible("#dlg-keys")
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("k")
    assert "turn" in page.evaluate("document.activeElement.className")
    page.wait_for_selector(".row__link")
    page.keyboard.press("g")
    page.keyboard.press("l")
    assert "row__link" in page.evaluate("document.activeElement.className")
    page.keyboard.press("g")
    page.keyboard.press("m")
    assert page.evaluate(focused) == "composer"
    page.keyboard.type("gn?jx")
    assert page.input_value("#composer") == "gn?jx"
    page.fill("#composer", "")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.wait_for_url(lambda url: str(chat.uid) not in url)


def test_the_list_renames_pins_deletes_and_brings_back(chat, scripted, tab: OpenTab):
    other = factories.chat(chat.owner)
    every_state(other)
    one = tab(chat.owner)
    page = one.open(f"/chats/{chat.uid}/")
    page.hover(".row")
    page.click(".row__more")
    page.click("#row-menu >> text=Rename")
    page.fill("#rename-in", "Another name")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row__title >> text=Another name")
    page.hover(".row")
    page.click(".row__more")
    page.click("#row-menu >> text=Delete")
    page.wait_for_selector(".toast >> text=Chat deleted")
    page.wait_for_selector(".side__empty")
    page.click(".toast >> text=Undo")
    page.wait_for_selector(".row__title >> text=Another name")


def test_a_long_chat_keeps_its_place_and_its_page_small(chat, scripted, tab: OpenTab):
    intake.new_session(chat_id=chat.pk, user_id=chat.owner_id, client_id="a")
    session = Session.objects.get(chat=chat)
    Message.objects.bulk_create(
        Message(
            session=session,
            seq=number + 1,
            role=("user", "assistant")[number % 2],
            text=f"message {number} " + "words " * 30,
        )
        for number in range(400)
    )
    Session.objects.filter(pk=session.pk).update(last_seq=400)
    one = tab(chat.owner)
    page = one.open(f"/chats/{chat.uid}/")
    assert page.locator("#log .turn").count() == 40
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    top = "document.querySelector('#log .turn').getBoundingClientRect().top"
    first = page.locator("#log .turn").first.get_attribute("id")
    before = page.evaluate(top)
    page.click("#older")
    one.until("document.querySelectorAll('#log .turn').length === 80")
    after = page.evaluate(f"document.getElementById('{first}').getBoundingClientRect().top")

    assert abs(after - before) <= 2
    for count in (120, 160, 200):
        page.evaluate("document.querySelector('#older').click()")
        one.until(f"document.querySelectorAll('#log .turn').length === {count}")
    assert page.locator("#older").count() == 0
    assert page.is_visible("#jump")
    page.click("#jump button")
    one.until("document.querySelector('#jump').hidden")
    one.send("say 2 words")
    one.done(1)
    assert page.locator("#log .turn").count() <= 200
    assert page.locator("#older").count() == 1


def test_new_words_do_not_move_what_is_being_read(chat, scripted, tab: OpenTab):
    scripted.script(default=Behaviour(text="line\\n\\n" * 5 + "\n\n".join(["words " * 40] * 30)))
    one = tab(chat.owner)
    page = one.open(f"/chats/{chat.uid}/")
    one.send("first")
    one.done(1)
    page.evaluate("document.querySelector('#scroll').scrollTop = 100")
    page.wait_for_timeout(50)
    one.send("second")
    page.evaluate("document.querySelector('#scroll').scrollTop = 100")
    one.done(2)

    assert page.evaluate("document.querySelector('#scroll').scrollTop") == 100
    assert re.search(r"\(\d+ new\)", page.inner_text("#jump"))


LISTEN = """() => {
  window.heard = [];
  const say = document.querySelector("#say");
  new MutationObserver(() => window.heard.push(say.textContent)).observe(
    say, { childList: true, characterData: true, subtree: true });
}"""


def test_the_ear_hears_sentences_and_changes_not_letters(chat, scripted, tab: OpenTab):
    scripted.script(default=Behaviour(text="One sentence. " * 6, tokens_per_second=30))
    one = tab(chat.owner)
    page = one.open(f"/chats/{chat.uid}/")
    page.evaluate(LISTEN)
    one.send("go")
    one.done(1)
    page.wait_for_timeout(1500)
    heard = page.evaluate("window.heard")

    assert 1 <= len(heard) <= 8
    assert "Hermes is answering." in " ".join(heard)
    assert page.get_attribute("#log", "aria-live") == "off"


def test_the_ear_hears_that_an_answer_was_interrupted_not_that_it_was_stopped(
    chat, scripted, worker, tab: OpenTab
):
    scripted.script(queue=[Behaviour(hold="never", hold_at=40)])
    one = tab(chat.owner)
    page = one.open(f"/chats/{chat.uid}/")
    page.evaluate(LISTEN)
    one.send("say 80 words")
    one.streams("w39")
    deadline = time.monotonic() + 15
    while not TurnChunk.objects.filter(text__contains="w39").exists():  # else nothing is kept
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    worker.kill()
    worker.start()

    one.until("document.querySelector('#log .turn[data-status=interrupted]') !== null")
    one.until("window.heard.join(' ').includes('The answer was')")
    heard = " ".join(page.evaluate("window.heard"))
    assert "The answer was interrupted." in heard
    assert "The answer was stopped." not in heard
