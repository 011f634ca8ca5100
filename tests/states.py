"""States from which faults and races start, and what is asked of them afterwards."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from compression_app import invariants as compaction
from hermes.lib.chat import ToolCall, Usage
from hermes.lib.chat_offline import OfflineChatModel
from hermes.lib.db import DbNow
from processes_app import invariants as of_processes
from sessions_app import runner, sweeps, transcript
from sessions_app.domain import Wait
from sessions_app.invariants import check_invariants
from sessions_app.models import Chat, Message, Session, Turn
from sessions_app.transcript import Claimed, Step
from tests import factories

SILENT = OfflineChatModel(word_seconds=0)

_ids = itertools.count(1)


@dataclass
class State:
    """A chat in the middle of something."""

    chat: Chat
    turn: Turn | None = None
    claimed: Claimed | None = None

    @property
    def who(self) -> dict[str, int]:
        return {"chat_id": self.chat.pk, "user_id": self.chat.owner_id}

    def again(self) -> Turn:
        """The turn, read afresh."""
        return Turn.objects.select_related("chat", "session").get(pk=self.turn.pk)

    def rows(self) -> list[tuple[str, str]]:
        """What was said, in order, over all sessions of the chat."""
        rows = Message.objects.filter(session__chat=self.chat).order_by("session", "seq")
        return list(rows.values_list("role", "text"))


def violations(state: State) -> list[str]:
    """Broken invariants of the chat's sessions, and of its processes and their news."""
    sessions = Session.objects.filter(chat=state.chat).values_list("pk", flat=True)
    checks = (
        check_invariants,
        compaction.check_invariants,
        of_processes.check_invariants,
    )
    return [line for pk in sessions for check in checks for line in check(pk)]


def fresh() -> State:
    """A chat with one answered exchange."""
    state = State(factories.chat())
    turn = factories.say(state.chat, "hello")
    claimed = transcript.claim(turn.session_id)
    transcript.start(claimed)
    transcript.finish(claimed, answer("hi"))
    return state


def queued() -> State:
    """… and a message that waits."""
    state = fresh()
    state.turn = factories.say(state.chat, "what now?")
    return state


def claimed() -> State:
    """… that a worker has claimed."""
    state = queued()
    state.claimed = transcript.claim(state.turn.session_id)
    return state


def running() -> State:
    """… and started, with some text streamed."""
    state = claimed()
    transcript.start(state.claimed)
    transcript.save_chunk(state.claimed.lease, 0, 0, "so far ")
    transcript.save_chunk(state.claimed.lease, 1, 7, "so good")
    return state


def started() -> State:
    """… and started, with nothing streamed yet."""
    state = claimed()
    transcript.start(state.claimed)
    return state


CALL = ToolCall("call-1", "current_time", "{}")


def calling() -> State:
    """… and asking for a tool."""
    state = started()
    transcript.append_step(state.claimed, answer("let me look", calls=(CALL,)))
    return state


def waiting() -> State:
    """… and waiting for it."""
    state = calling()
    transcript.wait(state.claimed, Wait("key"))
    return state


def answer(text: str, **fields: Any) -> Step:
    """What a model said."""
    return Step(text=text, usage=Usage(10, 5), model_name="scripted", **fields)


def a_new_id() -> str:
    """A client id that was not used before."""
    return f"id{next(_ids)}"


def end_leases(state: State) -> None:
    """What a sweep does once the lease has run out."""
    Turn.objects.filter(chat=state.chat, status="running").update(lease_expires_at=DbNow())
    list(sweeps.end_abandoned())


def run_all(state: State) -> None:
    """Recover: end lost runs, then let everything that is queued run to its end."""
    end_leases(state)
    for session in Session.objects.filter(chat=state.chat):
        while runner.run_turns(session.pk):
            pass
