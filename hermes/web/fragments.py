"""Pieces of the page as HTML, made of rows: the same for a page and for a frame of the socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from compression_app import outlook
from sessions_app.domain import RESERVE_SHARE
from sessions_app.endpoints import window_for
from sessions_app.models import Chat, Summary

from . import metering, rendering, selectors, words
from .groups import Group
from .selectors import Page
from .tasks import Ask, Drawer, News, Proc
from .templatetags.chat import tokens

BAR: Final = 1280  # units of the meter's width
_GAP: Final = 4
FORESEEN: Final = 99  # turns; a forecast further ahead says nothing


def _part(name: str, **context: Any) -> str:
    return render_to_string(f"web/parts/{name}.html", context)


# --- The log -------------------------------------------------------------------------------------


def log_html(chat: Chat, viewer: AbstractBaseUser | int) -> str:
    """What stands in ``#log``: the last page of a chat, and a way to what was said before it."""
    return pages_html(selectors.last_pages(chat), is_staff=_is_staff(viewer))


def _is_staff(viewer: AbstractBaseUser | int) -> bool:
    if isinstance(viewer, int):
        staff = get_user_model()._default_manager.filter(pk=viewer, is_staff=True)
        return staff.exists()
    return bool(getattr(viewer, "is_staff", False))


def pages_html(pages: Sequence[Page], *, is_staff: bool = False) -> str:
    """Pages of a transcript, the oldest first, with dividers between sessions."""
    older = None
    for page in pages[1:]:
        page.divider = True
    if pages:
        first = pages[0]
        if first.has_more or (first.session.number > 1 and selectors.has_older(first)):
            older = {"session": first.session.pk, "before": first.first_seq}
    return _part("log", pages=pages, older=older, staff=is_staff)


def version_html(page: Page) -> str:
    """What was taken out of the context, to be read only."""
    return _part("version", page=page, readonly=True)


def turn_html(turn_id: int) -> str:
    """The whole group of a turn, with an empty live part while it runs; '' if it is not shown."""
    group = selectors.group_of(turn_id)
    if group is None:
        return ""
    return _part("turn", group=group, staff=_owner_is_staff(group))


def foot_html(turn_id: int) -> str:
    """What stands below the answer of a turn."""
    group = selectors.group_of(turn_id)
    if group is None:
        return ""
    return _part("foot", group=group, staff=_owner_is_staff(group))


def _owner_is_staff(group: Group) -> bool:
    return group.turn is not None and bool(group.turn.chat.owner.is_staff)


# --- Background work -----------------------------------------------------------------------------


def ask_html(ask: Ask) -> str:
    """The question whether a command may run, or what was said to it."""
    return _part("ask", ask=ask)


def process_html(proc: Proc) -> str:
    """A process: how it stands, and the end of what it has written."""
    return _part("proc", proc=proc)


def news_html(news: News) -> str:
    """The end of a command as a row of ours, never as the person's words."""
    return _part("news", news=news)


def drawer_html(drawer: Drawer) -> str:
    """What stands in the task drawer."""
    return _part("drawer", drawer=drawer)


# --- Around it -----------------------------------------------------------------------------------


def queue_html(session_id: int) -> str:
    """The messages that wait; '' for none."""
    return _part("queue", items=selectors.queue(session_id))


def title_of(chat: Chat) -> str:
    """What a chat is called; never empty."""
    return chat.title or _("New chat")


def head_html(chat: Chat) -> str:
    """The title of a chat, its model and its menu."""
    usable = selectors.endpoints()
    chosen = next((each for each in usable if each.pk == chat.endpoint_id), None)
    chosen = chosen or next(iter(usable), None)
    return _part(
        "head",
        chat=chat,
        title=title_of(chat),
        endpoints=usable,
        chosen=None if chosen is None else chosen.pk,
        model=_("Offline model") if chosen is None else chosen.name,
        staff=chat.owner.is_staff,
    )


def meter_html(meter: Mapping[str, Any]) -> str:
    """How full the context is, as a bar and in words."""
    left = meter.get("turns_left")
    following = ""
    if left is not None and left <= FORESEEN:
        following = ngettext("≈ %d turn left", "≈ %d turns left", left) % left
    if following:
        label = ngettext(
            "Context: about {used} of {window} tokens, room for about {left} turn. Show the split.",
            "Context: about {used} of {window} tokens, room for about {left} turns. "
            "Show the split.",
            left or 0,
        )
    else:
        label = _("Context: about {used} of {window} tokens. Show the split.")
    label = label.format(used=tokens(meter["used"]), window=tokens(meter["window"]), left=left or 0)
    is_estimate = bool(meter["is_estimate"])
    legend = [
        (_("System prompt"), "m-system", meter["system"], False),
        (_("Tools"), "m-tools", meter["tools"], False),
        (_("Summary"), "m-summary", meter["summary"], False),
        (_("Messages"), "m-messages", meter["messages"], is_estimate),
        (_("Free"), "m-free", meter["free"], False),
        (_("Kept for the answer"), "m-reserve", meter["reserve"], False),
    ]
    return _part(
        "meter",
        meter=meter,
        next=following,
        left=left if following else None,
        hold=round(settings.HERMES_TURN_HOLD_SECONDS),
        label=label,
        legend=legend,
        bar=_bar(meter, "meter__bar"),
        bar_large=_bar(meter, "meter__bar meter__bar--lg", marks=(meter["soft"], meter["hard"])),
    )


