"""Whether the parts of the system are there: from the web processes to the hourly checks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import redis
from django.conf import settings
from django.db import connection
from django.utils.translation import gettext as _

from hermes.lib.db import db_now
from sessions_app.models import Periodic

from . import domain, heartbeats
from .domain import Level
from .heartbeats import Alive, Census
from .models import CheckResult
from .sources import Link, Need, Picture, compaction, turns
from .sources.base import changelist

WAIT: Final = 0.5  # seconds for the broker
SLOW_MS: Final = 100.0
SWEEP_LATE: Final = 6  # times its interval
CHECK_LATE: Final = timedelta(hours=3)
QUEUES: Final = ("turns", "background")


@dataclass(frozen=True)
class Cell:
    """One part: how it is, in a word, and a second fact."""

    name: str
    level: Level
    value: str
    second: str = ""
    url: str = ""
    need: Need | None = None
    is_starting: bool = False


@dataclass(frozen=True)
class Health:
    """Every part."""

    web: Cell
    queues: list[Cell]
    rest: list[Cell]

    def cells(self) -> list[Cell]:
        """All of them, in order."""
        return [self.web, *self.queues, *self.rest]


@dataclass
class _Seen:
    """What the database tells of itself, measured."""

    milliseconds: float = 0.0
    used: int = 0
    most: int = 0
    version: str = ""
    now: datetime = field(default_factory=db_now)


def ask_database() -> _Seen:
    """One question to the database, timed."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),"
            " current_setting('max_connections')::int, current_setting('server_version'),"
            " clock_timestamp()"
        )
        used, most, version, now = cursor.fetchone()
    return _Seen((time.monotonic() - began) * 1000, used, most, version.split()[0], now)


def ask_broker() -> tuple[float, str] | None:
    """Milliseconds and version of the broker; None if it does not answer."""
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=WAIT, socket_timeout=WAIT
    )
    try:
        began = time.monotonic()
        client.ping()
        took = (time.monotonic() - began) * 1000
        info: Any = client.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        return took, f"{name} {info.get('valkey_version') or info.get('redis_version', '')}"
    except redis.RedisError:
        return None
    finally:
        client.close()


def look(picture: Picture, seen: _Seen) -> Health:
    """Ask every part how it is."""
    census = heartbeats.census(picture.now)
    return Health(
        _web(picture.now, census.of("web")),
        [_queue(picture, name, census.of(f"worker:{name}")) for name in QUEUES],
        [
            _broker(),
            _database(seen),
            _beat(picture.now, census),
            _supervisor(picture.now, census),
            _invariants(picture.now),
        ],
    )


def _ago(now: datetime, then: datetime | None) -> str:
    if then is None:
        return _("never seen")
    return _("%(time)s ago") % {"time": domain.duration((now - then).total_seconds())}


def _last_seen(now: datetime, then: datetime | None) -> str:
    if then is None:
        return _("It has not been seen yet.")
    return _("Last seen %(ago)s.") % {"ago": _ago(now, then)}


def _starting(name: str, value: str, kind: str) -> Cell:
    """A part that has not told yet, shortly after the start: nothing is known of it."""
    url = changelist("dashboard.heartbeat", f"kind__exact={kind}")
    return Cell(name, Level.NONE, value, _("not seen yet"), url, is_starting=True)


def _web(now: datetime, alive: Alive) -> Cell:
    if alive.is_starting:
        return _starting(_("Web"), _("starting"), "web")
    level = Level.OK if alive.up and alive.up == alive.known else Level.WARN
    need = None
    if alive.up < alive.known:
        need = Need(
            Level.WARN,
            _("A web process is gone."),
            _("It was last seen %(ago)s; %(up)d of %(known)d are up.")
            % {"ago": _ago(now, alive.lost_at), "up": alive.up, "known": alive.known},
            [Link(_("Show the processes"), changelist("dashboard.heartbeat"))],
        )
    return Cell(
        _("Web"),
        level,
        _("%(up)d of %(known)d") % {"up": alive.up, "known": alive.known},
        _("seen %(ago)s") % {"ago": _ago(now, alive.seen_at)},
        changelist("dashboard.heartbeat", "kind__exact=web"),
        need,
    )


def _queue(picture: Picture, name: str, alive: Alive) -> Cell:
    now = picture.now
    if alive.is_starting:
        told = _("%(name)s starting") % {"name": name}
        return _starting(told, told, "worker")
    age = (turns if name == "turns" else compaction).standing(picture)["oldest_age"]
    late = age is not None and age > turns.LATE
    level = Level.OK
    if not alive.up:
        level = Level.BAD
    elif alive.up < alive.known or late:
        level = Level.WARN
    need = None
    if alive.up < alive.known or not alive.up:
        what = (
            _("No worker takes the queue “%(name)s”.")
            if not alive.up
            else _("A worker of the queue “%(name)s” is gone.")
        )
        effect = (
            _("Messages are stored and wait.")
            if name == "turns"
            else _("Nothing is summarised and no sweep runs there.")
        )
        parts = [_last_seen(now, alive.lost_at or alive.seen_at)]
        if not alive.up:
            parts.append(effect)
        parts.append(_("Start it again; its log says why it went."))
        need = Need(
            level,
            what % {"name": name},
            " ".join(parts),
            [Link(_("Show the workers"), changelist("dashboard.heartbeat", "kind__exact=worker"))],
        )
    return Cell(
        f"{name} {alive.up}/{alive.known}",
        level,
        f"{name} {alive.up}/{alive.known}",
        _("none waiting") if age is None else domain.duration(age),
        changelist("dashboard.heartbeat", "kind__exact=worker"),
        need,
    )


