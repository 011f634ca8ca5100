"""Turns that ask to run a command, or have run one: rows for pages and sockets to show."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from hermes.lib.chat import ToolCall
from processes_app import domain, intake
from processes_app.models import Approval, ProcessRecord
from sessions_app import transcript
from sessions_app.domain import Done, Wait
from sessions_app.models import Chat, Message
from tests import factories, states
from tests.processes import facts

_numbers = itertools.count(1)
COMMAND = "make verify TABLES=order_events"


@dataclass
class Asked(facts.Background):
    """A chat in which a turn has called ``run_command``."""

    approval: Approval | None = None

    @property
    def call_id(self) -> str:
        """The id of that call."""
        step = Message.objects.filter(turn=self.turn, parts__has_key="calls").latest("seq")
        return str(step.parts["calls"][0]["id"])

    def process_row(self) -> ProcessRecord:
        """Its process, read afresh."""
        return ProcessRecord.objects.get(pk=self.process.pk)


def calling(chat: Chat | None = None, command: str = COMMAND) -> Asked:
    """A running turn that has called the tool."""
    state = Asked(chat or factories.chat(facts.allowed_person()))
    state.turn = factories.say(state.chat, "please verify")
    state.claimed = transcript.claim(state.turn.session_id)
    transcript.start(state.claimed)
    name = f"call-{next(_numbers)}"
    call = ToolCall(name, "run_command", json.dumps({"command": command, "background": True}))
    transcript.append_step(state.claimed, states.answer("I will verify it.", calls=(call,)))
    return state


def asked(
    chat: Chat | None = None, command: str = COMMAND, *, steered: bool = False, cwd: str = ""
) -> Asked:
    """… and waits for the person's answer."""
    state = calling(chat, command)
    state.approval = intake.ask(
        state.claimed.facts,
        state.call_id,
        command=command,
        cwd=cwd,
        script_hash="",
        is_steered=steered,
    )
    key = domain.approval_key(state.approval.pk)
    assert transcript.wait(state.claimed, Wait(key, state.approval.until))
    return state


def ran(chat: Chat | None = None, command: str = COMMAND, **columns: Any) -> Asked:
    """A turn that has started a process in the background, and is over."""
    state = calling(chat, command)
    session = state.turn.session
    state.process = facts.add_process(
        state,
        command=command,
        origin_session=session.key,
        turn_id_meant=state.turn.pk,
        call_id=state.call_id,
        **columns,
    )
    call = ToolCall(state.call_id, "run_command", "{}")
    transcript.append_result(state.claimed, call, Done("It runs."))
    transcript.finish(state.claimed, states.answer("It runs in the background."))
    return state
