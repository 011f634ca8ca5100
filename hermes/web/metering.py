"""How full the context of a session is, in tokens."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.db.models import Sum

from compression_app import domain as compaction
from sessions_app import domain
from sessions_app.domain import TurnStatus
from sessions_app.endpoints import window_for
from sessions_app.models import Chat, Message, Session, Turn
from sessions_app.transcript import head

FORECAST_TURNS: Final = 8


def meter(chat: Chat, session: Session) -> dict[str, Any]:
    """The numbers of the context meter, in tokens.

    The provider's count of the last request is taken where it still holds, and what came after it
    is estimated; else everything is.
    """
    window = window_for(chat.endpoint_id)
    parts = split(session)
    used = sum(parts.values())
    reading = session.reading_tokens
    has_reading = reading is not None and session.reading_summary_id == session.summary_id
    if has_reading and reading is not None:
        after = Message.objects.filter(session=session, seq__gt=session.reading_seq or 0).live()
        used = reading + (after.aggregate(tokens=Sum("tokens"))["tokens"] or 0)
    reserve = window // domain.RESERVE_SHARE
    free = max(0, window - reserve - used)
    return {
        "used": used,
        "window": window,
        **parts,
        "left_out": session.left_out,
        "free": free,
        "reserve": reserve,
        "soft": compaction.mark(window, settings.HERMES_SOFT_MARK),
        "hard": compaction.mark(window, settings.HERMES_HARD_MARK),
        "is_estimate": not has_reading,
        "turns_left": turns_left(session, free),
    }


def split(session: Session) -> dict[str, int]:
    """What the context is made of, in estimated tokens."""
    return {
        "system": head.system_tokens(),
        "tools": head.tools_tokens(),
        "summary": 0 if session.summary is None else session.summary.tokens,
        "messages": session.live_tokens,
    }


def turns_left(session: Session, free: int) -> int | None:
    """How many turns like the last ones still fit; None while nothing can be said."""
    last = Turn.objects.filter(session=session, status=TurnStatus.COMPLETED).order_by("-pk")
    ids = list(last.values_list("pk", flat=True)[:FORECAST_TURNS])
    rows = Message.objects.filter(turn_id__in=ids, session=session)
    total = rows.aggregate(tokens=Sum("tokens"))["tokens"]
    return None if not total else free * len(ids) // total
