"""States of a compaction from which faults and races start."""

from __future__ import annotations

from dataclasses import dataclass

from compression_app import fence, intake
from compression_app.domain import Reason, Trigger
from compression_app.models import CompactionAttempt
from hermes.lib.chat import Usage
from sessions_app import transcript
from sessions_app.models import Session
from sessions_app.transcript import Draft, Step
from tests import factories, states

BODY = "## Goal\nShip.\n## Done\nAll.\n## Next step\nNone."


@dataclass
class Folding(states.State):
    """A chat with a compaction in some state."""

    attempt: CompactionAttempt | None = None
    held: fence.Claimed | None = None

    def fresh_attempt(self) -> CompactionAttempt:
        return CompactionAttempt.objects.get(pk=self.attempt.pk)

    def session(self) -> Session:
        return Session.objects.select_related("summary").get(pk=self.attempt.session_id)

    def written(self, covers: int | None = None) -> fence.Written:
        cut = self.attempt.cut if covers is None else covers
        return fence.Written(Draft(text=BODY, body=BODY, covers_through=cut), usage=Usage(9, 9))


def long_chat(pairs: int = 4, words: int = 300) -> Folding:
    """A chat whose rows are well above the marks of the small window."""
    state = Folding(factories.chat())
    for number in range(pairs):
        turn = factories.say(state.chat, f"question {number} " + "word " * words)
        claimed = transcript.claim(turn.session_id)
        transcript.start(claimed)
        transcript.finish(claimed, Step(text=f"answer {number} " + "text " * words))
        state.turn = turn
    return state


def opened() -> Folding:
    """… with an attempt opened, and none of an earlier state in its way."""
    for old in CompactionAttempt.objects.filter(status__in=["queued", "running", "preview"]):
        fence.end(old.pk, old.session_id, "lost", Reason.SHUTDOWN)
    state = long_chat()
    made = intake.request_compaction(session_id=state.turn.session_id, trigger=Trigger.HARD)
    assert isinstance(made, CompactionAttempt), made
    state.attempt = made
    return state


def running() -> Folding:
    """… and claimed by a worker."""
    state = opened()
    state.held = fence.claim(state.attempt.pk, endpoint_id=None, model_name="scripted")
    return state


def held() -> Folding:
    """… with a queued turn that it holds."""
    state = running()
    state.turn = factories.say(state.chat, "what now?")
    state.claimed = transcript.claim(state.turn.session_id)
    fence.hold(state.attempt.pk, state.turn.pk, state.turn.session_id)
    return state


def deferred() -> Folding:
    """… and let go."""
    state = held()
    fence.release(state.attempt.pk, state.turn.session_id)
    return state


def recover(state: Folding) -> None:
    """What the sweeps do once every lease has run out, and what no worker does any more."""
    from compression_app import sweeps
    from hermes.lib.db import DbNow

    CompactionAttempt.objects.filter(status="running").update(lease_expires_at=DbNow())
    sweeps.end_abandoned()
    sweeps.end_void()
    states.end_leases(state)
