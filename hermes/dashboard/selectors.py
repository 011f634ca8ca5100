"""One picture of everything for the dashboard: at most twenty queries, none over raw rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from . import health, rollups
from .domain import ORDER, Level, Range
from .health import Health
from .sources import SOURCES, Need, Panel
from .sources import turns as turn_source

NEEDS: Final = 5  # that are shown


@dataclass(frozen=True)
class Verdict:
    """The page in one sentence, and what stands under it."""

    level: Level
    told: str
    more: str
    needs: Sequence[Need]


@dataclass(frozen=True)
class Dashboard:
    """What the dashboard shows."""

    now: datetime
    verdict: Verdict
    health: Health
    panels: Sequence[Panel]


def dashboard(chosen: Range) -> Dashboard:
    """Look at everything now."""
    seen = health.ask_database()
    picture = rollups.picture(seen.now, chosen, [f for each in SOURCES for f in each.figures])
    parts = health.look(picture, seen)
    needs = [*health.needs(parts)]
    panels: list[Panel] = []
    for source in SOURCES:
        needs.extend(source.needs(picture))
        panels.extend(source.panels(picture))
    panels.sort(key=lambda panel: panel.place)
    # Who is hurt comes first; among equals the order of the sources stays.
    needs.sort(key=lambda need: -ORDER.index(need.level))
    now = turn_source.standing(picture)
    return Dashboard(seen.now, _verdict(needs, parts, now["running"], now["queued"]), parts, panels)


def _verdict(needs: Sequence[Need], parts: Health, running: int, queued: int) -> Verdict:
    every = parts.cells()
    cells = [cell for cell in every if cell.level is not Level.NONE]
    good = sum(cell.level is Level.OK for cell in cells)
    runs = ngettext("%(n)d turn runs", "%(n)d turns run", running) % {"n": running}
    waits = ngettext("%(n)d waits", "%(n)d wait", queued) % {"n": queued}
    unknown = len(every) - len(cells)
    more = (
        _("All %(n)d checks pass.") % {"n": good}
        if good == len(cells)
        else _("%(good)d of %(all)d checks pass.") % {"good": good, "all": len(cells)}
    )
    if unknown:
        told = ngettext("%(n)d has no answer yet.", "%(n)d have no answer yet.", unknown)
        more = f"{more} {told % {'n': unknown}}"
    if not needs:
        if any(cell.is_starting for cell in every):
            return Verdict(Level.NONE, _("Starting."), f"{more} {runs}, {waits}.", ())
        if good == len(cells):
            return Verdict(Level.OK, _("All well."), f"{more} {runs}, {waits}.", ())
        slow = ", ".join(cell.name for cell in cells if cell.level is not Level.OK)
        told = _("Worth a look: %(parts)s.") % {"parts": slow}
        return Verdict(Level.WARN, told, f"{runs}, {waits}.", ())
    level = needs[0].level
    if len(needs) == 1:
        told = _("One thing needs you.")
    else:
        words = {2: _("Two"), 3: _("Three"), 4: _("Four"), 5: _("Five")}
        told = _("%(count)s things need you.") % {"count": words.get(len(needs), len(needs))}
    return Verdict(level, told, f"{more} {runs}, {waits}.", needs[:NEEDS])
