"""Whether an attempt is opened: facts gathered under the session's lock, judged, written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Exists, Max, OuterRef

from hermes.lib.db import db_now, transacted
from hermes.lib.hints import enqueue_on_commit
from sessions_app import endpoints, transcript
from sessions_app import intake as sessions
from sessions_app.models import Session, Summary

from . import domain, fence, prompts, source, tasks
from .domain import AttemptStatus, Reason, Trigger
from .models import CompactionAttempt, CompressionState, Cooldown

EVERYTHING = "everything"


@dataclass(frozen=True)
class Refusal:
    """Why no attempt was opened; what runs instead, and when the next try is, if that is known."""

    reason: Reason
    attempt: CompactionAttempt | None = None
    until: datetime | None = None


@transacted
def request_compaction(
    *,
    session_id: int,
    trigger: Trigger,
    focus: str = "",
    wants_preview: bool = False,
    incoming_tokens: int = 0,
    actor: str = "",
) -> CompactionAttempt | Refusal:
    """Open a fenced attempt and queue it, or say why not."""
    trigger = Trigger(trigger)
    Session.objects.lock(session_id)
    session = Session.objects.select_related("summary", "chat").get(pk=session_id)
    state = fence.state_of(session)
    window = endpoints.window_for(session.chat.endpoint_id)
    reach = source.compactable(session, window)
    facts = facts_of(session, state, trigger, window, reach.messages, incoming_tokens)
    if (reason := domain.refusal(facts)) is not None:
        running = CompactionAttempt.objects.open().filter(session=session).first()
        until = facts.provider_until if reason is Reason.PROVIDER_BREAKER else facts.cooldown_until
        return Refusal(reason, running, until)
    _drop_preview(session)
    attempt = fence.open_attempt(
        session,
        state,
        facts,
        cut=reach.cut,
        focus=focus[:2000],
        wants_preview=wants_preview,
        actor=actor,
    )
    transcript.publish(session)
    enqueue_on_commit(tasks.run_attempt, attempt.pk)
    return attempt


def _drop_preview(session: Session) -> None:
    """A preview that nobody answered makes room for a new attempt."""
    for old in CompactionAttempt.objects.filter(session=session, status=AttemptStatus.PREVIEW):
        fence.close(session, old, AttemptStatus.SUPERSEDED, Reason.GENERATION)


def facts_of(
    session: Session,
    state: CompressionState,
    trigger: Trigger,
    window: int,
    compactable: int,
    incoming: int = 0,
) -> domain.Facts:
    """What decides whether an attempt is opened; only under the session's lock does it stay so."""
    is_soft = trigger in {Trigger.SOFT, Trigger.BACKLOG}
    share = settings.HERMES_SOFT_MARK if is_soft else settings.HERMES_HARD_MARK
    if is_soft and settings.HERMES_SOFT_MARK > settings.HERMES_HARD_MARK:
        share = settings.HERMES_HARD_MARK  # then only the hard mark acts
    endpoint = endpoints.summary_endpoint(session.chat.endpoint_id)
    scopes = [EVERYTHING, f"endpoint:{0 if endpoint is None else endpoint.pk}"]
    above = {each.scope: each for each in CompressionState.objects.filter(scope__in=scopes)}
    provider = above.get(scopes[1])
    later = Summary.objects.filter(
        session=OuterRef("session"), created_at__gt=OuterRef("reverted_at")
    )  # one that was adopted since: the context has another size, and nobody has undone that
    undone = (
        Summary.objects.filter(~Exists(later), session=session, reverted_at__isnull=False)
        .order_by("-reverted_at")
        .values_list("reverted_tokens", flat=True)
        .first()
    )
    active = Cooldown.objects.active().filter(session=session)
    return domain.Facts(
        trigger=trigger,
        now=db_now(),
        size=transcript.context_tokens(session) + incoming,
        mark=domain.mark(window, share),
        is_over_messages=session.live_count >= settings.HERMES_MESSAGE_LIMIT
        or (is_soft and session.left_out > 0),
        compactable=compactable,
        is_ended=fence.is_closed(session),
        has_open=CompactionAttempt.objects.open().filter(session=session).exists(),
        cooldown_until=active.aggregate(until=Max("until"))["until"],
        ineffective=state.ineffective,
        grew=state.grew,
        probe_at=state.probe_at,
        provider_until=None if provider is None else provider.breaker_until,
        is_paused=any(each.paused_at is not None for each in above.values()),
        grown_since_undo=None if undone is None else session.live_tokens - undone,
        window=window,
    )


