"""What stands for the older part of a transcript: adopted, undone, brought back.

No statement here touches a message, so that adopting a summary costs the same at any length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, Sum

from hermes.lib import tokens
from hermes.lib.db import DbNow
from sessions_app.models import Message, Session, Summary

from . import rows


@dataclass(frozen=True)
class Draft:
    """A summary before it is anybody's."""

    text: str  # as the model will be given it
    body: str  # the part that a model or a person wrote
    covers_through: int
    parts: dict[str, Any] = field(default_factory=dict)
    is_untrusted: bool = False
    is_mechanical: bool = False

    @property
    def tokens(self) -> int:
        """What it costs in a request, estimated."""
        return tokens.estimate(self.text)


def covered_by(session: Session) -> int:
    """The last row that the session's current summary stands for; 0 without one."""
    return 0 if session.summary is None else session.summary.covers_through


def live_between(session_id: int, low: int, high: int) -> tuple[int, int]:
    """Count and tokens of live rows with ``low`` < seq ≤ ``high``."""
    found = (
        Message.objects.filter(session_id=session_id, seq__gt=low, seq__lte=high)
        .live()
        .aggregate(count=Count("pk"), tokens=Sum("tokens"))
    )
    return found["count"], found["tokens"] or 0


def apply_summary(
    session: Session, draft: Draft, *, attempt_id: int | None, before: int, after: int
) -> Summary:
    """Make a draft the current summary of a locked session; the caller publishes."""
    low = covered_by(session)
    count, size = live_between(session.pk, low, draft.covers_through)
    made = Summary.objects.create(
        session=session,
        previous_id=session.summary_id,
        covers_through=draft.covers_through,
        text=draft.text,
        body=draft.body,
        parts=draft.parts,
        tokens=draft.tokens,
        messages=count,
        before_tokens=before,
        after_tokens=after,
        is_untrusted=draft.is_untrusted,
        is_mechanical=draft.is_mechanical,
        attempt_id=attempt_id,
    )
    session.left_out = max(0, session.left_out - count)  # the oldest had no room, and go first
    session.live_count -= count
    session.live_tokens -= size
    _point_at(session, made)
    rows.record(
        session,
        f"summary:{made.pk}",
        "summary",
        to="current",
        covers_through=made.covers_through,
        before=before,
        after=after,
    )
    return made


def undo_summary(session: Session, summary_id: int | None = None, *, actor: str = "") -> bool:
    """Point a locked session back at the summary before the current one; the caller publishes.

    False if there is none, or if ``summary_id`` is not the current one any more. Later turns stay.
    """
    current = session.summary
    if current is None or summary_id not in {None, current.pk}:
        return False
    earlier = current.previous
    low = 0 if earlier is None else earlier.covers_through
    count, size = live_between(session.pk, low, current.covers_through)
    session.live_count += count
    session.live_tokens += size
    _point_at(session, earlier)
    Summary.objects.filter(pk=current.pk).filter(Q(reverted_at=None)).update(
        reverted_at=DbNow(), reverted_tokens=session.live_tokens
    )
    rows.record(
        session, f"summary:{current.pk}", "summary", frm="current", to="undone", actor=actor
    )
    return True


def _point_at(session: Session, summary: Summary | None) -> None:
    """A new generation on another summary; what the provider counted on the old one is void."""
    session.summary = summary
    rows.raise_generation(session)
    session.reading_tokens = session.reading_seq = None
    session.reading_summary = None
    session.save(update_fields=["summary"])
