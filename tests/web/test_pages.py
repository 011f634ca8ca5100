"""The pages: who sees what, how much it costs, what is said when something went wrong."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from hermes.web import fragments, reading, selectors
from sessions_app import intake, runner
from sessions_app.models import Chat, Message, ModelEndpoint, Rewind, Session, Turn
from tests import factories
from tests.web.folding import Told
from tests.web.payloads import BASE
from tests.web.safety import problems

pytestmark = pytest.mark.django_db(transaction=True)

OURS = frozenset(
    {
        *("svg", "use", "button", "form", "input", "textarea", "meta", "link", "script", "a"),
        *("dialog", "section", "div", "main", "aside", "header", "nav", "ul", "ol", "li", "p"),
        *("h1", "h2", "h3", "span", "time", "details", "summary", "article", "label", "body"),
    }
)


def signed_in(user) -> Client:
    client = Client(HTTP_HOST="127.0.0.1:8000")
    client.force_login(user)
    return client


def answered(chat: Chat, text: str = "!say 5 words") -> Turn:
    turn = factories.say(chat, text)
    runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    return turn


def rows(chat: Chat, count: int) -> Session:
    """A session with many exchanges, seeded as rows."""
    first = answered(chat)
    session = first.session
    messages = []
    for n in range(count):
        for role in ("user", "assistant"):
            seq = 3 + len(messages)
            messages.append(
                Message(session=session, seq=seq, role=role, text=f"{role} {n}", tokens=5)
            )
    Message.objects.bulk_create(messages)
    Session.objects.filter(pk=session.pk).update(last_seq=2 + len(messages))
    return Session.objects.get(pk=session.pk)


# --- Signing in ----------------------------------------------------------------------------------


def test_signing_in_leads_on_to_where_one_was_going_and_nowhere_else():
    user = factories.person("maren")
    chat = factories.chat(user)
    client = Client(HTTP_HOST="127.0.0.1:8000")
    inside = f"/chats/{chat.uid}/"

    assert client.get(inside).headers["Location"] == f"/login/?next={inside}"
    told = {"username": "maren", "password": "pass"}
    assert client.post("/login/", {**told, "next": inside}).headers["Location"] == inside
    client.logout()
    away = client.post("/login/", {**told, "next": "https://outside.test/"})
    assert away.headers["Location"] == "/"


def test_a_wrong_password_is_told_where_it_happened():
    factories.person("maren")
    answer = Client(HTTP_HOST="127.0.0.1:8000").post(
        "/login/", {"username": "maren", "password": "no"}
    )

    assert "Name or password is not right" in answer.content.decode()
    assert 'value="maren"' in answer.content.decode()


def test_posts_without_the_token_are_refused():
    user = factories.person()
    chat = factories.chat(user)
    client = Client(enforce_csrf_checks=True, HTTP_HOST="127.0.0.1:8000")
    client.force_login(user)

    for address in ("/chats/new/", f"/chats/{chat.uid}/delete/", "/logout/"):
        answer = client.post(address)
        assert answer.status_code == 403
        assert "open for too long" in answer.content.decode()


# --- Who sees what -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["", "older/?session=1&before=9", "versions/1/", "text/?session=1&seq=1"],
)
def test_what_is_not_theirs_does_not_exist(path: str):
    theirs = answered(factories.chat()).chat
    client = signed_in(factories.person(is_staff=True, is_superuser=True))

    assert client.get(f"/chats/{theirs.uid}/{path}").status_code == 404
    assert client.get(f"/chats/{uuid.uuid4()}/{path}").status_code == 404


@pytest.mark.parametrize("what", ["rename", "pin", "archive", "delete", "undelete", "model"])
def test_nobody_changes_what_is_not_theirs(what: str):
    theirs = answered(factories.chat()).chat
    before = Chat.objects.filter(pk=theirs.pk).values().get()
    client = signed_in(factories.person())
    answer = client.post(f"/chats/{theirs.uid}/{what}/", {"title": "x", "endpoint": "1", "on": "1"})

    assert answer.status_code == 404
    assert Chat.objects.filter(pk=theirs.pk).values().get() == before


def test_a_text_of_another_chat_is_not_read_through_ones_own():
    theirs = answered(factories.chat())
    own = answered(factories.chat()).chat
    client = signed_in(own.owner)
    address = f"/chats/{own.uid}/text/?session={theirs.session_id}&seq=1"

    assert client.get(address).status_code == 404
    assert (
        client.get(f"/chats/{own.uid}/older/?session={theirs.session_id}&before=9").content.strip()
        == b""
    )


def test_the_first_page_is_a_chat_that_is_not_listed():
    user = factories.person()
    client = signed_in(user)
    first = client.get("/").headers["Location"]

    assert client.get("/").headers["Location"] == first
    assert client.post("/chats/new/").headers["Location"] == first
    page = client.get(first).content.decode()
    assert "What are we working on?" in page
    assert "No chats yet" in page
    assert "offline model" in page


# --- What it costs -------------------------------------------------------------------------------


def test_a_page_takes_at_most_twelve_queries_at_any_length(django_assert_max_num_queries):
    user = factories.person()
    chat = factories.chat(user)
    rows(chat, 600)
    for number in range(60):
        intake.create_chat(user_id=user.pk, title=f"chat {number}")
    Chat.objects.filter(owner=user).update(begun_at=timezone.now())
    intake.new_session(chat_id=chat.pk, user_id=user.pk, client_id="n")
    answered(chat)
    intake.new_session(chat_id=chat.pk, user_id=user.pk, client_id="n2")
    answered(chat)
    intake.regenerate(chat_id=chat.pk, user_id=user.pk)
    client = signed_in(user)
    client.get(f"/chats/{chat.uid}/")

    with django_assert_max_num_queries(12):
        page = client.get(f"/chats/{chat.uid}/")
    assert page.content.count(b'class="row"') + page.content.count(b'class="row row--') == 50
    assert b'id="older"' in page.content


def test_a_page_holds_forty_turns_and_leads_to_all_earlier_ones(django_assert_max_num_queries):
    chat = factories.chat()
    session = rows(chat, 100)
    pages = selectors.last_pages(Chat.objects.select_related("current").get(pk=chat.pk))
    seen = [group.said.text for group in pages[0].groups]
    chat.refresh_from_db()
    while pages and pages[0].has_more:
        before = pages[0].first_seq
        with django_assert_max_num_queries(4):
            pages = selectors.older_pages(chat, session.pk, before)
        seen = [group.said.text for group in pages[0].groups] + seen

    assert len(selectors.last_pages(chat)[-1].groups) == 40
    assert seen == ["!say 5 words", *(f"user {n}" for n in range(100))]


def test_earlier_sessions_stand_above_with_a_divider():
    chat = factories.chat()
    answered(chat, "in the first")
    intake.new_session(chat_id=chat.pk, user_id=chat.owner_id, client_id="n")
    answered(chat, "in the second")
    page = signed_in(chat.owner).get(f"/chats/{chat.uid}/").content.decode()

    past, current = page.index("in the first"), page.index("in the second", page.index('id="log"'))
    assert past < page.index('class="divide"') < current
    assert "Earlier session, no longer in context" in page


# --- What a turn looks like ----------------------------------------------------------------------


def test_tools_are_shown_with_what_was_asked_and_what_came():
    turn = answered(factories.chat(), "!tool current_time {}")
    html = fragments.turn_html(turn.pk)

    assert html.count('class="tool"') == 1
    assert "Current time" in html
    assert "Result" in html
    assert f'id="turn-{turn.pk}"' in html


def test_versions_are_counted_and_come_back():
    chat = factories.chat()
    answered(chat, "hello")
    who = {"chat_id": chat.pk, "user_id": chat.owner_id}
    again = intake.regenerate(**who)
    runner.run_turns(again.session_id)
    html = fragments.turn_html(again.pk)
    rewind = Rewind.objects.get()
    client = signed_in(chat.owner)

    assert "2 of 2" in html
    assert f'data-rewind="{rewind.pk}"' in html
    old = client.get(f"/chats/{chat.uid}/versions/{rewind.pk}/").content.decode()
    assert "built-in offline model" in old
    assert 'data-act="edit"' not in old
    intake.bring_back(**who, rewind_id=rewind.pk)
    page = client.get(f"/chats/{chat.uid}/").content.decode()
    assert "1 of 2" in page


def test_an_edited_message_has_versions_too():
    chat = factories.chat()
    turn = answered(chat, "hello")
    edited = intake.edit_message(
        chat_id=chat.pk, user_id=chat.owner_id, turn_id=turn.pk, client_turn_id="e", text="hi"
    )
    runner.run_turns(turn.session_id)

    html = fragments.turn_html(edited.pk)
    assert "2 of 2" in html[html.index("msg--me") : html.index("msg--agent")]
    assert fragments.turn_html(turn.pk) == ""


def test_what_was_taken_back_can_be_brought_back():
    chat = factories.chat()
    answered(chat, "hello")
    made, _text = intake.rewind_to(chat_id=chat.pk, user_id=chat.owner_id)
    page = signed_in(chat.owner).get(f"/chats/{chat.uid}/").content.decode()

    assert f'data-act="bring-back" data-rewind="{made}"' in page


def fail(turn: Turn, code: str, text: str = "", status: str = "failed") -> None:
    Turn.objects.filter(pk=turn.pk).update(status=status, error_code=code, error_text=text)


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("authentication", "failed", "refuses the key"),
        ("rate", "failed", "limiting requests"),
        ("unreachable", "failed", "cannot be reached"),
        ("empty", "failed", "answer was empty"),
        ("internal", "failed", "wrong on our side"),
        ("ceiling", "failed", "longer than is allowed"),
        ("stopped", "cancelled", "Stopped by you"),
        ("worker_lost", "interrupted", "interrupted"),
        ("length", "completed", "length limit"),
        ("never heard of", "failed", "ended early"),
    ],
)
def test_every_end_has_words_and_a_next_step(code: str, status: str, words: str):
    turn = answered(factories.chat())
    fail(turn, code, "secret detail", status)
    html = fragments.turn_html(turn.pk)

    assert words in html
    assert 'data-act="continue"' in html or 'data-act="regenerate"' in html
    assert "secret detail" not in html


def test_details_are_for_operators_only():
    turn = answered(factories.chat(factories.person(is_staff=True)))
    fail(turn, "authentication", "HTTP 401 from http://model.test")

    assert "HTTP 401" in fragments.turn_html(turn.pk)


def test_an_answer_that_was_asked_for_again_hides_how_the_first_one_failed():
    chat = factories.chat()
    turn = answered(chat)
    intake.regenerate(chat_id=chat.pk, user_id=chat.owner_id)
    fail(turn, "internal")
    assert "wrong on our side" in fragments.turn_html(turn.pk)
    runner.run_turns(turn.session_id)

    assert "wrong on our side" not in fragments.turn_html(turn.pk)
    page = signed_in(chat.owner).get(f"/chats/{chat.uid}/").content.decode()
    assert "wrong on our side" not in page[page.index('id="log"') : page.index('id="notices"')]


def test_a_long_message_is_cut_on_the_page_and_whole_on_demand():
    chat = factories.chat()
    text = "word  \t\n" * 2_000 + "\u202eend"
    turn = answered(chat, text)
    client = signed_in(chat.owner)

    assert "Show all of it" in fragments.turn_html(turn.pk)
    assert len(fragments.turn_html(turn.pk)) < 12_000
    told = client.get(f"/chats/{chat.uid}/text/?session={turn.session_id}&seq=1")
    assert told.content.decode() == text


# --- The list ------------------------------------------------------------------------------------


def test_the_list_is_grouped_and_marked():
    user = factories.person()
    old, new, pinned = (answered(factories.chat(user), f"chat {n}").chat for n in range(3))
    Chat.objects.filter(pk=old.pk).update(active_at=timezone.now() - timezone.timedelta(days=1))
    intake.set_pinned(chat_id=pinned.pk, user_id=user.pk, pinned=True)
    Turn.objects.filter(chat=new).update(
        status="waiting", wait_key="x", finished_at=None, lease_expires_at=None
    )
    bunches = selectors.sidebar(user.pk, Chat.objects.get(pk=old.pk))

    assert [(bunch.title, len(bunch.chats)) for bunch in bunches] == [
        ("Pinned", 1),
        ("Today", 1),
        ("Yesterday", 1),
    ]
    assert bunches[1].chats[0].is_running
    assert bunches[0].chats[0].is_unread
    assert not bunches[2].chats[0].is_unread


def test_every_chat_of_many_can_be_reached():
    user = factories.person()
    Chat.objects.bulk_create(
        Chat(key=f"k{n}", owner=user, title=f"chat {n}.", begun_at=timezone.now())
        for n in range(selectors.LISTED + 20)
    )
    client = signed_in(user)
    first = client.get("/sidebar/").content.decode()
    more = client.get("/sidebar/?pages=2").content.decode()

    assert first.count("row__link") == selectors.LISTED
    assert "Show more chats" in first
    assert more.count("row__link") == selectors.LISTED + 20
    assert "Show more chats" not in more
    for odd in ("0", "-1", "x", "\u00b2", "9" * 30):
        assert client.get("/sidebar/", {"pages": odd}).status_code == 200


def test_renaming_pinning_archiving_deleting_and_back():
    chat = answered(factories.chat()).chat
    client = signed_in(chat.owner)
    base = f"/chats/{chat.uid}/"

    assert client.post(base + "rename/", {"title": " A  name "}).json() == {"ok": True}
    assert client.post(base + "rename/", {"title": " \u200b "}).status_code == 400
    client.post(base + "pin/", {"on": "1"})
    client.post(base + "archive/", {"on": "1"})
    chat.refresh_from_db()
    assert (chat.title, bool(chat.pinned_at), bool(chat.archived_at)) == ("A name", True, True)
    assert "A name" not in client.get("/sidebar/").content.decode()
    assert "A name" in client.get("/sidebar/?archived=1").content.decode()
    client.post(base + "archive/", {"on": "0"})
    client.post(base + "delete/")
    assert client.get(base).status_code == 404
    client.post(base + "undelete/")
    assert client.get(base).status_code == 200


def test_a_model_is_chosen():
    chat = factories.chat()
    intake.seed_endpoints()
    endpoint = ModelEndpoint.objects.get(role="chat")
    client = signed_in(chat.owner)

    assert client.post(f"/chats/{chat.uid}/model/", {"endpoint": str(endpoint.pk)}).json()["ok"]
    for wrong in ("", "x", "999999", "9" * 40):
        assert client.post(f"/chats/{chat.uid}/model/", {"endpoint": wrong}).status_code in {
            400,
            404,
        }


# --- Headers and errors --------------------------------------------------------------------------


def test_every_response_says_what_a_browser_may_do_with_it():
    user = factories.person(is_staff=True, is_superuser=True)
    client = signed_in(user)
    chat = factories.chat(user)
    for path in ("/login/", f"/chats/{chat.uid}/", "/nothing/", "/healthz", "/sidebar/"):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "ws://127.0.0.1:8000" in policy or path == "/healthz"  # of which no page is made
    assert "unsafe" not in client.get("/admin/").headers["Content-Security-Policy"]
    assert (
        "unsafe-eval" in client.get("/admin/sessions_app/turn/").headers["Content-Security-Policy"]
    )


def test_a_fault_of_ours_shows_a_page_and_no_trace(monkeypatch, allow_errors):
    user = factories.person()
    client = signed_in(user)
    client.raise_request_exception = False

    def broken(*_args, **_named):
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(selectors, "sidebar", broken)
    answer = client.get("/sidebar/")

    assert answer.status_code == 500
    assert "Something went wrong on our side" in answer.content.decode()
    assert "secret of the house" not in answer.content.decode()
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_foreign_host_in_the_address_does_not_get_into_the_policy():
    answer = Client(HTTP_HOST="a.test; script-src *").get("/login/")

    assert answer.status_code == 400
    assert "script-src *" not in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("chosen", ["", "x", "-1", "\u00b2", "9" * 18, "9" * 30])
def test_a_model_that_is_none_is_refused_in_words(chosen):
    chat = factories.chat()
    answer = signed_in(chat.owner).post(f"/chats/{chat.uid}/model/", {"endpoint": chosen})

    assert answer.status_code in {400, 404}
    assert answer.json()["message"] == "This model does not exist any more."


def test_long_answers_make_a_page_of_few_turns(monkeypatch):
    monkeypatch.setattr(selectors, "SIGNS", 700)
    chat = factories.chat()
    for _ in range(4):
        answered(chat, "!say 100 words")
    page = selectors.page_of(Session.objects.get(chat=chat))
    older = selectors.page_of(Session.objects.get(chat=chat), before=page.first_seq)

    assert [group.first_seq for group in page.groups] == [7]
    assert page.has_more
    assert [group.first_seq for group in older.groups] == [5]


def test_a_program_is_told_of_few_messages_where_they_are_long(monkeypatch):
    monkeypatch.setattr(reading, "SIGNS", 700)
    chat = factories.chat()
    for _ in range(4):
        answered(chat, "!say 100 words")
    (hello,) = [each for each in Told(chat, html=False).frames if each["type"] == "hello"]

    assert [each["seq"] for each in hello["messages"]] == [7, 8]
    monkeypatch.setattr(reading, "SIGNS", 10)
    (hello,) = [each for each in Told(chat, html=False).frames if each["type"] == "hello"]
    assert [each["seq"] for each in hello["messages"]] == [8]


def test_an_answer_longer_than_a_page_is_shown_whole(monkeypatch):
    monkeypatch.setattr(selectors, "SIGNS", 10)
    chat = factories.chat()
    answered(chat, "!say 100 words")
    page = selectors.page_of(Session.objects.get(chat=chat))

    assert (len(page.groups), page.has_more) == (1, False)


def test_a_pause_that_is_too_long_to_wait_for_is_told_with_its_end():
    chat = factories.chat()
    turn = answered(chat)
    fail(turn, "rate")
    until = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
    Turn.objects.filter(pk=turn.pk).update(retry_at=until)
    page = signed_in(chat.owner).get(f"/chats/{chat.uid}/").content.decode()

    assert 'datetime="2031-05-04T' in page
    assert "It asks for no new try before" in page
    assert "Try again in a moment" not in page
    assert "starts by itself" not in page


def test_the_probes_answer():
    client = Client(HTTP_HOST="127.0.0.1:8000")

    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {
        "database": "ok",
        "broker": "ok",
        "migrations": "ok",
    }


@pytest.mark.parametrize("host", ["10.0.0.9:8000", "web:8000"])
def test_probes_ask_by_the_address_of_the_machine(host):
    client = Client(HTTP_HOST=host)

    assert [client.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [
        200
    ] * 3
    assert client.get("/login/").status_code == 400


def test_a_broker_that_is_away_is_named(settings, allow_errors):
    settings.REDIS_URL = "redis://127.0.0.1:1"
    answer = Client(HTTP_HOST="127.0.0.1:8000").get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["broker"] == "failed"


def test_pages_have_no_inline_style_or_script():
    user = factories.person(is_staff=True)
    chat = answered(factories.chat(user)).chat
    client = signed_in(user)
    for path in (f"/chats/{chat.uid}/", "/login/", "/nothing/"):
        page = client.get(path).content.decode()
        assert " style=" not in page
        assert "<style" not in page
        assert "<script>" not in page
        assert not [each for each in problems(page, allowed=OURS) if "[on" in each]


def test_hostile_texts_stay_texts_everywhere_on_a_page():
    user = get_user_model().objects.create_user(
        username="x", password="pass", first_name="<img src=x onerror=1>", is_staff=True
    )
    chat = factories.chat(user)
    turn = answered(chat, "hello")
    session = turn.session
    Message.objects.bulk_create(
        Message(
            session=session,
            seq=10 + number,
            role=("user", "assistant")[number % 2],
            text=text.replace("\x00", ""),
            parts={"reasoning": text} if number % 2 else {},
        )
        for number, text in enumerate(BASE)
    )
    Session.objects.filter(pk=session.pk).update(last_seq=10 + len(BASE))
    fail(turn, "internal", "<script>1</script>")
    hostile = "</title><script>window.__pwned=1</script>"
    Chat.objects.filter(pk=chat.pk).update(title=hostile, draft=hostile)
    client = signed_in(user)
    page = client.get(f"/chats/{chat.uid}/").content.decode()
    older = client.get(
        f"/chats/{chat.uid}/older/?session={session.pk}&before={10 + len(BASE) - 60}"
    ).content.decode()

    for html in (page, older):
        found = {each for each in problems(html, allowed=OURS) if "[id=" not in each}
        assert found <= {"script[src]", "form[action]"}
        assert "<script>window" not in html
    assert page.count("<script") == 3  # the theme, the module, the settings as data


def test_names_of_addresses_stand():
    assert reverse("home") == "/"
    assert reverse("login") == "/login/"