def after_turn(
    *, session_id: int, window: int, size: int | None, built_on_id: int | None, left_out: int = 0
) -> None:
    """Note a turn's reading where a commit awaits one, and compact above the soft mark.

    Messages that had no room in the request are reason enough, however small it was. Else nothing
    is asked of the database below the mark.
    """
    if built_on_id is not None and size is not None:
        awaited = CompressionState.objects.filter(session=session_id, awaited_mark__isnull=False)
        if awaited.exists():
            fence.note_reading(session_id, size, built_on_id=built_on_id)
    share = min(settings.HERMES_SOFT_MARK, settings.HERMES_HARD_MARK)
    if size is None or left_out or size >= domain.mark(window, share):
        request_compaction(session_id=session_id, trigger=Trigger.SOFT)


def cancel(*, session_id: int, actor: str = "", by_person: bool = True) -> bool:
    """Cancel the open attempt or preview of a session; False if there is none, or it committed."""
    unfinished = CompactionAttempt.objects.filter(
        session_id=session_id, status__in=sorted(domain.UNFINISHED)
    )
    attempt = unfinished.order_by("-pk").first()
    if attempt is None:
        return False
    return fence.end(
        attempt.pk,
        session_id,
        AttemptStatus.CANCELLED,
        Reason.CANCELLED,
        actor=actor,
        by_person=by_person,
    )


def apply_preview(*, session_id: int, attempt_id: int, body: str, actor: str = "") -> fence.Verdict:
    """Adopt a previewed summary with the text that a person has left in it.

    A text that is empty or too long is refused while the preview waits on, to be put right.
    """
    attempt = CompactionAttempt.objects.select_related("session__summary", "session__chat").get(
        pk=attempt_id, session_id=session_id
    )
    if attempt.status != AttemptStatus.PREVIEW:
        return domain.Fenced()
    read = source.read(attempt.session, attempt.cut, 10**9)
    if read is None or (domain.rejection(body) is not None and not body.strip()):
        return domain.Refuse(AttemptStatus.FAILED, Reason.EMPTY)
    window = endpoints.window_for(attempt.session.chat.endpoint_id)
    draft = prompts.draft(read, body, window)
    previous = attempt.session.summary
    if draft.tokens >= read.tokens + (0 if previous is None else previous.tokens):
        return domain.Refuse(AttemptStatus.FAILED, Reason.WOULD_GROW)
    return fence.apply_preview(attempt.pk, session_id, draft)


def supersede(*, session_id: int) -> int:
    """End the attempts of a session that was ended or changed under them; how many."""
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return 0
    unfinished = CompactionAttempt.objects.filter(
        session_id=session_id, status__in=sorted(domain.UNFINISHED)
    )
    ended = 0
    for attempt in unfinished:
        if fence.is_closed(session):
            reason = Reason.SESSION_ENDED
        elif attempt.generation != session.generation:
            reason = Reason.GENERATION
        else:
            continue
        ended += fence.end(attempt.pk, session_id, AttemptStatus.SUPERSEDED, reason)
    return ended


# --- Operators ----------------------------------------------------------------------------------


@transacted
def set_paused(*, scope: str, paused: bool, actor: str, reason: str = "") -> bool:
    """Pause or resume automatic compaction, everywhere or of one endpoint; False if it was so."""
    found = CompressionState.objects.select_for_update(no_key=True).filter(scope=scope).first()
    if paused == (found is not None and found.paused_at is not None):
        return False
    fence.set_paused(scope, paused=paused, actor=actor)
    what = "pause" if paused else "resume"
    sessions.record_operation(subject=scope, what=what, actor=actor, reason=reason)
    return True


@transacted
def cancel_for_operator(*, attempt_id: int, actor: str, reason: str) -> bool:
    """Cancel an attempt or preview; False if it has ended already."""
    attempt = CompactionAttempt.objects.select_related("session").get(pk=attempt_id)
    subject = f"attempt:{attempt_id}"
    if not fence.end(
        attempt_id,
        attempt.session_id,
        AttemptStatus.CANCELLED,
        Reason.CANCELLED,
        actor=actor,
    ):
        return False
    sessions.record_operation(
        subject=subject, what="cancel", actor=actor, reason=reason, session=attempt.session
    )
    return True


@transacted
def clear_for_operator(*, session_id: int, actor: str, reason: str) -> int:
    """Clear the active cooldowns of a session; how many there were."""
    Session.objects.lock(session_id)
    if not Cooldown.objects.active().filter(session_id=session_id).exists():
        return 0
    return fence.clear_cooldowns(session_id, actor=actor, reason=reason)


@transacted
def trigger_for_operator(
    *, session_id: int, actor: str, reason: str, clears: bool = False
) -> CompactionAttempt | Refusal:
    """Open an attempt for an operator, with ``clears`` after its cooldowns were cleared."""
    if clears:
        clear_for_operator(session_id=session_id, actor=actor, reason=reason)
    opened = request_compaction(session_id=session_id, trigger=Trigger.OPERATOR, actor=actor)
    if isinstance(opened, CompactionAttempt):
        sessions.record_operation(
            subject=f"attempt:{opened.pk}",
            what="retry" if clears else "trigger",
            actor=actor,
            reason=reason,
            session=opened.session,
        )
    return opened
