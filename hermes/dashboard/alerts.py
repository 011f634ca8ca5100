"""Alerts: rules over the metrics, a row for each that holds, notices to channels, throttled."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.core import mail
from django.db import IntegrityError
from django.db.models import F, Q
from django.utils.translation import gettext as _

from hermes.lib import vault
from hermes.lib.db import db_now, released
from hermes.lib.outbound import Policy
from hermes.lib.outbound_post import post_json
from hermes.lib.redaction import redact

from . import metrics
from .domain import Level
from .models import Alert, AlertChannel, AlertNotice, Silence
from .sources import Metric

logger = logging.getLogger(__name__)

AGAIN_AFTER: Final = timedelta(hours=4)  # an alert that goes on is told again
FLAP: Final = timedelta(minutes=15)  # one that comes back sooner is not told anew
A_CHANNEL: Final = 30  # notices an hour
TRIES: Final = 5
BATCH: Final = 20
BACKOFF: Final = timedelta(seconds=30)  # doubled with every try; longer than one sending
SECONDS: Final = 10.0  # of sending, after which the rest waits for the next sweep


@dataclass(frozen=True)
class Rule:
    """A number that should not be above a limit for so long."""

    name: str
    metric: str
    above: float
    level: Level
    told: str
    seconds: int = 0  # for which it has to hold
    only: tuple[tuple[str, str], ...] = ()  # labels that the number must have


def rules() -> list[Rule]:
    """The rules, with the limits that the settings name.

    A rule about a number that no source tells is quiet.
    """
    return [
        Rule(
            "streak",
            "hermes_streak_longest",
            settings.HERMES_ALERT_STREAK - 0.5,
            Level.BAD,
            "Summaries of a session fail again and again.",
        ),
        Rule(
            "queued_age",
            "hermes_oldest_queued_turn_seconds",
            settings.HERMES_ALERT_QUEUED_SECONDS,
            Level.BAD,
            "Messages wait for their turn.",
        ),
        Rule(
            "process_missing",
            "hermes_processes_missing",
            0.5,
            Level.BAD,
            "A process of the product is gone.",
            seconds=30,
        ),
        Rule(
            "sweep_late",
            "hermes_sweep_age_seconds",
            120,
            Level.BAD,
            "No sweep runs: what hints have lost is not found.",
        ),
        Rule(
            "invariants",
            "hermes_invariant_violations",
            0.5,
            Level.BAD,
            "Rows break their invariants.",
        ),
        Rule(
            "tokens_wasted",
            "hermes_compaction_tokens_wasted_last_hour",
            settings.HERMES_ALERT_WASTED_TOKENS,
            Level.WARN,
            "Many tokens were spent on summaries that nobody has.",
        ),
        Rule(
            "turns_delayed",
            "hermes_turns_delayed_last_hour",
            0.5,
            Level.BAD,
            "Compaction has delayed turns beyond its budget.",
        ),
        Rule(
            "broker",
            "hermes_broker_down",
            0.5,
            Level.BAD,
            "The broker does not answer.",
            seconds=30,
        ),
        Rule(
            "dropped_unproven",
            "hermes_completions_dropped_last_hour",
            0.5,
            Level.BAD,
            "News was dropped whose owner is not proven.",
            only=(("reason", "owner_unproven"),),
        ),
        Rule(
            "dropped_unknown",
            "hermes_completions_dropped_last_hour",
            0.5,
            Level.BAD,
            "News of an unknown type was dropped.",
            only=(("reason", "unknown_type"),),
        ),
        Rule(
            "processes_lost",
            "hermes_processes_lost_last_hour",
            0.5,
            Level.BAD,
            "Background processes were lost: their outcome is not known.",
        ),
    ]


# --- What holds -----------------------------------------------------------------------------------


def _subject(metric: Metric) -> str:
    told = ", ".join(f"{name}={value}" for name, value in metric.labels.items() if value)
    return told[:120]


def holding(all_rules: Sequence[Rule], numbers: Iterable[Metric]) -> Iterator[tuple[Rule, Metric]]:
    """The rules whose number is above its limit now."""
    by_name: dict[str, list[Metric]] = {}
    for metric in numbers:
        by_name.setdefault(metric.name, []).append(metric)
    for rule in all_rules:
        for metric in by_name.get(rule.metric, ()):
            if metric.value > rule.above and all(
                metric.labels.get(name) == value for name, value in rule.only
            ):
                yield rule, metric


def evaluate(now: datetime | None = None, numbers: Iterable[Metric] | None = None) -> int:
    """Hold the rules against the numbers, move the rows, make notices; how many were made."""
    now = now or db_now()
    made = 0
    seen: set[int] = set()
    for rule, metric in holding(rules(), metrics.collect() if numbers is None else numbers):
        alert = _row(rule, metric, now)
        if alert is None:  # another evaluation was a moment earlier
            continue
        seen.add(alert.pk)
        if not alert.is_firing and now - alert.since >= timedelta(seconds=rule.seconds):
            alert.is_firing = True
            alert.save(update_fields=["is_firing"])
            logger.warning("alert fires", extra={"rule": rule.name, "subject": alert.subject})
        if alert.is_firing:
            made += _tell(alert, now)
    for alert in Alert.objects.open().exclude(pk__in=seen):
        alert.cleared_at = now
        alert.save(update_fields=["cleared_at"])
        logger.info("alert cleared", extra={"rule": alert.rule, "subject": alert.subject})
        if alert.told_at is not None:
            made += _notices(alert, "cleared", now)
    return made


def _row(rule: Rule, metric: Metric, now: datetime) -> Alert | None:
    subject = _subject(metric)
    alert = Alert.objects.open().filter(rule=rule.name, subject=subject).first()
    if alert is None:
        try:
            return Alert.objects.create(
                rule=rule.name,
                subject=subject,
                level=rule.level,
                value=metric.value,
                worst=metric.value,
                since=now,
                seen_at=now,
            )
        except IntegrityError:
            return None
    alert.value, alert.worst = metric.value, max(alert.worst, metric.value)
    alert.seen_at = now
    alert.save(update_fields=["value", "worst", "seen_at"])
    return alert


def _tell(alert: Alert, now: datetime) -> int:
    """Tell of an alert that fires: at once, and again while it lasts; not while it flaps."""
    if alert.told_at is not None:
        return _notices(alert, "still", now) if now - alert.told_at >= AGAIN_AFTER else 0
    earlier = Alert.objects.filter(
        rule=alert.rule, subject=alert.subject, told_at__gt=now - FLAP
    ).exclude(pk=alert.pk)
    if earlier.exists():
        return 0
    return _notices(alert, "fired", now)


def _is_silenced(alert: Alert, now: datetime) -> bool:
    rows = Silence.objects.filter(rule=alert.rule, until__gt=now)
    return rows.filter(Q(subject="") | Q(subject=alert.subject)).exists()


def _notices(alert: Alert, what: str, now: datetime) -> int:
    if _is_silenced(alert, now):
        return 0
    channels = AlertChannel.objects.filter(is_enabled=True)
    if alert.level != Level.BAD:
        channels = channels.filter(only_bad=False)
    made = 0
    for channel in channels:
        lately = AlertNotice.objects.filter(
            channel=channel, created_at__gt=now - timedelta(hours=1)
        )
        if lately.count() >= A_CHANNEL:
            logger.info("alert channel throttled", extra={"channel": channel.pk})
            continue
        AlertNotice.objects.create(
            alert=alert, channel=channel, what=what, created_at=now, due_at=now
        )
        made += 1
    if made:  # else it is told as soon as a channel takes it
        alert.told_at = now
        alert.save(update_fields=["told_at"])
    return made


def reseal() -> tuple[int, list[str]]:
    """Seal every token anew under the first key; how many, and the channels that none opens."""
    moved, unopened = 0, []
    for channel in AlertChannel.objects.exclude(sealed_key=""):
        try:
            sealed = vault.reseal(channel.sealed_key)
        except vault.Unsealable:
            unopened.append(channel.name)
            continue
        rows = AlertChannel.objects.filter(pk=channel.pk, sealed_key=channel.sealed_key)
        moved += rows.update(sealed_key=sealed)
    return moved, unopened


# --- Sending --------------------------------------------------------------------------------------


def deliver(now: datetime | None = None) -> int:
    """Send the notices that are due; how many went out.

    A notice is taken by moving its due time, so that two workers do not send the same one; one that
    dies while sending is sent again.
    """
    now, began = now or db_now(), time.monotonic()
    due = AlertNotice.objects.filter(sent_at=None, given_up_at=None, due_at__lte=now)
    sent = 0
    for notice in due.select_related("alert", "channel").order_by("due_at")[:BATCH]:
        if time.monotonic() - began > SECONDS:  # slow ones hold up nothing else of the sweep
            break
        later = max(now, db_now()) + BACKOFF * 2**notice.tries
        taken = AlertNotice.objects.filter(
            pk=notice.pk, sent_at=None, due_at=notice.due_at, tries=notice.tries
        ).update(due_at=later, tries=F("tries") + 1)
        if not taken:
            continue
        try:
            detail = _send(notice)
        except Exception as error:  # whatever a mail server or a webhook does
            told = redact(f"{type(error).__name__}: {error}")[:300]
            given_up = now if notice.tries + 1 >= TRIES else None
            AlertNotice.objects.filter(pk=notice.pk).update(detail=told, given_up_at=given_up)
            logger.warning(
                "alert not sent",
                extra={"channel": notice.channel_id, "try": notice.tries + 1, "cause": told},
            )
            continue
        AlertNotice.objects.filter(pk=notice.pk).update(sent_at=db_now(), detail=detail[:300])
        sent += 1
    return sent


def words(notice: AlertNotice) -> tuple[str, str]:
    """Subject and text of a message."""
    alert = notice.alert
    told = next((rule.told for rule in rules() if rule.name == alert.rule), alert.rule)
    begin = {"fired": "", "still": _("Still: "), "cleared": _("Over: ")}[notice.what]
    subject = f"[Hermes] {begin}{told}"
    lines = [
        told,
        f"{_('Rule')}: {alert.rule}{f' ({alert.subject})' if alert.subject else ''}",
        f"{_('Value')}: {alert.value:g}, {_('worst')} {alert.worst:g}",
        f"{_('Since')}: {alert.since:%Y-%m-%d %H:%M:%S} UTC",
        f"{settings.HERMES_ORIGINS[0]}/admin/",
    ]
    if alert.cleared_at is not None:
        lines.insert(4, f"{_('Until')}: {alert.cleared_at:%Y-%m-%d %H:%M:%S} UTC")
    return subject, "\n".join(lines)


def message(notice: AlertNotice) -> dict[str, object]:
    """The same for a program."""
    alert = notice.alert
    subject, text = words(notice)
    return {
        "what": notice.what,
        "rule": alert.rule,
        "subject": alert.subject,
        "level": alert.level,
        "value": alert.value,
        "worst": alert.worst,
        "since": alert.since.isoformat(),
        "cleared_at": alert.cleared_at.isoformat() if alert.cleared_at else None,
        "title": subject,
        "text": text,
        "id": f"{alert.pk}-{notice.pk}",
    }


class NotAccepted(Exception):
    """The other side answered, and did not take the message."""


def _send(notice: AlertNotice) -> str:
    channel = notice.channel
    subject, text = words(notice)
    if channel.kind == AlertChannel.Kind.EMAIL:
        if not settings.HERMES_MAIL_URL and "smtp" in settings.EMAIL_BACKEND:
            raise NotAccepted("No mail server is set: HERMES_MAIL_URL.")
        addresses = [each.strip() for each in channel.address.split(",") if each.strip()]
        with released():
            mail.send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, addresses)
        return _("sent to %(n)d") % {"n": len(addresses)}
    key = vault.unseal(channel.sealed_key) if channel.sealed_key else ""
    policy = Policy.of(
        allow_loopback=settings.HERMES_ALLOW_LOOPBACK_MODELS,
        allowed_hosts=settings.HERMES_MODEL_HOSTS,
    )
    told = message(notice)
    with released():
        status, answer = post_json(channel.address, told, key=key, policy=policy)
    if not 200 <= status < 300:
        raise NotAccepted(f"{status}: {answer}")
    return str(status)
