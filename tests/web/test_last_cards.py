"""The end of an answer shows the calls and results that nobody was told of before."""

from __future__ import annotations

import pytest

from hermes.lib.chat import ToolCall
from hermes.lib.viewers import Viewer
from hermes.web import reading
from hermes.web.cursor import Cursor, Frame, Stream
from sessions_app import transcript
from sessions_app.domain import Done
from sessions_app.transcript import Step
from tests import states

pytestmark = pytest.mark.django_db(transaction=True)


class Tab:
    """What a socket tells a page of a chat, look by look."""

    def __init__(self, state: states.State) -> None:
        owner = state.chat.owner
        self.state = state
        self.viewer = Viewer(owner.pk, owner.username, "", "")
        self.cursor = Cursor(html=True)
        turn = state.claimed.turn
        self.stream = Stream(turn.pk, turn.fence_token, turn.session_id)
        self.look("hello")

    def look(self, reason: str | None = None) -> list[Frame]:
        uid = str(self.state.chat.uid)
        seen = reading.look(self.viewer, uid, self.cursor, stream=self.stream, reason=reason)
        assert seen is not None
        if seen.live is not None:
            self.stream.open(seen.live.base, seen.live.stored)
        return self.cursor.advance(seen, self.stream)


def begun() -> states.State:
    """A turn that has begun, without a word yet."""
    state = states.claimed()
    assert transcript.start(state.claimed)
    return state


def call(state: states.State) -> None:
    asked = ToolCall("c1", "current_time", "{}")
    assert transcript.append_step(state.claimed, Step(calls=(asked,)))
    assert transcript.append_result(state.claimed, asked, Done("noon"))


def end_of(tab: Tab) -> Frame:
    assert transcript.finish(tab.state.claimed, states.answer("It is noon."))
    (end,) = [frame for frame in tab.look() if frame["type"] == "turn.completed"]
    return end


def test_a_result_in_the_same_look_as_the_end_is_shown():
    tab = Tab(begun())
    call(tab.state)
    assert "running" not in end_of(tab)["html"]


def test_after_calls_that_were_told_only_the_answer_is_sent():
    tab = Tab(begun())
    call(tab.state)
    assert [frame["type"] for frame in tab.look()] == ["turn.tool"]
    end = end_of(tab)
    assert "html" not in end
    assert "It is noon." in end["blocks"][-1]["html"]


def test_a_tab_that_came_in_between_is_sent_only_the_answer():
    state = begun()
    call(state)
    assert "html" not in end_of(Tab(state))


def test_a_turn_of_very_many_calls_is_shown_with_its_answer():
    tab = Tab(begun())
    asked = tuple(ToolCall(f"c{n}", "current_time", "{}") for n in range(220))
    assert transcript.append_step(tab.state.claimed, Step(calls=asked))
    for each in asked:
        assert transcript.append_result(tab.state.claimed, each, Done("noon"))
    shown = end_of(tab)["html"]

    assert "running" not in shown
    assert "It is noon." in shown
