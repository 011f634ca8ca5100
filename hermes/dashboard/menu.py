"""The lists of the desk, as its side bar names them, for whom may open them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from .sources.base import changelist


@dataclass(frozen=True)
class Entry:
    """A list: its model, its name, its icon; or a page of its own about rows of that model."""

    model: str
    label: str | Promise
    icon: str
    page: str = ""  # name of its address

    @property
    def key(self) -> str:
        """By what a page says that it is this one."""
        return self.page.partition(":")[2] or self.model


# An application whose lists are not there yet is left out: see changelist().
MENU: Final[tuple[tuple[str | Promise, tuple[Entry, ...]], ...]] = (
    (
        _("Conversations"),
        (
            Entry("sessions_app.chat", _("Chats"), "chat"),
            Entry("sessions_app.session", _("Sessions"), "chat"),
            Entry("sessions_app.turn", _("Turns"), "turn"),
        ),
    ),
    (
        _("Compaction"),
        (
            Entry("compression_app.compactionattempt", _("Attempts"), "layers"),
            Entry("compression_app.cooldown", _("Cooldowns"), "timer"),
            Entry("compression_app.compressionstate", _("Streaks and breakers"), "warn"),
            Entry("sessions_app.summary", _("Summaries"), "flag"),
        ),
    ),
    (
        _("Processes"),
        (
            Entry("processes_app.processrecord", _("Processes"), "proc"),
            Entry("processes_app.completionevent", _("Completions"), "inbox"),
            Entry("processes_app.completionevent", _("Dropped"), "drop", "desk:dropped"),
            Entry("processes_app.approval", _("Approvals"), "check"),
        ),
    ),
    (
        _("System"),
        (
            Entry("dashboard.alert", _("Alerts"), "bell"),
            Entry("dashboard.heartbeat", _("Workers"), "live"),
            Entry("sessions_app.modelendpoint", _("Model endpoints"), "model"),
            Entry("auth.user", _("People"), "people"),
            Entry("sessions_app.history", _("Audit log"), "audit"),
        ),
    ),
)


def menu(request: HttpRequest) -> list[tuple[str | Promise, list[tuple[Entry, str]]]]:
    """The headings, each with the lists that this operator may open and their addresses."""
    made = []
    for heading, entries in MENU:
        rows = []
        for entry in entries:
            label, _dot, model = entry.model.partition(".")
            url = reverse(entry.page) if entry.page else changelist(entry.model)
            if url and request.user.has_perm(f"{label}.view_{model}"):
                rows.append((entry, url))
        if rows:
            made.append((heading, rows))
    return made
