"""Background work as sockets and pages read it: once a change, and bounded. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from processes_app import selectors as processes
from sessions_app.models import Chat, Session

from . import fragments, tasks
from .cursor import Cursor
from .taskframes import Tasks, changed, name_of


def tasks_of(chat: Chat, cursor: Cursor, mark: str, *, is_whole: bool) -> Tasks:
    """The background work of a chat, read anew only where the mark says that it has moved."""
    before = cursor.tasks
    is_known = before is not None and before.mark == mark and cursor.session == chat.current_id
    if before is not None and is_known and not is_whole:
        return replace(before, htmls={})
    if not mark and (before is None or not before.mark):
        html = {"tasks": fragments.drawer_html(tasks.Drawer())} if is_whole and cursor.html else {}
        return Tasks(htmls=html)
    chores = processes.of_chat(chat.key, **({} if before is None else before.followed))
    look = tasks.look_at(chores, mark, _sessions(chat, chores), chat.current_id)
    return replace(look.tasks, htmls=_htmls(look, before or Tasks())) if cursor.html else look.tasks


def open_of(told: Tasks) -> list[Mapping[str, Any]]:
    """The questions that wait for an answer."""
    return [each for each in told.approvals.values() if each["state"] == "open"]


def _sessions(chat: Chat, chores: processes.Chores) -> dict[str, int]:
    """The ids of the sessions of this chat that are named, and of the current one."""
    rows: Sequence[Any] = [*chores.processes, *chores.events]
    keys = {row.origin_session for row in rows if row.origin_session}
    keys |= {event.delivered_to for event in chores.events if event.delivered_to}
    if chat.current is not None:
        keys.add(chat.current.key)
    return dict(Session.objects.filter(chat=chat, key__in=keys).values_list("key", "pk"))


def _htmls(look: tasks.Look, before: Tasks) -> dict[str, str]:
    """The fragments of what has changed, and the drawer."""
    made = {"tasks": fragments.drawer_html(look.drawer)}
    moved = changed(before, look.tasks)
    for uid in moved["process"]:
        made[name_of("process", uid)] = fragments.process_html(look.procs[uid])
    for pk in moved["approval"]:
        made[name_of("approval", pk)] = fragments.ask_html(look.asks[pk])
    for pk in moved["completion"]:
        if pk in look.news:
            made[name_of("completion", pk)] = fragments.news_html(look.news[pk])
    return made
