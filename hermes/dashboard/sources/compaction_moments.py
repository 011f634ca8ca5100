"""What a session's timeline tells of compaction: attempts, holds and cooldowns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.db.models.functions import Left
from django.utils.translation import gettext as _

from compression_app.domain import Reason
from compression_app.models import CompactionAttempt, Cooldown
from hermes.dashboard import domain
from hermes.lib.chat import ErrorKind
from sessions_app.models import Session

from .base import Moment

KIND_LENGTH: Final = 24  # characters, more than any kind of error has
BARS: Final = {
    "committed": "m-commit",
    "failed": "m-bad",
    "lost": "m-warn",
    "running": "m-info",
    "queued": "m-info",
}


def moments(session: Session) -> Iterator[Moment]:
    """Attempts, holds and cooldowns of a session."""
    rows = CompactionAttempt.objects.filter(session=session).order_by("-pk")
    said = Left("detail", KIND_LENGTH)  # it begins with the kind of a provider's fault
    for attempt in rows.defer("text", "focus", "detail").annotate(said=said)[:200]:
        yield from _of_attempt(attempt)
    for cooldown in Cooldown.objects.filter(session=session).order_by("-pk")[:200]:
        seconds = (cooldown.until - cooldown.created_at).total_seconds()
        facts = [_("attempt %(pk)s") % {"pk": cooldown.attempt_id}]
        if cooldown.cleared_at is not None:
            facts.append(_("cleared early"))
        yield Moment(
            at=cooldown.created_at,
            until=cooldown.cleared_at or cooldown.until,
            kind="cooldown",
            title=_("Cooldown (%(kind)s): %(reason)s")
            % {"kind": cooldown.kind, "reason": cooldown.reason.replace("_", " ")},
            facts=facts,
            tone="warn",
            side=domain.duration(seconds),
            subject=f"cooldown:{cooldown.pk}",
            bar="m-cool",
        )


def _of_attempt(attempt: CompactionAttempt) -> Iterator[Moment]:
    is_adopted = attempt.status == "committed" and attempt.hold_released_at is not None
    yield Moment(
        at=attempt.opened_at,
        until=attempt.finished_at,
        kind="attempt",
        title=_("Attempt %(pk)s opened: %(trigger)s")
        % {"pk": attempt.pk, "trigger": attempt.trigger},
        facts=[
            _("watermark %(n)s") % {"n": attempt.watermark}
            if attempt.watermark is not None
            else _("not fenced"),
            _("generation %(n)s") % {"n": attempt.generation},
            *([attempt.model_name] if attempt.model_name else []),
        ],
        subject=f"attempt:{attempt.pk}",
        bar="hatch" if is_adopted else BARS.get(attempt.status, "m-quiet"),
    )
    if attempt.hold_started_at is not None:
        until = attempt.hold_released_at or attempt.finished_at
        yield Moment(
            at=attempt.hold_started_at,
            until=until,
            kind="hold",
            title=_("Turn %(turn)s held for attempt %(pk)s")
            % {"turn": attempt.held_turn_id, "pk": attempt.pk},
            facts=[
                _("released at the budget; the attempt went on")
                if attempt.hold_released_at
                else _("until the attempt ended")
            ],
            side=domain.duration((until - attempt.hold_started_at).total_seconds())
            if until
            else _("now"),
            subject=f"attempt:{attempt.pk}",
            bar="m-quiet",
        )
    if attempt.finished_at is None:
        return
    took = domain.duration((attempt.finished_at - attempt.opened_at).total_seconds())
    facts = [_("after %(time)s") % {"time": took}]
    spent = attempt.prompt_tokens + attempt.completion_tokens
    if spent:
        facts.append(_("%(n)s tokens spent") % {"n": domain.amount(spent)})
    if attempt.status == "committed":
        facts.append(
            _("%(before)s → %(after)s tokens")
            % {
                "before": domain.amount(attempt.before_tokens),
                "after": domain.amount(attempt.after_tokens),
            }
        )
    if attempt.reason:
        kind = attempt.said.partition(":")[0]  # type: ignore[attr-defined] # annotated
        is_known = attempt.reason == Reason.PROVIDER and kind in set(ErrorKind)
        facts.append(attempt.reason.replace("_", " ") + (f": {kind}" if is_known else ""))
    yield Moment(
        at=attempt.finished_at,
        kind="attempt",
        title=_("Attempt %(pk)s %(status)s") % {"pk": attempt.pk, "status": attempt.status},
        facts=facts,
        tone={"committed": "ok", "failed": "bad", "lost": "warn"}.get(attempt.status, ""),
        side=_("adopted late") if is_adopted else "",
        subject=f"attempt:{attempt.pk}",
        order=1,
    )
