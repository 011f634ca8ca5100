"""What a person can type instead of a message: a line that begins with ``/``.

Each command is one function; it is carried out once per client id, in one transaction with the
record of its reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from processes_app import selectors as processes
from sessions_app import intake
from sessions_app.domain import Code, Refused
from sessions_app.models import Chat, Turn

from . import compacting, metering, reading, tasks


@dataclass(frozen=True)
class Asked:
    """Who typed what, where, under which id."""

    chat_id: int
    user_id: int
    actor: str
    id: str
    rest: str = ""


Reply: TypeAlias = dict[str, Any]  # code, level, text, and maybe drafts, turn, stop
_WRITTEN: Final = re.compile(r"/(\S*)\s*(.*)", re.DOTALL)


def is_command(text: str) -> bool:
    """Whether a submitted text is a command; ``//`` begins a message.

    >>> is_command("/new"), is_command("//new"), is_command("hi /new")
    (True, False, False)
    """
    return text.startswith("/") and not text.startswith("//")


def unescaped(text: str) -> str:
    """The message that was meant by a text which is no command.

    >>> unescaped("//etc"), unescaped("a//b")
    ('/etc', 'a//b')
    """
    return text[1:] if text.startswith("//") else text


def run(asked: Asked, text: str) -> Reply:
    """Carry a command out, once per client id; the same id gets the same reply."""
    written = _WRITTEN.match(text)
    name, rest = (written[1], written[2].strip()) if written else ("", "")
    command = COMMANDS.get(name.lower(), _unknown)
    given = Asked(**{**vars(asked), "rest": rest if command is not _unknown else text})
    if command is new:  # keeps its id itself, shared with the frame ``session.new``
        return command(given)
    return intake.act_once(
        chat_id=asked.chat_id,
        user_id=asked.user_id,
        client_id=asked.id,
        kind="command",
        text=text,
        act=lambda: command(given),
    )


def notice(code: str, text: str, level: str = "info", **more: Any) -> Reply:
    """A reply to the person."""
    return {"code": code, "level": level, "text": text, **more}


def new(asked: Asked) -> Reply:
    """End this session and begin a fresh one; what was waiting comes back as drafts."""
    made = intake.new_session(
        chat_id=asked.chat_id, user_id=asked.user_id, client_id=asked.id, actor=asked.actor
    )
    return notice("session_new", _("A new session has begun."), drafts=made["drafts"])


def undo(asked: Asked) -> Reply:
    """Take the last exchange out of the context; its message comes back as a draft."""
    rewind, said = intake.rewind_to(chat_id=asked.chat_id, user_id=asked.user_id, actor=asked.actor)
    return undone(rewind, said, _("The last exchange is out of the context."))


def undone(rewind: int, said: str, text: str) -> Reply:
    """Tell that this is out of the context; what the person had said comes back as a draft."""
    return notice("undone", text, rewind=rewind, drafts=[said] if said else [])


def retry(asked: Asked) -> Reply:
    """Answer the last message again."""
    turn = intake.regenerate(
        chat_id=asked.chat_id, user_id=asked.user_id, client_turn_id=None, actor=asked.actor
    )
    return notice("retried", _("The last message is answered again."), turn=turn.pk)


def stop(asked: Asked) -> Reply:
    """Stop the running or waiting turn."""
    turn = intake.stop_turn(chat_id=asked.chat_id, user_id=asked.user_id, actor=asked.actor)
    if turn is None:
        return notice("nothing_runs", _("Nothing is running."))
    return notice("stopping", _("The answer is being stopped."), stop=turn.pk)


def compact(asked: Asked) -> Reply:
    """Summarise older messages, with a focus; ``undo`` lets the model read them again."""
    who: dict[str, Any] = {
        "chat_id": asked.chat_id,
        "user_id": asked.user_id,
        "actor": asked.actor,
    }
    if asked.rest.casefold() == "undo":
        return compacting.undo(**who)
    return compacting.request(**who, focus=asked.rest)


def title(asked: Asked) -> Reply:
    """Give the chat a name."""
    try:
        chat = intake.rename(chat_id=asked.chat_id, user_id=asked.user_id, title=asked.rest)
    except Refused as refused:
        if refused.code != Code.EMPTY:
            raise
        text = _("Write the title behind the command: /title My chat")
        return notice("no_title", text, "warn")
    return notice("renamed", _("This chat is now called “%(title)s”.") % {"title": chat.title})


def status(asked: Asked) -> Reply:
    """Say what runs, what waits, and how full the context is."""
    chat = Chat.objects.select_related("current__summary").get(pk=asked.chat_id)
    if chat.current is None:
        return notice("status", _("Nothing was said here yet."))
    told = metering.meter(chat, chat.current)
    busy = Turn.objects.busy().filter(session=chat.current).first()
    lines = [
        _("Session %(number)d, %(count)d messages in the context.")
        % {"number": chat.current.number, "count": chat.current.live_count},
        _("Context: %(used)s of %(window)s tokens.")
        % {"used": f"{told['used']:,}", "window": f"{told['window']:,}"},
        _("From %(soft)s a summary is written; from %(hard)s a turn waits for it.")
        % {"soft": f"{told['soft']:,}", "hard": f"{told['hard']:,}"},
        *compacting.status_lines(chat.current),
        _("Nothing is running.") if busy is None else _("An answer is being written."),
        _("%(count)d messages wait.") % {"count": len(reading.queue(chat.current.pk))},
    ]
    return notice("status", "\n".join(lines))


def tasks_(asked: Asked) -> Reply:
    """Say what waits for the person, what runs and what has ended; a page opens its drawer."""
    chat = Chat.objects.select_related("current").get(pk=asked.chat_id)
    key = "" if chat.current is None else chat.current.key
    drawer = tasks.drawer_of(processes.of_chat(chat.key), key)
    lines = [_("Waits for you: %(command)s") % {"command": ask.line} for ask in drawer.asks]
    lines += [f"{each.uid} · {each.what}: {each.line}" for each in drawer.running]
    lines += [f"{each.uid} · {each.what}: {each.line}" for each in drawer.recent]
    return notice("tasks", "\n".join(lines) or _("This chat has no tasks."))


def help_(asked: Asked) -> Reply:
    """List the commands."""
    lines = [f"/{name} – {_(about)}" for name, about in ABOUT.items()]
    lines.append(_("Begin a message with // to send a text that starts with /."))
    return notice("help", "\n".join(lines))


def _unknown(asked: Asked) -> Reply:
    """Say that there is no such command, and give the text back."""
    text = _("There is no such command. /help lists all; // begins a message with a slash.")
    return notice("unknown_command", text, "warn", drafts=[asked.rest])


COMMANDS: Final[Mapping[str, Callable[[Asked], Reply]]] = {
    "new": new,
    "compact": compact,
    "undo": undo,
    "retry": retry,
    "stop": stop,
    "status": status,
    "tasks": tasks_,
    "title": title,
    "help": help_,
}
ABOUT: Final[Mapping[str, str]] = {
    "new": gettext_noop("begin a fresh session"),
    "compact": gettext_noop("summarise earlier messages, with a focus; “undo” takes it back"),
    "undo": gettext_noop("take the last exchange out of the context"),
    "retry": gettext_noop("answer the last message again"),
    "stop": gettext_noop("stop the answer"),
    "status": gettext_noop("what runs, what waits, how full the context is"),
    "tasks": gettext_noop("what waits for you, what runs, what has ended"),
    "title": gettext_noop("name this chat"),
    "help": gettext_noop("this list"),
}
