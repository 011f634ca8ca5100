"""One session as it went: its rows and its history, in order, with how long each took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from hermes.lib.redaction import redact
from sessions_app.models import TOLD_BY_ROWS, History, Session

from . import charts, domain
from .charts import Lane, Lanes
from .sources import SOURCES, Moment

MOST: Final = 200  # moments of a page
SILENCE: Final = timedelta(minutes=4)  # that is told
KINDS: Final = ("turn", "hold", "attempt", "cooldown", "process", "completion", "operator")
NAMES: Final[Mapping[str, Promise]] = {
    "turn": _("Turns"),
    "hold": _("Holds"),
    "attempt": _("Attempts"),
    "cooldown": _("Cooldowns"),
    "process": _("Processes"),
    "completion": _("Completions"),
    "operator": _("Operator"),
}
LEGEND: Final = (
    ("m-turn", _("Turn")),
    ("m-commit", _("Attempt, committed")),
    ("hatch", _("Attempt, adopted late")),
    ("m-bad", _("Failed")),
    ("m-warn", _("Lost, interrupted")),
    ("m-cool", _("Cooldown")),
    ("m-info", _("Still running")),
    ("m-quiet", _("Hold; cancelled")),
)
HIDDEN: Final = ({"bar", "order"}, {"bar", "order", "facts", "side"})
ICONS: Final[Mapping[str, str]] = {
    "turn": "turn",
    "hold": "hold",
    "attempt": "layers",
    "cooldown": "timer",
    "process": "proc",
    "completion": "inbox",
    "operator": "op",
    "session": "chat",
}


@dataclass(frozen=True)
class Line:
    """A moment of the list, or a silence before it."""

    moment: Moment | None
    icon: str = ""
    gap: str = ""


@dataclass(frozen=True)
class Timeline:
    """What the page of a session shows."""

    lines: Sequence[Line]
    lanes: Lanes | None
    counts: Mapping[str, int]
    more: bool
    before: str
    begin: datetime | None
    end: datetime | None


def moments(session: Session) -> list[Moment]:
    """Everything that is known of a session, the oldest first."""
    found = [each for source in SOURCES for each in source.moments(session)]
    found.extend(_from_history(session))
    return sorted(found, key=lambda each: (each.at, each.order))


def _from_history(session: Session) -> Iterator[Moment]:
    rows = History.objects.filter(session=session.pk).exclude(kind__in=TOLD_BY_ROWS)
    for row in rows.order_by("-pk")[:500]:
        is_operator = bool(row.actor) and row.kind in {"operator", "read", "cooldown", "export"}
        words = " ".join(part for part in (row.kind, row.frm and f"{row.frm} →", row.to) if part)
        yield Moment(
            at=row.at,
            kind="operator" if is_operator else "session",
            title=words,
            facts=[part for part in (row.subject, redact(row.reason)) if part],
            tone="op" if is_operator else "",
            side=row.actor if is_operator else "",
            subject=row.subject,
        )


def timeline(
    session: Session,
    now: datetime,
    *,
    kinds: Sequence[str] = (),
    newest_first: bool = True,
    before: datetime | None = None,
) -> Timeline:
    """The last moments of a session up to a time, by kind if some are named."""
    whole = moments(session)
    counts = {kind: sum(each.kind == kind for each in whole) for kind in (*KINDS, "session")}
    shown = [each for each in whole if not kinds or each.kind in kinds]
    if before is not None:
        shown = [each for each in shown if each.at < before]
    more = len(shown) > MOST
    shown = shown[-MOST:]
    lanes = _lanes(shown, now) if shown else None
    lines: list[Line] = []
    last: datetime | None = None
    for each in shown:
        if last is not None and each.at - last > SILENCE and not kinds:
            quiet = domain.duration((each.at - last).total_seconds())
            lines.append(Line(None, gap=quiet))
        lines.append(Line(each, ICONS.get(each.kind, "flag")))
        last = max(filter(None, (last, each.at, each.until and min(each.until, now))))
    first = shown[0].at if shown else None
    end = shown[-1].at if shown else None
    return Timeline(
        lines[::-1] if newest_first else lines,
        lanes,
        counts,
        more,
        first.isoformat() if first and more else "",
        first,
        end,
    )


def _lanes(shown: Sequence[Moment], now: datetime) -> Lanes:
    begin = shown[0].at
    ends = [each.at for each in shown]
    # Beyond now only what is certain: the end of a cooldown.
    ends += [each.until for each in shown if each.until and each.kind == "cooldown"]
    ends += [min(each.until or now, now) for each in shown if each.bar and each.kind != "cooldown"]
    end = max(ends)
    if end - begin < timedelta(seconds=10):
        end = begin + timedelta(seconds=10)
    lanes = []
    for number, kind in enumerate(KINDS):
        bars, points = [], []
        for each in (each for each in shown if each.kind == kind):
            title = f"{each.title}{f', {each.side}' if each.side else ''}"
            x = charts.place(each.at, begin, end)
            if each.bar:
                until = each.until or now
                wide = max(14.0, charts.place(until, begin, end) - x)
                bars.append((x, round(wide, 1), each.bar, title))
            elif kind in {"completion", "operator"}:
                points.append((x, "pt-op" if kind == "operator" else "pt-ok", title))
        lanes.append(Lane(kind, number * charts.LANE, bars, points))
    now_x = charts.place(now, begin, end) if begin <= now <= end else None
    return Lanes(charts.SPAN, len(KINDS) * charts.LANE, lanes, now_x, charts.ticks_of(begin, end))


def facts(session: Session) -> dict[str, Any]:
    """The numbers that describe a session; nothing of what was said."""
    state = getattr(session, "compression", None)
    return {
        "session": session.pk,
        "chat": session.chat_id,
        "number": session.number,
        "generation": session.generation,
        "version": session.version,
        "last_seq": session.last_seq,
        "live_tokens": session.live_tokens,
        "live_count": session.live_count,
        "covers_through": session.summary.covers_through if session.summary else None,
        "streak": state.streak if state else 0,
        "created_at": session.created_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
    }


def bundle(session: Session, now: datetime) -> str:
    """The timeline as JSON for a report of a fault: numbers and causes, no text, no names.

    Of what operators did, only what and when: who it was and the reason stay in the house.
    """
    told: dict[str, Any] = {
        "format": "hermes-timeline-1",
        "hermes": settings.VERSION,
        "made_at": now,
        "session": facts(session),
        "moments": [
            {
                name: value
                for name, value in asdict(each).items()
                if name not in HIDDEN[each.kind == "operator"] and value not in ("", None, [])
            }
            for each in moments(session)
        ],
    }
    return redact(json.dumps(told, default=_plain, ensure_ascii=False, indent=2))


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