def _broker() -> Cell:
    told = ask_broker()
    if told is None:
        need = Need(
            Level.BAD,
            _("The broker does not answer."),
            _("Sends are stored and shown as waiting; the sweeps of the workers find them."),
        )
        return Cell(_("Broker"), Level.BAD, _("no answer"), _("sends are stored"), "", need)
    took, version = told
    level = Level.OK if took < SLOW_MS else Level.WARN
    return Cell(_("Broker"), level, f"{took:.1f} ms", version)


def _database(seen: _Seen) -> Cell:
    is_full = seen.used > 0.9 * seen.most
    level = Level.WARN if is_full or seen.milliseconds > SLOW_MS else Level.OK
    need = None
    if is_full:
        need = Need(
            Level.WARN,
            _("The database is nearly out of connections."),
            _("%(used)d of %(most)d are used.") % {"used": seen.used, "most": seen.most},
        )
    return Cell(
        _("Database"),
        level,
        f"{seen.milliseconds:.1f} ms",
        _("%(used)d of %(most)d used") % {"used": seen.used, "most": seen.most},
        "",
        need,
    )


def _beat(now: datetime, census: Census) -> Cell:
    alive = census.of("beat")
    swept = Periodic.objects.filter(pk="sweep").values_list("last_run_at", flat=True).first()
    late = swept is None or (now - swept).total_seconds() > max(
        30.0, SWEEP_LATE * settings.HERMES_SWEEP_SECONDS
    )
    if alive.is_starting or (late and census.is_fresh):
        return _starting(_("Beat"), _("starting"), "beat")
    level = Level.BAD if late else Level.OK if alive.up else Level.WARN
    need = None
    if late:
        need = Need(
            Level.BAD,
            _("No sweep runs."),
            _("None has run yet: what hints have lost is not found.")
            if swept is None
            else _("The last was %(ago)s: what hints have lost is not found.")
            % {"ago": _ago(now, swept)},
        )
    elif not alive.up:
        need = Need(
            Level.WARN,
            _("Beat is not there."),
            " ".join(
                [
                    _last_seen(now, alive.seen_at),
                    _("Workers sweep by themselves; nothing is lost."),
                ]
            ),
        )
    return Cell(
        _("Beat"),
        level,
        _ago(now, alive.seen_at),
        _("sweeps late") if late else _("sweeps on time"),
        changelist("dashboard.heartbeat", "kind__exact=beat"),
        need,
    )


def _supervisor(now: datetime, census: Census) -> Cell:
    alive = census.of("supervisor")
    if alive.is_starting:
        return _starting(_("Supervisor"), _("starting"), "supervisor")
    levels = sorted(
        key.partition(":")[2]
        for key, each in census.items()
        if key.startswith("supervisor:") and each.up
    )
    show = [Link(_("Show the processes"), changelist("dashboard.heartbeat"))]
    level, need = Level.OK, None
    told = _("sandbox: %(levels)s") % {"levels": ", ".join(levels)}
    if "none" in levels:
        level = Level.BAD
        told = _("no sandbox (none)")
    elif "refused" in levels:
        level = Level.WARN
        told = _("no command runs")
    elif levels == ["off"]:
        told = _("commands are off")
    if alive.up < alive.known or not alive.up:
        level = Level.WARN if alive.up else Level.BAD
        told = _("commands wait") if not alive.up else told
        need = Need(
            level,
            _("No supervisor is there.") if not alive.up else _("A supervisor is gone."),
            " ".join(
                [
                    _last_seen(now, alive.lost_at or alive.seen_at),
                    _("What it started goes on; how it ends is told when it is back."),
                ]
            ),
            show,
        )
    elif "none" in levels:
        need = Need(
            Level.WARN,
            _("The agent's commands run without a sandbox."),
            _("They can read and change whatever Hermes itself can."),
            show,
        )
    return Cell(
        _("Supervisor"),
        level,
        _("%(up)d of %(known)d") % {"up": alive.up, "known": alive.known},
        told,
        changelist("dashboard.heartbeat", "kind__exact=supervisor"),
        need,
    )


def _invariants(now: datetime) -> Cell:
    found = CheckResult.objects.filter(pk="invariants").first()
    url = changelist("dashboard.checkresult")
    if found is None:
        return Cell(_("Invariants"), Level.NONE, _("not checked yet"), _("once an hour"), url)
    second = _("checked %(ago)s") % {"ago": _ago(now, found.at)}
    if found.violations:
        need = Need(
            Level.BAD,
            _("Rows break their invariants."),
            f"{found.detail.splitlines()[0][:200]}",
            [Link(_("Show all"), url)],
        )
        told = _("%(n)d broken") % {"n": found.violations}
        return Cell(_("Invariants"), Level.BAD, told, second, url, need)
    level = Level.WARN if now - found.at > CHECK_LATE else Level.OK
    return Cell(_("Invariants"), level, _("0 broken"), second, url)


def needs(health: Health) -> Iterator[Need]:
    """What the parts need."""
    return (cell.need for cell in health.cells() if cell.need is not None)
