"""The zone in which a person is told times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

COOKIE: Final = "tz"
_ZONES: Final = available_timezones()


def zone_of(cookies: Mapping[str, str]) -> ZoneInfo | None:
    """The zone that the browser named, or None.

    >>> zone_of({"tz": "Europe%2FBerlin"})
    zoneinfo.ZoneInfo(key='Europe/Berlin')
    >>> zone_of({"tz": "../etc/passwd"})
    """
    name = cookies.get(COOKIE, "").replace("%2F", "/")
    return ZoneInfo(name) if name in _ZONES else None
