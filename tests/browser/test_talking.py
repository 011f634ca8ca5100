"""Sending, streaming, stopping, queueing, coming back: what a person sees."""

from __future__ import annotations

import pytest

from sessions_app.models import Message, Turn
from tests.browser.conftest import OpenTab
from tests.scripted.behaviour import Behaviour, expected_answer
from tests.web.payloads import BASE

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.django_db(transaction=True)]


LAST = "([...document.querySelectorAll('#log .prose')].pop()?.textContent ?? '')"


def path(chat) -> str:
    return f"/chats/{chat.uid}/"


def test_a_message_is_sent_streamed_and_kept(chat, scripted, tab: OpenTab):
    scripted.script(default=Behaviour(hold="go", hold_at=5))
    one = tab(chat.owner)
    page = one.open(path(chat))
    assert page.is_visible("text=What are we working on?")
    one.send("say 12 words")

    page.wait_for_selector(".msg--me >> text=say 12 words")
    one.streams("w5")
    assert page.is_visible("#stop")
    assert page.is_hidden("text=What are we working on?")
    assert (
        page.evaluate("localStorage.getItem('hermes:pending:' + location.pathname.split('/')[2])")
        is None
    )
    scripted.release("go")
    one.done(1)
    assert one.prose() == [expected_answer("say 12 words")]
    assert page.is_hidden("#stop")
    assert page.locator(".msg--me").count() == 1
    page.reload()
    one.ready()
    assert one.prose() == [expected_answer("say 12 words")]


def test_stop_keeps_what_was_written_and_offers_to_go_on(chat, scripted, tab: OpenTab):
    scripted.script(queue=[Behaviour(hold="never", hold_at=4)])
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("say 40 words")
    one.streams("w4")
    page.keyboard.press("Escape")

    page.wait_for_selector("text=Stopped by you")
    assert one.prose()[0].startswith("w1 w2 w3 w4")
    assert page.is_visible("button:has-text('Continue')")
    page.click("button:has-text('Continue')")
    one.done(1)
    assert page.locator(".cutoff .actions:visible").count() == 0
    assert page.locator(".msg--me").count() == 1


def test_messages_wait_in_order_and_can_be_changed(chat, scripted, tab: OpenTab):
    scripted.script(queue=[Behaviour(hold="go", hold_at=2)])
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("say 3 words")
    page.wait_for_selector(".open")
    for text in ("second", "third", "fourth"):
        one.send(text)
    one.until("document.querySelectorAll('.queue__item:not([hidden])').length == 3")
    one.until("document.querySelectorAll('.msg--me').length == 1")

    page.click(".queue__item:nth-child(3) >> text=Delete")
    one.until("document.querySelectorAll('.queue__item').length == 2")
    page.click(".queue__item:nth-child(1) >> text=Edit")
    page.fill(".queue__edit textarea", "second, changed")
    page.click(".queue__edit >> text=Save")
    page.wait_for_selector(".queue__text >> text=second, changed")
    page.click(".queue__item:nth-child(2) >> text=Send now")
    page.wait_for_selector("text=Stopped by you")
    one.done(2)

    said = page.locator(".msg--me .bubble").all_inner_texts()
    assert said == ["say 3 words", "third", "second, changed"]
    assert page.locator(".queue__item").count() == 0


def test_a_reload_in_the_middle_loses_and_repeats_nothing(chat, scripted, tab: OpenTab):
    scripted.script(default=Behaviour(tokens_per_second=60))
    one, two = tab(chat.owner), tab(chat.owner)
    page = one.open(path(chat))
    two.open(path(chat))
    one.send("say 150 words")
    for word in ("w20 ", "w60 "):
        one.until(f"{LAST}.includes({word!r})")
        page.reload()
        one.ready()
        shown = page.evaluate("document.querySelector('#log .prose')?.textContent ?? ''").strip()
        assert expected_answer("say 150 words").startswith(shown)
    one.done(1)
    two.done(1)

    assert one.prose() == two.prose() == [expected_answer("say 150 words")]
    assert two.page.locator(".msg--me").count() == 1


