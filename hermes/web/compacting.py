"""What a person asks about summaries, by command or by button, and the one true answer to each."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from compression_app import domain as compaction
from compression_app import intake as compactions
from compression_app import outlook
from compression_app.domain import Reason, Trigger
from compression_app.models import CompactionAttempt
from sessions_app import intake
from sessions_app.domain import Code, Refused
from sessions_app.endpoints import window_for
from sessions_app.models import Session, Turn

from . import summaries, words
from .templatetags.chat import moment_words, tokens

Reply: TypeAlias = dict[str, Any]  # code, level, text


def session_of(chat_id: int, user_id: int) -> Session | None:
    """The current session of a person's chat; None if nothing was said in it yet."""
    found = Session.objects.filter(
        chat_id=chat_id,
        chat__owner_id=user_id,
        chat__deleted_at=None,
        chat__is_hidden=False,
        chat__current=F("pk"),
    )
    return found.select_related("summary", "chat").first()


def request(
    *, chat_id: int, user_id: int, actor: str, focus: str = "", wants_preview: bool = False
) -> Reply:
    """Summarise because a person asks; say what happens, or why nothing does."""
    session = session_of(chat_id, user_id)
    if session is None:
        return _refused(compactions.Refusal(Reason.TOO_SHORT))
    window = window_for(session.chat.endpoint_id)
    before = outlook.newest(session.pk)
    facts, reach, _reason = outlook.judged(session, Trigger.MANUAL, window)
    opened = compactions.request_compaction(
        session_id=session.pk,
        trigger=Trigger.MANUAL,
        focus=focus,
        wants_preview=wants_preview,
        actor=actor,
    )
    if isinstance(opened, compactions.Refusal):
        return _attached(opened.attempt) if opened.attempt is not None else _refused(opened)
    is_answering = Turn.objects.busy().filter(session=session).exists()
    return _opened(facts, reach.messages, before, is_answering=is_answering)


def _opened(
    facts: compaction.Facts, count: int, before: CompactionAttempt | None, *, is_answering: bool
) -> Reply:
    retry_at = max(filter(None, (facts.cooldown_until, facts.provider_until)), default=None)
    if retry_at is not None and retry_at <= facts.now:
        retry_at = None
    has_failed = before is not None and before.reason == Reason.PROVIDER
    if has_failed or (facts.provider_until is not None and facts.provider_until > facts.now):
        code = "compaction_retried"
        text = _("Trying again, although the summary model’s provider failed last time.")
        if retry_at is not None:
            text = f"{text} {_automatic_at(retry_at)}"
    elif retry_at is not None:
        code = "compaction_in_cooldown"
        text = _("Summarising now, because you ask.") + f" {_automatic_at(retry_at)}"
    elif is_answering:
        code = "compaction_during_answer"
        text = _(
            "Summarising while the answer is being written. The answer is not touched; the "
            "summary holds from the next turn on."
        )
    else:
        code = "compaction_started"
        text = ngettext(
            "Summarising %d message in the background. You can go on writing.",
            "Summarising %d messages in the background. You can go on writing.",
            count,
        ) % (count,)
    return {"code": code, "level": "info", "text": text}


def _automatic_at(at: datetime) -> str:
    left = max(0, int((at - timezone.now()).total_seconds()))
    return _("By itself Hermes would try again in %(left)s, at %(time)s.") % {
        "left": f"{left // 60}:{left % 60:02d}",
        "time": moment_words(at, "clock"),
    }


def _attached(attempt: CompactionAttempt) -> Reply:
    passed = summaries.elapsed(
        {
            "state": attempt.status,
            "since": (attempt.claimed_at or attempt.opened_at).isoformat(),
        }
    )
    seconds = int(passed or 0)
    text = _(
        "A summary is already being written, for %(time)s now; you get that one. To write it "
        "with another focus, cancel it first."
    ) % {"time": f"{seconds // 60}:{seconds % 60:02d}"}
    return {"code": "compaction_attached", "level": "info", "text": text}


