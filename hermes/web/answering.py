"""What a person does about background work: answers a question, ends a process, types into one.

Each finds its thing by the address of the chat; one of another chat reads as not found.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from processes_app import intake as processes
from processes_app import selectors
from processes_app.domain import Answer, KillBy
from processes_app.models import ProcessInput, ProcessRecord
from sessions_app.domain import Code, Refused
from sessions_app.models import Chat

from . import words

TYPED: Final = 4096  # bytes that are typed at once
UNTYPED: Final = 100  # pieces that may wait for a process to take them


class TaskCode(StrEnum):
    """Why something about a command was refused; told in ``docs/frames.md``."""

    ANSWERED = "answered"
    NOT_RUNNING = "not_running"
    NO_TERMINAL = "no_terminal"


def refused(code: StrEnum) -> Refused:
    """The refusal with its words."""
    return Refused(code, words.refusal(code))


def answer(*, chat_id: int, user_id: int, actor: str, approval_id: int, said: str) -> None:
    """Answer an open question of this chat; the first answer counts, from whatever tab.

    Raises:
        Refused: there is no such question here, or it is closed.
    """
    found = selectors.approval_of(_address(chat_id, user_id), approval_id)
    if found is None or found.owner_id_meant != user_id:
        raise refused(Code.NOT_FOUND)
    landed = processes.answer(
        approval_id=found.pk, owner_id=user_id, said=Answer(said), actor=actor
    )
    if not landed:
        raise refused(TaskCode.ANSWERED)


def kill(*, chat_id: int, user_id: int, actor: str, uid: str) -> None:
    """Ask for the end of a process of this chat; asked again it is the same.

    Raises:
        Refused: there is no such process here, or it has ended.
    """
    process = _process(chat_id, user_id, uid)
    if not process.is_active:
        raise refused(TaskCode.NOT_RUNNING)
    processes.ask_kill(process.pk, by=KillBy.PERSON, actor=actor)


def type_into(*, chat_id: int, user_id: int, uid: str, key: str, text: str) -> None:
    """Type a text into the terminal of a process, once for each ``key``.

    Raises:
        Refused: no such process, no terminal, it has ended, too much text, or too much waits.
    """
    process = _process(chat_id, user_id, uid)
    if not process.wants_pty:
        raise refused(TaskCode.NO_TERMINAL)
    if not text:
        raise refused(Code.EMPTY)
    if len(text.encode()) > TYPED:
        raise refused(Code.TOO_LARGE)
    if ProcessInput.objects.filter(process=process, sent_at=None).count() >= UNTYPED:
        raise refused(Code.TOO_MANY)
    if not processes.send_input(process.pk, call_id=f"person:{key}", text=text):
        raise refused(TaskCode.NOT_RUNNING)


def _process(chat_id: int, user_id: int, uid: str) -> ProcessRecord:
    found = selectors.process_of(_address(chat_id, user_id), uid)
    if found is None:
        raise refused(Code.NOT_FOUND)
    return found


def _address(chat_id: int, user_id: int) -> str:
    """The key of a person's chat."""
    chats = Chat.objects.of(user_id).filter(pk=chat_id)
    key = chats.values_list("key", flat=True).first()
    if key is None:
        raise refused(Code.NOT_FOUND)
    return key