def test_a_lost_connection_is_told_and_made_good(chat, scripted, web, tab: OpenTab):
    scripted.script(default=Behaviour(tokens_per_second=40))
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("say 200 words")
    one.streams("w20 ")
    web.kill()
    page.wait_for_selector("text=Connection lost.")
    one.send("said while away")
    page.wait_for_selector("text=It goes out when the connection is back")
    web.start()
    page.wait_for_selector("text=Connected again.")
    one.done(2)

    assert one.prose() == [expected_answer("say 200 words"), expected_answer("said while away")]
    assert Turn.objects.count() == 2
    assert page.locator(".msg--me").count() == 2


def test_blocks_close_while_they_stream_and_are_never_touched_again(chat, scripted, tab: OpenTab):
    text = (
        "# Title\n\nFirst *paragraph* 😀.\n\n- one\n- two\n\n```python\nprint(1)\n\nprint(2)\n```"
        "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\nx^2\n$$\n\nLast words [ref][r].\n\n[r]: http://a.test/\n"
    )
    scripted.script(default=Behaviour(text=text, chunking="char", tokens_per_second=120))
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("go")
    page.wait_for_selector("[data-live] > .block h2")
    page.evaluate("document.querySelector('[data-live] > .block').marked = true")
    page.wait_for_selector("[data-live] > .block .code")
    one.done(1)

    assert page.evaluate("document.querySelector('#log .prose > .block').marked") is True
    assert page.locator("#log .prose .code pre").inner_text() == "print(1)\n\nprint(2)"
    assert page.locator("#log .prose math").count() == 1
    assert page.locator("#log .prose a[href='http://a.test/']").count() == 1
    streamed = page.locator("#log .prose").inner_html()
    page.reload()
    one.ready()
    assert page.locator("#log .prose").inner_html() == streamed


def test_edit_regenerate_and_versions(chat, scripted, tab: OpenTab):
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("say 2 words")
    one.done(1)
    page.click("[aria-label=Regenerate]")
    page.wait_for_selector("text=2 of 2")
    page.hover(".msg--me")
    page.click("[aria-label='Edit and send again']")
    page.fill(".msg__edit textarea", "say 3 words")
    page.click("text=Send again")
    page.wait_for_selector(".bubble >> text=say 3 words")
    one.until("document.querySelectorAll('#log .turn[data-status=completed]').length == 1")
    assert one.prose() == [expected_answer("say 3 words")]

    page.click(".msg--me [aria-label='Earlier version']")
    page.wait_for_selector("#dlg-version[open] >> text=say 2 words")
    page.click("text=Bring this back")
    page.wait_for_selector("#log .bubble >> text=say 2 words")
    assert one.prose() == [expected_answer("say 2 words")]


def test_commands(chat, scripted, tab: OpenTab):
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("say 2 words")
    one.done(1)
    page.fill("#composer", "/st")
    page.wait_for_selector("#slash-stop:visible")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    assert page.input_value("#composer") == "/status"
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-notice=status]")
    one.send("/compat")
    assert "There is no command /compat" in page.inner_text("#composer-warn")
    page.fill("#composer", "")
    one.send("/title A better name")
    page.wait_for_selector(".head__title >> text=A better name")
    page.wait_for_selector(".row__title >> text=A better name")
    one.send("/undo")
    page.wait_for_selector("text=Taken back")
    page.click("text=Bring back")
    page.wait_for_selector("#log .bubble")
    page.fill("#composer", "")
    one.send("/new")
    page.wait_for_selector(".session--past")
    one.send("say 1 word")
    one.done(2)
    assert page.locator(".divide").count() == 1
    one.send("//etc is a folder")
    page.wait_for_selector(".bubble >> text=/etc is a folder")


