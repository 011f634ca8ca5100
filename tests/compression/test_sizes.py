"""What the marks are held against: the whole next request, however its size is known."""

from __future__ import annotations

import pytest

from compression_app import fence, gate
from compression_app.domain import Commit
from hermes.lib import hints
from hermes.lib.chat import ToolSpec
from sessions_app import domain, transcript
from sessions_app import intake as sessions
from sessions_app.domain import Code, Refused
from sessions_app.models import ModelEndpoint, Session
from sessions_app.transcript import context, head
from tests import factories
from tests.compression import states

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = 900  # of the description of a tool


class Wordy:
    """A tool whose description is long."""

    spec = ToolSpec("wordy", "word " * WORDS, {"type": "object", "properties": {}})

    def __call__(self, call: domain.ToolCallFacts) -> domain.Done:
        return domain.Done("said")


@pytest.fixture(autouse=True)
def _rows_only(db, monkeypatch):
    ModelEndpoint.objects.create(name="small", kind="offline", window=3_000)
    monkeypatch.setattr(hints, "enqueue", lambda *_: False)


@pytest.fixture
def wordy(settings):
    settings.HERMES_TOOLS = [f"{__name__}.Wordy"]


def sizes(session_id: int) -> tuple[int, int]:
    """What the marks are held against, and the estimate of the request itself."""
    session = Session.objects.select_related("summary").get(pk=session_id)
    specs = [tool.spec for tool in head.tools().values()]
    built = context.build(session_id, window=10**6, tools=specs)
    return transcript.context_tokens(session), built.tokens


def test_without_a_count_of_the_provider_it_is_the_estimate_of_the_request(wordy):
    state = states.long_chat()
    said, sent = sizes(state.turn.session_id)

    assert said == sent
    assert said > WORDS + Session.objects.get(pk=state.turn.session_id).live_tokens


def test_an_undone_summary_does_not_make_it_smaller(wordy):
    state = states.running()
    verdict = fence.commit(state.held.lease, state.written())
    assert isinstance(verdict, Commit)
    after = sizes(state.attempt.session_id)
    sessions.undo_summary(chat_id=state.chat.pk, user_id=state.chat.owner_id)
    undone = sizes(state.attempt.session_id)

    assert after[0] == after[1] < undone[0] == undone[1]


def test_tools_alone_may_lead_a_first_turn_above_the_mark(wordy):
    turn = factories.say(factories.chat(), "hello")
    facts = transcript.facts_of(turn, window=WORDS)

    assert gate.is_above(facts)


def test_a_message_has_to_fit_beside_the_tools(wordy, settings):
    with pytest.raises(Refused) as refused:
        factories.say(factories.chat(), "word " * 1_800)
    assert refused.value.code is Code.TOO_LONG
    settings.HERMES_TOOLS = []
    factories.say(factories.chat(), "word " * 1_800)
