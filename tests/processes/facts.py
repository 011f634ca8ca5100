"""Rows and states of processes, for tests: made by the functions of the product."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from hermes.lib.db import db_now
from processes_app import intake, runner
from processes_app.domain import ProcessReason, ProcessStatus
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app import transcript
from sessions_app.models import Chat, Message, Session, Turn
from tests import factories, states
from tests.states import State

_numbers = itertools.count(1)
STARTED = datetime.fromtimestamp(1234.5, UTC)


def allowed_person(name: str = ""):
    """A person who may let the agent run commands."""
    person = factories.person(name)
    kind = ContentType.objects.get_for_model(ProcessRecord)
    person.user_permissions.add(Permission.objects.get(content_type=kind, codename="start_process"))
    return person


@dataclass
class Background(State):
    """A chat whose session has started a process."""

    process: ProcessRecord | None = None

    @property
    def event(self) -> CompletionEvent:
        """Its news, read afresh."""
        return CompletionEvent.objects.select_related("process").get(process=self.process)

    @property
    def session(self) -> Session:
        """The session that started it."""
        return Session.objects.get(key=self.process.origin_session)


def told(chat: Chat) -> list[str]:
    """The texts of all reports in a chat, over all its sessions."""
    rows = Message.objects.filter(session__chat=chat, kind="completion")
    return list(rows.order_by("session", "seq").values_list("text", flat=True))


def reporting(chat: Chat) -> list[Turn]:
    """The turns of a chat that report, whatever became of them."""
    return list(Turn.objects.filter(chat=chat, source="completion").order_by("pk"))


def talked(chat: Chat | None = None) -> Background:
    """A chat with one answered exchange, whose owner may let commands run."""
    state = Background(chat or factories.chat(allowed_person()))
    turn = factories.say(state.chat, "hello")
    claimed = transcript.claim(turn.session_id)
    transcript.start(claimed)
    transcript.finish(claimed, states.answer("hi"))
    return state


def add_process(state: State, **columns: Any) -> ProcessRecord:
    """A running process of the chat's open session, with a known identity."""
    session = Session.objects.get(chat=state.chat, ended_at=None)
    row = {
        "command": "echo done",
        "status": ProcessStatus.RUNNING,
        "origin_chat": state.chat.key,
        "origin_session": session.key,
        "owner_id_meant": state.chat.owner_id,
        "host": "here",
        "boot_id": "boot",
        "pid": 4_000_000 + next(_numbers),
        "pid_start": "1",
        "started_at": STARTED,
        **columns,
    }
    return ProcessRecord.objects.create(**row)


def end(process: ProcessRecord, **fields: Any) -> bool:
    """Record its end: exit code 0 and ``done`` unless told otherwise."""
    values = {"exit_code": 0, "body": "done\n", "ended_at": db_now(), **fields}
    return intake.record_end(
        process.pk, intake.End(ProcessStatus.ENDED, ProcessReason.EXITED, **values)
    )


def running(**columns: Any) -> Background:
    """… and a process that runs."""
    state = talked()
    state.process = add_process(state, **columns)
    return state


def ended(**columns: Any) -> Background:
    """… and has ended; its news is due."""
    state = running(**columns)
    end(state.process)
    return state


def accepted() -> Background:
    """… and is in a queued turn."""
    state = ended()
    runner.deliver(state.chat.key)
    state.turn = reporting(state.chat)[0]
    return state


def held() -> Background:
    """… that a worker has claimed."""
    state = accepted()
    state.claimed = transcript.claim(state.turn.session_id)
    return state


def reset(state: State) -> None:
    """``/new``."""
    chats.new_session(**state.who, client_id=f"new{next(_numbers)}")


def end_idle(state: State) -> None:
    """The system ends the open session."""
    session = Session.objects.get(chat=state.chat, ended_at=None)
    Session.objects.filter(pk=session.pk).update(touched_at=db_now() - timedelta(hours=9))
    assert chats.end_idle(session_id=session.pk, chat_id=state.chat.pk, hours=1)


def purge(state: State) -> None:
    """Delete the chat for good, at once: nobody sees it deleted and not gone yet."""
    with transaction.atomic():
        chats.delete_chat(**state.who)
        chats.purge(state.chat.pk)


def run_turns(state: State) -> None:
    """Let everything that is queued in the chat run, and settle what that allows."""
    for _ in range(20):
        before = CompletionEvent.objects.filter(status__in=["pending", "accepted"]).count()
        for session in Session.objects.filter(chat=state.chat):
            from sessions_app import runner as turns

            while turns.run_turns(session.pk):
                pass
        runner.deliver(state.chat.key)
        if not before:
            return


violations = states.violations