def test_two_tabs_show_the_same(chat, scripted, tab: OpenTab):
    one, two = tab(chat.owner), tab(chat.owner)
    one.open(path(chat))
    two.open(path(chat))
    one.send("say 5 words")
    two.send("say 6 words")
    one.done(2)
    two.done(2)
    same = "document.querySelector('#log').textContent.replace(/\\s+/g, ' ')"

    assert one.page.evaluate(same) == two.page.evaluate(same)


def test_what_cannot_be_sent_is_told_and_kept(chat, scripted, tab: OpenTab):
    one = tab(chat.owner)
    page = one.open(path(chat))
    page.evaluate("document.querySelector('#composer').value = 'x'.repeat(300 * 1024)")
    page.press("#composer", "Enter")

    assert "at most 256 kB" in page.inner_text("#composer-warn")
    assert len(page.input_value("#composer")) == 300 * 1024
    page.evaluate("document.querySelector('#composer').value = 'y\\n'.repeat(100 * 1024)")
    page.dispatch_event("#composer", "input")
    page.press("#composer", "Enter")
    page.wait_for_selector(".msg--failed")
    assert "tokens" in page.inner_text(".msg__fail")
    page.click(".msg__fail >> text=Edit")
    assert page.input_value("#composer") == "y\n" * 100 * 1024


def test_the_draft_is_kept_until_it_was_sent(chat, scripted, tab: OpenTab):
    one = tab(chat.owner)
    page = one.open(path(chat))
    page.fill("#composer", "not yet")
    page.reload()
    one.ready()

    assert page.input_value("#composer") == "not yet"
    page.press("#composer", "Enter")
    one.done(1)
    page.reload()
    one.ready()
    assert page.input_value("#composer") == ""


def test_a_failure_says_what_to_do(chat, scripted, tab: OpenTab):
    scripted.script(queue=[Behaviour(status=401)])
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("say 3 words")
    page.wait_for_selector("text=refuses the key")
    page.click("button:has-text('Try again')")

    one.until("document.querySelector('#log .prose')")
    one.done(1)
    assert page.is_hidden("text=refuses the key")
    assert page.locator(".msg--me").count() == 1


@pytest.mark.parametrize("chunking", ["char", "whole"])
def test_nothing_hostile_runs_also_by_live_stream(chat, scripted, tab: OpenTab, chunking: str):
    text = "\n\n".join(each.replace("\x00", "") for each in BASE)
    scripted.script(default=Behaviour(text=text, chunking=chunking, reasoning=text))
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("<img src=x onerror=window.__pwned=1> <script>window.__pwned=1</script>")
    one.done(1)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    one.check()
    page.reload()
    one.ready()
    one.check()
    assert page.locator("#log img, #log script, #log svg[onload], #log iframe").count() == 0
    assert Message.objects.get(role="assistant").text == text


def test_a_flush_costs_little_at_any_length(chat, scripted, tab: OpenTab):
    text = "".join(f"Words of line {n}, and some more of them to fill it.\n" for n in range(1150))
    scripted.script(default=Behaviour(text=text, hold="go", hold_at=11_000, chunking="word"))
    one = tab(chat.owner)
    page = one.open(path(chat))
    one.send("go")
    one.until("document.querySelector('.open')?.textContent.length > 48000")
    spent, anew = page.evaluate(
        """() => {
          const text = document.querySelector(".open").firstChild;
          const view = document.querySelector("#scroll");
          const least = (change) => {  // other processes only ever add to it
            const costs = [];
            for (let n = 0; n < 30; n += 1) {
              const began = performance.now();
              change(n);
              view.scrollTop = view.scrollHeight;
              costs.push(performance.now() - began);
            }
            return Math.min(...costs);
          };
          return [
            least(() => text.appendData("eight more words that come with a flush ")),
            least((n) => { text.data = n + text.data.slice(1); }),
          ];
        }"""
    )
    scripted.release("go")
    one.done(1)

    print(f"one flush behind 48 KB, with layout: {spent:.1f} ms; all of it anew: {anew:.1f} ms")
    assert spent <= max(4, anew / 2), (spent, anew)