def _refused(refusal: compactions.Refusal) -> Reply:
    why = words.compaction(refusal.reason)
    text = _("Not summarised: %(what)s. %(then)s") % {"what": why.what, "then": why.then}
    code = "compaction_short" if refusal.reason is Reason.TOO_SHORT else "compaction_refused"
    level = "info" if refusal.reason is Reason.TOO_SHORT else "warn"
    return {"code": code, "level": level, "text": text.strip()}


def undo(*, chat_id: int, user_id: int, actor: str, summary_id: int | None = None) -> Reply:
    """Let the model read again what the current summary stands for.

    Raises:
        Refused: there is none, or another one is current by now.
    """
    intake.undo_summary(chat_id=chat_id, user_id=user_id, summary_id=summary_id, actor=actor)
    text = _(
        "The summary is undone: from the next turn on the model reads the messages themselves, as "
        "far as there is room. By itself Hermes summarises again when the conversation has grown "
        "by a tenth of the window."
    )
    return {"code": "summary_undone", "level": "info", "text": text}


def cancel(*, chat_id: int, user_id: int, actor: str) -> None:
    """Cancel the summary that is being written, or that waits for an answer.

    Raises:
        Refused: there is none (any more).
    """
    session = session_of(chat_id, user_id)
    if session is None or not compactions.cancel(session_id=session.pk, actor=actor):
        raise Refused(Code.NOTHING_RUNS, _("No summary is being written any more."))


def adopt(*, chat_id: int, user_id: int, actor: str, attempt_id: int, body: str | None) -> Reply:
    """Take the summary that was previewed, with the words that the person has left in it.

    Raises:
        Refused: there is no such preview any more, or its text is empty or too long; where it can
            be put right, the preview waits on.
    """
    session = session_of(chat_id, user_id)
    attempt = None
    if session is not None:
        attempt = CompactionAttempt.objects.filter(pk=attempt_id, session=session).first()
    gone = Refused(Code.NOT_FOUND, _("This summary is not waiting any more."))
    if session is None or attempt is None:
        raise gone
    body = attempt.text if body is None else body
    verdict = compactions.apply_preview(
        session_id=session.pk, attempt_id=attempt_id, body=body, actor=actor
    )
    match verdict:
        case compaction.Commit():
            attempt.refresh_from_db()
            return summaries.done(attempt)
        case compaction.Fenced():
            raise gone
        case compaction.Refuse(_status, Reason.EMPTY):
            raise Refused(Code.EMPTY, _("A summary needs some text."))
        case compaction.Refuse(_status, Reason.WOULD_GROW):
            text = _("This text is not shorter than what it replaces. Shorten it.")
            raise Refused(Code.TOO_LONG, text)
        case compaction.Refuse(_status, reason):
            return _refused(compactions.Refusal(reason))


def status_lines(session: Session) -> list[str]:
    """How summarising stands, for ``/status``."""
    window = window_for(session.chat.endpoint_id)
    it = summaries.standing(session, window)
    pill = it.pill
    lines = []
    if session.summary is None:
        lines.append(_("No summary stands in for older messages."))
    else:
        lines.append(
            _("A summary of %(tokens)s tokens stands in for everything up to %(time)s.")
            % {
                "tokens": tokens(session.summary.tokens),
                "time": moment_words(session.summary.created_at, "day"),
            }
        )
    if pill["state"] in compaction.OPEN:
        seconds = int(summaries.elapsed(pill) or 0)
        lines.append(
            _("A summary is being written, for %(time)s now.")
            % {"time": f"{seconds // 60}:{seconds % 60:02d}"}
        )
    elif pill["state"] == "preview":
        lines.append(_("A summary waits for your answer."))
    elif it.blocked is not None:
        why = words.compaction(it.blocked)
        lines.append(
            _("Not summarised by itself: %(what)s. %(then)s")
            % {"what": why.what, "then": summaries.next_try(it.retry_at, otherwise=str(why.then))}
        )
    elif it.retry_at is not None:
        lines.append(summaries.next_try(it.retry_at, otherwise=""))
    return lines
