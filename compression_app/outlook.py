"""What a summary would take and leave, and what stands in its way: read, never written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db.models import Count, Max, Min, QuerySet, Sum

from sessions_app import endpoints, transcript
from sessions_app.domain import MessageKind
from sessions_app.models import Message, Session

from . import domain, intake, prompts, source
from .domain import Reason, Trigger
from .models import CompactionAttempt, CompressionState

# What keeps a session that is due from being summarised by itself.
BLOCKING: Final = frozenset(
    {
        Reason.PAUSED,
        Reason.BREAKER,
        Reason.PROVIDER_BREAKER,
        Reason.COOLDOWN,
        Reason.UNDO_FRESH,
    }
)


@dataclass(frozen=True)
class Bundle:
    """Messages of one sort, or one part of a summary, with its size."""

    kind: str  # messages, results, summary; tail, said, anchors
    count: int
    tokens: int
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True)
class Outlook:
    """What goes into a summary and what stays as it is, in estimated tokens."""

    goes: Sequence[Bundle]
    stays: Sequence[Bundle]
    taken: int  # tokens of the messages that go
    written: int | None = None  # tokens of the new summary, where it is written
    body: str = ""  # the part of it that a model wrote and a person may change
    reason: Reason | None = None  # why it cannot be asked for now


def newest(session_id: int) -> CompactionAttempt | None:
    """The last attempt of a session that was opened."""
    return CompactionAttempt.objects.filter(session_id=session_id).order_by("-pk").first()


def judged(
    session: Session, trigger: Trigger, window: int
) -> tuple[domain.Facts, source.Range, Reason | None]:
    """The facts of this moment, what would go, and why no attempt would be opened (or None).

    A breaker that is open counts as open here also when it would let one probe through.
    """
    state = CompressionState.objects.filter(session=session).first() or CompressionState()
    reach = source.compactable(session, window)
    facts = intake.facts_of(session, state, trigger, window, reach.messages)
    return facts, reach, domain.refusal(replace(facts, probe_at=facts.now))


def foreseen(session: Session) -> Outlook:
    """What a summary that a person asks for now would take and leave."""
    window = endpoints.window_for(session.chat.endpoint_id)
    _facts, reach, reason = judged(session, Trigger.MANUAL, window)
    return _outlook(session, reach.cut, reason=reason)


def previewed(attempt: CompactionAttempt) -> Outlook:
    """What an attempt has taken, and what it wrote for a person to look at."""
    session = attempt.session
    window = endpoints.window_for(session.chat.endpoint_id)
    read = source.read(session, attempt.cut, 10**9)
    if read is None:
        return _outlook(session, attempt.cut, reason=Reason.TOO_SHORT)
    draft = prompts.draft(read, attempt.text, window)
    return _outlook(session, attempt.cut, draft=draft)


def _outlook(
    session: Session,
    cut: int,
    *,
    draft: transcript.Draft | None = None,
    reason: Reason | None = None,
) -> Outlook:
    low = transcript.covered_by(session)
    live = Message.objects.filter(session=session, seq__gt=low).live()
    machine = live.filter(seq__lte=cut, kind=MessageKind.RESULT)
    said = live.filter(seq__lte=cut).exclude(kind=MessageKind.RESULT)
    goes = [_bundle("messages", said), _bundle("results", machine)]
    if session.summary is not None:
        goes.append(Bundle("summary", 1, session.summary.tokens))
    stays = [_bundle("tail", live.filter(seq__gt=cut))]
    if draft is not None:
        own = draft.parts["said"]
        stays.append(Bundle("said", len(own), sum(tokens for _seq, _text, tokens in own)))
        anchors = draft.parts["anchors"]
        stays.append(Bundle("anchors", len(anchors), prompts.anchor_tokens(anchors)))
    return Outlook(
        goes=[each for each in goes if each.count],
        stays=[each for each in stays if each.count],
        taken=sum(each.tokens for each in goes if each.kind != "summary"),
        written=None if draft is None else draft.tokens,
        body="" if draft is None else draft.body,
        reason=reason,
    )


def _bundle(kind: str, rows: QuerySet[Message]) -> Bundle:
    found = rows.aggregate(
        count=Count("pk"), tokens=Sum("tokens"), first=Min("created_at"), last=Max("created_at")
    )
    return Bundle(kind, found["count"], found["tokens"] or 0, found["first"], found["last"])
