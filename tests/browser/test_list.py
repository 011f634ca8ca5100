"""The list of chats: what a row's menu works on, and chats beyond the first of them."""

from __future__ import annotations

import pytest
from django.utils import timezone

from hermes.web import selectors
from sessions_app.models import Chat
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.django_db(transaction=True)]


def test_a_chat_with_a_draft_is_renamed_by_its_own_name(tab, chat):
    other = factories.chat(chat.owner)
    Chat.objects.filter(pk=other.pk).update(
        title="Rivers", draft="half a thought", begun_at=timezone.now()
    )
    view = tab(chat.owner)
    page = view.open(f"/chats/{chat.uid}/")
    page.click(f'.row[data-chat="{other.uid}"] .row__more', force=True)
    page.click("#row-menu [data-row=rename]")

    assert page.input_value("#rename-in") == "Rivers"


def test_more_chats_are_shown_on_request(tab, chat):
    Chat.objects.bulk_create(
        Chat(key=f"k{n}", owner=chat.owner, title=f"chat {n}.", begun_at=timezone.now())
        for n in range(selectors.LISTED + 20)
    )
    view = tab(chat.owner)
    page = view.open(f"/chats/{chat.uid}/")
    page.click("[data-act=chats-more]")
    rows = "document.querySelectorAll('#chats .row').length"

    view.until(f"{rows} === {selectors.LISTED + 20}")