def _bar(meter: Mapping[str, Any], css: str, marks: Sequence[int] = ()) -> SafeString:
    """The split as rectangles; widths are attributes, so that no style is needed."""
    window = max(1, int(meter["window"]))
    pieces: list[tuple[str, int, int]] = []
    at = 0
    for name in ("system", "tools", "summary", "messages"):
        width = round(BAR * int(meter[name]) / window)
        if width > 0:
            width = max(width, 3)
            pieces.append((f"m-{name}", at, width))
            at += width + _GAP
    reserve = round(BAR * int(meter["reserve"]) / window)
    pieces.append(("m-reserve", BAR - reserve, reserve))
    for mark in marks:
        place = round(BAR * min(mark, window) / window)
        pieces += [("m-gap", place - 7, 14), ("m-mark", place - 2, 4)]
    return format_html(
        '<svg class="{}" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true" '
        'focusable="false">{}</svg>',
        css,
        BAR,
        format_html_join("", '<rect class="{}" x="{}" width="{}" height="10"/>', pieces),
    )


# --- Summaries -----------------------------------------------------------------------------------


def pill_html(pill: Mapping[str, Any]) -> str:
    """How summarising stands, in one line; '' where there is nothing to say."""
    if pill["state"] == "none":
        return ""
    why = words.compaction(pill["reason"])
    paused = ("paused", "breaker", "provider_breaker", "undo_fresh")
    return _part(
        "pill",
        pill={**pill, "kind": _pill_kind(pill)},
        why=why,
        hold=round(settings.HERMES_TURN_HOLD_SECONDS),
        is_paused=pill["reason"] in paused,
        is_busy=pill["state"] in {"queued", "running"},
        retry_at=None if pill["retry_at"] is None else datetime.fromisoformat(pill["retry_at"]),
    )


def _pill_kind(pill: Mapping[str, Any]) -> str:
    """The colour and icon class of a pill."""
    if pill["phase"] != "ended":
        return "run" if pill["phase"] == "thinking" else "wait"
    quiet = {"cancelled", "superseded", "undone"}
    return {"committed": "ok"}.get(pill["state"], "idle" if pill["state"] in quiet else "fail")


def summary_html(made: Summary) -> str:
    """What the model reads in place of older messages, to be read by the person."""
    return _part(
        "summary",
        summary=made,
        blocks=rendering.all_blocks(made.body or made.text),
        said=[text for _seq, text, _tokens in made.parts.get("said", ())],
        said_out=made.parts.get("said_out", 0),
        anchors=made.parts.get("anchors", ()),
        is_current=made.session.summary_id == made.pk,
    )


def fold_html(chat: Chat) -> str:
    """What a summary would take and leave now; or the one that waits for an answer."""
    session = chat.current
    if session is None:
        return _part("fold", stage="refused", why=words.compaction("too_short"))
    attempt = outlook.newest(session.pk)
    if attempt is not None and attempt.status in {"queued", "running"}:
        return _part("fold", stage="writing", attempt=attempt)
    split = metering.split(session)
    if attempt is not None and attempt.status == "preview":
        attempt.session = session
        found = outlook.previewed(attempt)
        stage = "preview"
    else:
        attempt = None
        found = outlook.foreseen(session)
        stage = "idle" if found.reason is None else "refused"
    window = window_for(chat.endpoint_id)
    reserve = window // RESERVE_SHARE
    now = {**split, "window": window, "reserve": reserve}
    after = {**now, "messages": split["messages"] - found.taken, "summary": found.written or 0}
    total = sum(split.values())
    left = sum(after[name] for name in split)
    return _part(
        "fold",
        stage=stage,
        attempt=attempt,
        found=found,
        why=words.compaction(found.reason or ""),
        goes=sum(each.tokens for each in found.goes),
        stays=sum(each.tokens for each in found.stays),
        now=total,
        after=left,
        bar_now=_bar(now, "meter__bar meter__bar--lg"),
        bar_after=_bar(after, "meter__bar meter__bar--lg") if found.written else "",
        turns_left=metering.turns_left(session, max(0, window - reserve - left)),
    )


def notice_html(code: str, level: str, text: str) -> str:
    """A line of ours in the log: an answer to a command, a warning."""
    return _part("notice", code=code, level=level, text=text or words.sentence(code))


def sidebar_html(
    user: AbstractBaseUser, current: Chat | None = None, *, archived: bool = False, pages: int = 1
) -> str:
    """The list of a person's chats, ``pages`` times as long as at first."""
    limit = pages * selectors.LISTED
    bunches = selectors.sidebar(user.pk, current, archived=archived, limit=limit)
    is_full = sum(len(bunch.chats) for bunch in bunches) >= limit
    return _part("sidebar", bunches=bunches, new=_("New chat"), archived=archived, is_full=is_full)
