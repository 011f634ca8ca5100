"""What a turn and a page cost in statements."""

from __future__ import annotations

from django.test import Client

from sessions_app import runner
from tests import factories
from tests.socket.conftest import sign_in

from .counting import Queries, counted
from .figures import Figure
from .seeds import long_session

TURN, PAGE = 20, 12


def queries_of_a_turn() -> Queries:
    """The statements of the worker for one queued turn of a chat that has a summary already."""
    state = long_session(60, covered=20)
    turn = factories.say(state.chat, "!say 4 words")
    with counted() as queries:
        runner.run_turns(turn.session_id)
    turn.refresh_from_db()
    assert turn.status == "completed", turn.status
    return queries


def queries_of_a_page() -> Queries:
    """The statements of a whole page of a long chat, with other chats beside it."""
    owner = factories.person()
    state = long_session(400, owner=owner)
    for _ in range(5):
        long_session(4, owner=owner)
    # As a browser sends them: the host in the address, the login in a cookie.
    client = Client(headers={"host": "127.0.0.1:8000", "cookie": sign_in(owner)})
    path = f"/chats/{state.chat.uid}/"
    client.get(path)
    with counted() as queries:
        page = client.get(path)
    assert page.status_code == 200, page.status_code
    return queries


def figures() -> list[Figure]:
    """Both, each statement named."""
    turn, page = queries_of_a_turn(), queries_of_a_page()
    return [
        Figure("B23", "queries a turn", len(turn), TURN, "", detail={"named": turn.told()}),
        Figure("B23", "queries a page", len(page), PAGE, "", detail={"named": page.told()}),
    ]
