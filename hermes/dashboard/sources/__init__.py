"""Where the figures of the desk come from: one entry an application, read top to bottom.

To add an application, write a module here that offers a :class:`Source` and name it in
:data:`SOURCES`. Nothing else changes: its events are rolled up, its panels drawn, its needs told,
its rows are part of a session's timeline, its metrics and alerts are read.
"""

from __future__ import annotations

from typing import Final

from . import compaction, processes, turns
from .base import Event, Link, Metric, Moment, Need, Panel, Picture, Source, Span

SOURCES: Final[tuple[Source, ...]] = (turns.SOURCE, compaction.SOURCE, processes.SOURCE)

__all__ = [
    "SOURCES",
    "Event",
    "Link",
    "Metric",
    "Moment",
    "Need",
    "Panel",
    "Picture",
    "Source",
    "Span",
]
