"""Icons, times and paints of the desk's templates."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

LEVEL_ICONS: Final = {"none": "timer", "ok": "check", "warn": "warn", "bad": "bad"}


@register.simple_tag
def icon(name: str) -> SafeString:
    """A symbol of the page's sprite."""
    return format_html('<svg class="i" aria-hidden="true"><use href="#i-{}"/></svg>', name)


@register.filter
def level_icon(level: str) -> str:
    """The name of the icon that stands for a level."""
    return LEVEL_ICONS[str(level)]


@register.simple_tag
def when(at: datetime | None, form: str = "%H:%M:%S") -> SafeString | str:
    """A time in the page's zone; the attribute always holds UTC."""
    if at is None:
        return ""
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}">{}</time>',
        at.astimezone(timezone.get_fixed_timezone(0)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        local.strftime(form),
    )


@register.simple_tag
def tick(at: datetime, step: int) -> str:
    """A time on an axis, as exact as its bars are."""
    return timezone.localtime(at).strftime("%H:%M" if step < 21_600 else "%d %b")


@register.simple_tag
def slot(at: datetime, step: int) -> str:
    """The head of a row of a chart's table."""
    local = timezone.localtime(at)
    return local.strftime({86_400: "%d %b", 21_600: "%d %b %H:%M"}.get(step, "%H:%M"))


@register.simple_tag
def paint(name: str) -> SafeString:
    """How a rectangle is filled: by a class, or by the pattern."""
    if name == "hatch":
        return SafeString('fill="url(#hatch)"')
    return format_html('class="{}"', name)


@register.simple_tag(takes_context=True)
def here(context: Any, **changed: str) -> str:
    """The query of this page with some of it changed."""
    told = {"range": context["range"].name, "tz": context["zone"], **changed}
    return "?" + urlencode({name: value for name, value in told.items() if value})
