"""``/metrics``: numbers for Prometheus, read from rows at every scrape.

No process counts by itself, so it does not matter how many there are, which one is asked, or which
has just been started again.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final

from django.conf import settings
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from hermes.lib.db import db_now
from processes_app.domain import DropReason, ProcessStatus
from sessions_app.models import Periodic

from . import domain, heartbeats, rollups
from .health import QUEUES, ask_broker, ask_database
from .models import Alert, CheckResult, Heartbeat, Rollup, RollupMark
from .sources import SOURCES, Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# figure → name, help, name of its label; each adds up all that was ever rolled up.
COUNTERS: Final = {
    "turns": ("hermes_turns_ended_total", "Turns that ended, by how.", "outcome"),
    "turn_errors": ("hermes_turn_errors_total", "Turns that failed or were lost.", "reason"),
    "attempts": ("hermes_compaction_attempts_total", "Attempts that ended, by how.", "outcome"),
    "attempt_reasons": (
        "hermes_compaction_failures_total",
        "Attempts that ended without a commit, by why.",
        "reason",
    ),
    "deferred": (
        "hermes_compaction_deferred_total",
        "Attempts whose turn was let go, by what became of them.",
        "outcome",
    ),
    "completions": (
        "hermes_completions_settled_total",
        "Completions that were settled, by how.",
        "outcome",
    ),
    "drops": ("hermes_completions_dropped_total", "Completions dropped, by reason.", "reason"),
    "processes": (
        "hermes_background_processes_ended_total",
        "Background processes that ended or were lost.",
        "outcome",
    ),
}
RECENT: Final = ("attempts", "holds", "waits", "drops", "processes")  # also told of the last hour


def collect() -> list[Metric]:
    """Every number there is, as it is now."""
    found = [metric for source in SOURCES for metric in source.metrics()]
    return [*found, *_parts(), *_ever(), *_recent()]


def _parts() -> Iterator[Metric]:
    """Processes, database, broker, checks, alerts."""
    seen = ask_database()
    census = heartbeats.census(seen.now)
    for kind in ("web", "beat", "supervisor", *(f"worker:{queue}" for queue in QUEUES)):
        alive = census.of(kind)
        name, _colon, queue = kind.partition(":")
        labels = {"kind": name, "queue": queue}
        yield Metric("hermes_processes_up", "Processes seen a moment ago.", alive.up, labels)
        yield Metric(
            "hermes_processes_missing",
            "Processes that were there in the last day and did not leave in good order.",
            max(alive.known - alive.up, 0 if alive.up or alive.is_starting else 1),
            labels,
        )
    levels = [key.partition(":")[2] for key in census if key.startswith("supervisor:")]
    for level in levels:
        yield Metric(
            "hermes_sandbox_supervisors",
            "Supervisors seen a moment ago, by the level at which they confine commands.",
            census[f"supervisor:{level}"].up,
            {"level": level},
        )
    oldest = Heartbeat.objects.order_by("seen_at").values_list("seen_at", flat=True).first()
    age = 0.0 if oldest is None else max(0.0, (seen.now - oldest).total_seconds())
    yield Metric("hermes_heartbeat_age_seconds", "Age of the oldest sign of life.", age)
    swept = Periodic.objects.filter(pk="sweep").values_list("last_run_at", flat=True).first()
    since = -1.0 if swept is None else max(0.0, (seen.now - swept).total_seconds())
    yield Metric("hermes_sweep_age_seconds", "Seconds since the last sweep; -1: never.", since)
    mark = RollupMark.objects.filter(pk="all").first()
    lag = -1.0 if mark is None else max(0.0, (seen.now - mark.through).total_seconds())
    yield Metric("hermes_rollup_lag_seconds", "Age of what is rolled up; -1: nothing is.", lag)
    broker = ask_broker()
    yield Metric("hermes_broker_down", "1 if the broker does not answer.", float(broker is None))
    yield Metric("hermes_database_connections", "Connections to the database.", seen.used)
    yield Metric("hermes_database_connections_limit", "Connections it allows.", seen.most)
    broken = CheckResult.objects.aggregate(n=Sum("violations"))["n"] or 0
    yield Metric("hermes_invariant_violations", "Broken invariants at the last check.", broken)
    firing = Alert.objects.filter(cleared_at=None, is_firing=True).count()
    yield Metric("hermes_alerts_firing", "Alerts that fire now.", firing)
    yield Metric("hermes_info", "The version that runs.", 1.0, {"version": settings.VERSION})


def _ever() -> Iterator[Metric]:
    """Counters: all days together, which are kept for ever."""
    rows = (
        Rollup.objects.filter(width=domain.DAY)
        .values_list("figure", "label")
        .annotate(n=Sum("count"), m=Sum("total"))
        .order_by("figure", "label")
    )
    bins: dict[str, dict[str, tuple[int, int]]] = {}
    for figure, label, count, total in rows:
        if figure in COUNTERS:
            name, told, key = COUNTERS[figure]
            yield Metric(name, told, count, {key: label}, "counter")
        if figure == "attempts":
            yield Metric(
                "hermes_compaction_tokens_total",
                "Tokens that attempts have spent, by their outcome.",
                total,
                {"outcome": label},
                "counter",
            )
        if figure == "waits":
            bins.setdefault(figure, {})[label] = (count, total)
    yield from _histogram(bins.get("waits", {}))


def _histogram(counts: dict[str, tuple[int, int]]) -> Iterator[Metric]:
    name, told = "hermes_turn_wait_seconds", "Age of turns when they began."
    so_far = 0
    for bound in (*(f"{each:g}" for each in domain.WAITS), "+Inf"):
        so_far += counts.get(domain.ABOVE if bound == "+Inf" else bound, (0, 0))[0]
        yield Metric(f"{name}_bucket", told, so_far, {"le": bound}, "histogram")
    milliseconds = sum(total for _count, total in counts.values())
    yield Metric(f"{name}_sum", told, milliseconds / 1000, {}, "histogram")
    yield Metric(f"{name}_count", told, so_far, {}, "histogram")


def _recent() -> Iterator[Metric]:
    """What the last hour looks like, for alerts that need no memory of their own."""
    picture = rollups.picture(db_now(), domain.RANGES["1h"], RECENT)
    tokens = picture.totals.get("attempts", {})
    wasted = sum(tokens.get(name, 0) for name in ("failed", "lost", "ended"))
    yield Metric(
        "hermes_compaction_tokens_wasted_last_hour", "Tokens spent without a commit.", wasted
    )
    over = picture.counts("holds").get("over", 0)
    yield Metric("hermes_turns_delayed_last_hour", "Turns held beyond the budget.", over)
    bins = domain.wait_bins(picture.counts("waits"))
    high = domain.percentile(bins, 0.95) or 0.0
    yield Metric("hermes_turn_wait_p95_seconds", "95th percentile of the last hour's waits.", high)
    drops = picture.counts("drops")
    for reason in DropReason:
        yield Metric(
            "hermes_completions_dropped_last_hour",
            "Completions dropped, by reason.",
            drops.get(reason, 0),
            {"reason": str(reason)},
        )
    yield Metric(
        "hermes_processes_lost_last_hour",
        "Background processes whose outcome nobody knows.",
        picture.counts("processes").get(ProcessStatus.LOST, 0),
    )


# --- The page -------------------------------------------------------------------------------------


def render(metrics: Iterable[Metric]) -> str:
    """The numbers in the text format of Prometheus, families together.

    >>> print(render([Metric("a_total", "Things.", 2, {"kind": 'x"y'}, "counter")]), end="")
    # HELP a_total Things.
    # TYPE a_total counter
    a_total{kind="x\\"y"} 2
    """
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        family = metric.name
        if metric.kind == "histogram":
            family = family.rpartition("_")[0]
        families.setdefault(family, []).append(metric)
    lines = []
    for family, rows in families.items():
        lines.append(f"# HELP {family} {rows[0].help}")
        lines.append(f"# TYPE {family} {rows[0].kind}")
        lines.extend(f"{row.name}{_labels(row)} {row.value:.15g}" for row in rows)
    return "\n".join(lines) + "\n"


def _labels(metric: Metric) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in metric.labels.items() if value)
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def may_scrape(request: HttpRequest) -> bool:
    """Whether the token is right; without one, whether the caller's network is among those named.

    A caller behind a proxy of which nothing is believed has no address, and so needs the token.
    """
    if settings.HERMES_METRICS_TOKEN:
        told = request.headers.get("Authorization", "")
        expected = f"Bearer {settings.HERMES_METRICS_TOKEN}"
        return hmac.compare_digest(told.encode(), expected.encode())
    if not settings.TRUST_PROXY and "X-Forwarded-For" in request.headers:
        return False
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(
        address in ipaddress.ip_network(network, strict=False)
        for network in settings.HERMES_METRICS_NETWORKS
    )


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Every number, for whom it is meant; for all others there is no such page."""
    if not may_scrape(request):
        return HttpResponse(status=404)
    return HttpResponse(render(collect()), content_type=CONTENT_TYPE)
