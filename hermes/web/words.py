"""Codes as words for people: what happened, then what to do. Nothing here is for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from processes_app.domain import signal_name


@dataclass(frozen=True)
class Words:
    """What happened, and what to do about it; ``operator``: what only an operator can do."""

    what: str | Promise
    then: str | Promise = ""
    operator: str | Promise = ""
    icon: str = "warn"


_NOT_LOST: Final = _("Your message is kept.")

ENDS: Final[Mapping[str, Words]] = {
    # The model could not answer: chat.ErrorKind
    "authentication": Words(
        _("The model’s provider refuses the key."),
        _("An operator can enter a new one; then try again. Your message is kept."),
        _("Enter a new key under model endpoints."),
        "key",
    ),
    "permission": Words(
        _("The model’s provider does not allow this."),
        _("Choose another model, or ask an operator. Your message is kept."),
        _("The key may not use this model."),
        "key",
    ),
    "not_found": Words(
        _("The provider does not know this model."),
        _("Choose another model, or ask an operator. Your message is kept."),
        _("Check name and address of the endpoint."),
    ),
    "quota": Words(
        _("The account with the model’s provider is used up."),
        _("Choose another model, or ask an operator. Your message is kept."),
        _("Top up the account, or add another endpoint."),
    ),
    "rate": Words(
        _("The model’s provider is limiting requests."),
        _("Nothing of your message is lost. Try again in a moment."),
    ),
    "overloaded": Words(
        _("The model’s provider is overloaded."),
        _("Nothing of your message is lost. Try again in a moment."),
    ),
    "too_long": Words(
        _("The conversation is too long for this model."),
        _("Start a new session with /new, or choose a model with a larger window."),
    ),
    "refused": Words(
        _("The provider refused to answer this."),
        _("Say it differently, or choose another model."),
    ),
    "unreachable": Words(
        _("The model cannot be reached."),
        _("Try again in a moment. Your message is kept."),
        _("Check address and network of the endpoint."),
        "offline",
    ),
    "blocked": Words(
        _("The model’s address is not allowed."),
        _("Ask an operator. Your message is kept."),
        _("Allow the host in the settings, or correct the address of the endpoint."),
    ),
    "stalled": Words(_("The model stopped sending."), _("What came so far is kept. Try again.")),
    "cut": Words(
        _("The connection to the model broke off."), _("What came so far is kept. Try again.")
    ),
    "empty": Words(
        _("The answer was empty."), _("The model returned no text. Try again."), icon="fail"
    ),
    "malformed": Words(
        _("The model’s answer could not be read."),
        _("Try again, or choose another model."),
        icon="fail",
    ),
    "shut_down": Words(_("The answer was interrupted."), _("What came so far is kept.")),
    # How a turn ended otherwise: turn.error_code
    "stopped": Words(_("Stopped by you."), _("The text so far is kept."), icon="stopped"),
    "worker_lost": Words(
        _("The answer was interrupted: the process that wrote it is gone."),
        _("The text so far is kept."),
        icon="warn",
    ),
    "shutdown": Words(
        _("The answer was interrupted by a restart."), _("The text so far is kept."), icon="warn"
    ),
    "length": Words(_("The answer reached its length limit."), icon="warn"),
    "content_filter": Words(
        _("The provider’s filter ended this answer."), _("Say it differently to go on.")
    ),
    "ceiling": Words(
        _("The answer took longer than is allowed."),
        _("What came so far is kept. Ask for less at once, or go on."),
        icon="clock",
    ),
    "internal": Words(
        _("Something went wrong on our side."),
        _("Your message is kept. Try again; if it stays, tell an operator."),
        _("The log has the details."),
    ),
    "dropped": Words(_("This message was not answered."), _("It was withdrawn before it began.")),
    "taken_back": Words(_("Taken back."), icon="undo"),
    "session_reset": Words(
        _("Ended with the session."), _("A new session was begun."), icon="stopped"
    ),
    "deleted": Words(_("Ended when the chat was deleted."), icon="stopped"),
    "ended": Words(_("The session had ended before this began."), icon="stopped"),
}

REFUSED: Final[Mapping[str, Words]] = {
    # domain.Code, and what the socket adds
    "not_found": Words(_("This does not exist any more, or it is not yours.")),
    "empty": Words(_("There is nothing to send.")),
    "too_large": Words(_("The message is too large."), _("Send it in parts.")),
    "too_long": Words(
        _("The message is too long for this model."),
        _("Send it in parts, or choose a model with a larger window."),
    ),
    "id_reused": Words(_("This was sent before with other words."), _("Send it again.")),
    "queue_full": Words(_("Too many messages are waiting."), _("Let some be answered first.")),
    "too_many": Words(_("That was too much at once."), _("Try again in a moment.")),
    "not_queued": Words(_("This message is not waiting any more."), _("It is being answered.")),
    "nothing_runs": Words(_("Nothing is running.")),
    "nothing_to_redo": Words(_("There is nothing here that could be done again.")),
    "busy": Words(_("An answer is being written."), _("Stop it first, or wait for it.")),
    "mismatch": Words(_("This belongs to another chat."), _("Reload the page.")),
    "malformed": Words(_("This could not be read."), _("Reload the page.")),
    "rate": Words(_("That was too much at once."), _("Try again in a moment.")),
    "unknown_type": Words(_("This is not known here."), _("Reload the page.")),
    "unavailable": Words(
        _("The database is away for a moment."), _("Your message is kept; it is sent again.")
    ),
    "internal": Words(_("Something went wrong on our side."), _("Try again.")),
    "ended": Words(_("This session has ended."), _("Send a message to begin a new one.")),
    # TaskCode, about commands
    "answered": Words(_("This question is closed."), _("It was answered, or its time was up.")),
    "not_running": Words(_("This command does not run any more.")),
    "no_terminal": Words(_("This command has no terminal to type into.")),
}

# Why there is no summary (compression_app.domain.Reason): ``what`` goes on a sentence.
_NEXT: Final = _("Hermes tries again by itself.")
_BAD_SUMMARY: Final = _("If it repeats, name another summary model.")
COMPACTION: Final[Mapping[str, Words]] = {
    "unfenced": Words(_("it could not be kept apart from new messages"), _NEXT),
    "hold_expired": Words(_("it did not come in time"), _NEXT, icon="clock"),
    "deadline": Words(
        _("it took too long"),
        _NEXT,
        _("Use a faster summary model, or raise the ceiling."),
        "clock",
    ),
    "stalled": Words(_("the model stopped sending"), _NEXT, icon="clock"),
    "session_ended": Words(_("the session ended meanwhile"), icon="stopped"),
    "generation": Words(_("the conversation was changed meanwhile"), icon="undo"),
    "cancelled": Words(_("it was cancelled"), _("/compact starts it again."), icon="stopped"),
    "lease_expired": Words(_("the process that wrote it is gone"), _NEXT),
    "not_claimed": Words(
        _("no worker took it up"), _NEXT, _("Is a worker for background work running?"), "clock"
    ),
    "shutdown": Words(_("a restart came in between"), _NEXT),
    "provider": Words(
        _("the summary model’s provider failed"),
        _("Hermes tries again by itself; /compact tries at once."),
        _("The attempt has the provider’s words."),
    ),
    "empty": Words(_("the model wrote nothing"), _NEXT, _BAD_SUMMARY),
    "reasoning_only": Words(_("the model only thought aloud"), _NEXT, _BAD_SUMMARY),
    "tool_call": Words(_("the model asked for a tool instead"), _NEXT, _BAD_SUMMARY),
    "refusal": Words(_("the model refused"), _NEXT, _BAD_SUMMARY),
    "truncated": Words(_("the model’s text broke off"), _NEXT, _BAD_SUMMARY),
    "not_a_summary": Words(
        _("the model answered with an error instead of a summary"), _NEXT, _BAD_SUMMARY
    ),
    "missing_sections": Words(_("the model left out required parts"), _NEXT, _BAD_SUMMARY),
    "would_grow": Words(
        _("the summary was not shorter than what it replaces"),
        _("Nothing was changed."),
        _BAD_SUMMARY,
    ),
    "internal": Words(_("something went wrong on our side"), _NEXT, _("The log has the details.")),
    "ended": Words(_("this session has ended"), _("Send a message to begin a new one.")),
    "attempt_open": Words(_("one is already being written"), _("Yours joins it."), icon="fold"),
    "too_short": Words(
        _("there is too little to summarise"),
        _("The last messages always stay word for word. Nothing was changed."),
        icon="info",
    ),
    "below_mark": Words(_("there is room enough"), icon="info"),
    "cooldown": Words(
        _("the last attempt did not succeed"), _("/compact tries at once."), icon="clock"
    ),
    "breaker": Words(
        _("two in a row did not help"),
        _("One is tried every five minutes; /compact tries at once."),
        _("Name another summary model, or look at what the messages are."),
        "clock",
    ),
    "provider_breaker": Words(
        _("the summary model’s provider asked to wait"), _("/compact tries at once."), icon="clock"
    ),
    "paused": Words(
        _("an operator has paused them"), _("Ask an operator."), _("Resume it in the admin.")
    ),
    "undo_fresh": Words(
        _("you undid the last one"),
        _("They go on when the conversation has grown by a tenth; /compact starts one now."),
        icon="undo",
    ),
}


# How a command stands or ended: its status, or why it ended.
PROCESSES: Final[Mapping[str, Words]] = {
    "starting": Words(_("Starting"), icon="hour"),
    "running": Words(_("Running"), icon="spinner"),
    "ending": Words(_("Being ended"), icon="hour"),
    "stuck": Words(_("Something of it cannot be ended"), icon="warn"),
    "exited": Words(_("Finished, exit {code}"), icon="done"),
    "exited_badly": Words(_("Failed, exit {code}"), icon="fail"),
    "signalled": Words(_("Ended by {signal} from outside"), icon="fail"),
    "person": Words(_("Killed by you"), icon="stopped"),
    "operator": Words(_("Killed by an operator"), icon="stopped"),
    "agent": Words(_("Killed by Hermes"), icon="stopped"),
    "turn": Words(_("Ended with its answer"), icon="stopped"),
    "boundary": Words(_("Ended with its session"), icon="stopped"),
    "timed_out": Words(_("Ended at its time limit"), icon="clock"),
    "too_many": Words(_("Ended, it made too many processes"), icon="fail"),
    "not_started": Words(_("Could not be started"), icon="fail"),
    "handed_back": Words(_("Taken back before it began"), icon="stopped"),
    "rebooted": Words(_("Outcome unknown, the machine restarted"), icon="warn"),
    "vanished": Words(_("Outcome unknown"), icon="warn"),
    "agent_done": Words(_("The delegated agent has finished"), icon="done"),
}
REPORTED: Final = _("%(what)s, as reported")
ICON_LEVELS: Final[Mapping[str, str]] = {
    "done": "ok",
    "fail": "bad",
    "spinner": "run",
    "warn": "warn",
    "clock": "warn",
}
# Why the end of a command wakes nobody: a drop, or a reason for being quiet.
QUIET: Final[Mapping[str, str | Promise]] = {
    "closed_by_user": _("not delivered: you had started a new session"),
    "newer_session": _("not delivered: you had started a newer session"),
    "too_old": _("not delivered: it ended too long ago"),
    "operator": _("shown by an operator, without an answer"),
    "killed": "",
}
# How a question about a command stands.
ASKS: Final[Mapping[str, Words]] = {
    "open": Words(_("Hermes asks to run a command"), icon="shield"),
    "once": Words(_("Allowed once by you"), icon="shield-check"),
    "always": Words(_("Always allowed here by you"), icon="shield-check"),
    "denied": Words(_("Denied by you"), icon="shield-x"),
    "expired": Words(_("Closed without an answer"), icon="shield-x"),
    "withdrawn": Words(_("Withdrawn, its answer was ended"), icon="shield-x"),
}


def process(status: str, reason: str, **known: Any) -> Words:
    """Words for how a command stands; ``known`` are the columns that say more.

    >>> str(process("ended", "exited", exit_code=2).what)
    'Failed, exit 2'
    """
    name = reason or status
    if not reason and known.get("kill_asked_at"):
        name = "stuck" if known.get("kill_failed_at") else "ending"
    elif reason == "exited" and known.get("signal_number") is not None:
        name = "signalled"
    elif reason == "exited" and known.get("exit_code") != 0:
        name = "exited_badly"
    elif reason == "killed":
        name = known.get("kill_by") or "operator"
    found = PROCESSES.get(name) or PROCESSES["vanished"]
    signal = known.get("signal_number")
    what = str(found.what).format(
        code=known.get("exit_code"), signal="" if signal is None else signal_name(signal)
    )
    return Words(what, icon=found.icon)


def compaction(reason: str) -> Words:
    """Words for why there is no summary; an unknown reason has words too."""
    return COMPACTION.get(reason) or COMPACTION["internal"]


def end_words(code: str) -> Words:
    """Words for how a turn ended; an unknown code has words too."""
    return ENDS.get(code) or Words(_("The answer ended early."), _NOT_LOST)


def sentence(code: str) -> str:
    """One line for a code of either kind, for a frame or a notice."""
    words = ENDS.get(code) or REFUSED.get(code) or ENDS["internal"]
    return f"{words.what} {words.then}".strip()


def refusal(code: str) -> str:
    """One line for why something was not done."""
    words = REFUSED.get(code) or REFUSED["internal"]
    return f"{words.what} {words.then}".strip()


def page_words() -> dict[str, str]:
    """What the page's own script says, in the person's language."""
    return {
        "sending": gettext("Sending…"),
        "sent": gettext("Sent"),
        "waitsForWorker": gettext("Sent · waits to be picked up"),
        "notSent": gettext("Not sent."),
        "offlineKept": gettext("Not sent yet. It goes out when the connection is back."),
        "retry": gettext("Retry"),
        "edit": gettext("Edit"),
        "discard": gettext("Discard"),
        "cancel": gettext("Cancel"),
        "save": gettext("Save"),
        "sendAgain": gettext("Send again"),
        "editHelp": gettext(
            "The answers below are kept as an older version. A running answer is stopped first."
        ),
        "editMessage": gettext("Edit message"),
        "you": gettext("You"),
        "copy": gettext("Copy"),
        "copied": gettext("Copied"),
        "copyFailed": gettext("Copying is not allowed here. Select the text instead."),
        "lost": gettext("Connection lost."),
        "lostThen": gettext("The answer goes on without this tab; your draft is kept."),
        "retryIn": gettext("Trying again in %s."),
        "trying": gettext("Trying again…"),
        "tryNow": gettext("Try now"),
        "caughtUp": gettext("Connected again."),
        "caughtUpThen": gettext("You are caught up."),
        "signedOut": gettext("You were signed out."),
        "signedOutThen": gettext("Your draft is kept in this browser."),
        "signIn": gettext("Sign in"),
        "notAllowed": gettext("You may not use this chat any more."),
        "noChat": gettext("This chat is gone."),
        "noChatThen": gettext("It was deleted, here or in another tab."),
        "chatList": gettext("Go to your chats"),
        "tooBig": gettext("The message is too large to be sent at once. Send it in parts."),
        "limit": gettext("This is {size} kB; at most {limit} kB can be sent at once."),
        "unknownCommand": gettext("There is no command {name}. Start with // to send it as text."),
        "didYouMean": gettext(
            "There is no command {name}. Did you mean {near}? Start with // to send it as text."
        ),
        "latest": gettext("Jump to latest"),
        "latestNew": gettext("Jump to latest ({n} new)"),
        "answerStarted": gettext("Hermes is answering."),
        "answerDone": gettext("The answer is finished."),
        "answerStopped": gettext("The answer was stopped."),
        "answerInterrupted": gettext("The answer was interrupted."),
        "answerFailed": gettext("The answer failed."),
        "answerWaits": gettext("The answer waits."),
        "asks": gettext("Hermes asks to run a command."),
        "tasks": gettext("Tasks"),
        "tasksOpen": gettext("Tasks, {n} open"),
        "taskEnded": gettext("A background command has ended."),
        "kill": gettext("Kill"),
        "killAsk": gettext("End this command?"),
        "killThen": gettext("It and everything that it started is ended. What it wrote is kept."),
        "deleteAsk": gettext("Delete this chat?"),
        "delete": gettext("Delete"),
        "notify": gettext("Notify me in this browser"),
        "notifyOff": gettext("Stop notifying me"),
        "notifyBlocked": gettext("This browser blocks notifications for this address."),
        "bringFailed": gettext("The result could not be loaded. Try again."),
        "queued": gettext("Added to the queue."),
        "send": gettext("Send"),
        "queue": gettext("Queue"),
        "sends": gettext("sends"),
        "queues": gettext("queues"),
        "placeholder": gettext("Message Hermes"),
        "placeholderBusy": gettext("Add to the queue, or / for commands"),
        "thinking": gettext("Thinking"),
        "thoughts": gettext("Thoughts"),
        "writing": gettext("Writing"),
        "firstWord": gettext("Waiting for the first word"),
        "stopping": gettext("Stopping…"),
        "deleted": gettext("Chat deleted"),
        "archived": gettext("Chat archived"),
        "undo": gettext("Undo"),
        "failed": gettext("That did not work. Try again."),
        "version": gettext("Version"),
        "bringBack": gettext("Bring this version back"),
        "close": gettext("Close"),
        "draft": gettext("Draft"),
        "rename": gettext("Rename chat"),
        "title": gettext("Chat title"),
        "titleNeeded": gettext("A title needs at least one letter."),
        "olderFailed": gettext("Earlier messages could not be loaded. Try again."),
        "older": gettext("Show earlier messages"),
        "newSession": gettext("new session"),
        "summaryFailed": gettext("The summary could not be loaded. Try again."),
    }
