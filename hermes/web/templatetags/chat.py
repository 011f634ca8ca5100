"""What the templates of the pages need beside Django's own tags."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from hermes.web.rendering import visible

register = template.Library()
register.filter("visible", visible)

FLIPPED = frozenset({"chev", "chev-left", "undo", "out"})  # they point, so they turn with the text


@register.simple_tag
def icon(name: str, more: str = "") -> SafeString:
    """An icon of the sprite."""
    classes = " ".join(
        part for part in ("icon", "icon--flip" if name in FLIPPED else "", more) if part
    )
    return format_html(
        '<svg class="{}" viewBox="0 0 24 24" aria-hidden="true"><use href="#i-{}"/></svg>',
        classes,
        name,
    )


@register.filter
def tokens(count: int | None) -> str:
    """A number of tokens, short.

    >>> tokens(950), tokens(9_400), tokens(74_800), tokens(1_200_000)
    ('950', '9.4k', '74.8k', '1.2M')
    """
    number = int(count or 0)
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1000:.1f}k".replace(".0k", "k")
    return f"{number / 1_000_000:.1f}M".replace(".0M", "M")


@register.filter
def seconds(count: float | None) -> str:
    """A length of time, short.

    >>> seconds(0.42), seconds(26.4), seconds(131), seconds(4_920)
    ('0.4 s', '26 s', '2 min 11 s', '1 h 22 min')
    """
    value = float(count or 0)
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


@register.simple_tag
def moment(at: datetime | None, form: str = "clock") -> SafeString:
    """A time of day in the person's zone; the script of the page corrects a wrong zone."""
    if at is None:
        return SafeString("")
    return format_html(
        '<time datetime="{}" data-time="{}">{}</time>',
        at.isoformat(timespec="seconds"),
        form,
        moment_words(at, form),
    )


def moment_words(at: datetime, form: str) -> str:
    """A time as words: the clock today, the day before that."""
    here = timezone.localtime(at)
    clock = date_format(here, "H:i")
    today = timezone.localdate()
    if here.date() == today:
        return _("today %s") % clock if form == "day" else clock
    if form == "list":
        if here.date() == today - timedelta(days=1):
            return clock
        if here.date() > today - timedelta(days=7):
            return date_format(here, "D")
        return date_format(here, "j M" if here.year == today.year else "j M Y")
    if here.date() > today - timedelta(days=7):
        return f"{date_format(here, 'D')} {clock}"
    return f"{date_format(here, 'j M' if here.year == today.year else 'j M Y')} {clock}"
