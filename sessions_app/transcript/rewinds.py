"""Taking rows out of the context, and bringing them back. No row is ever deleted or changed.

Rows that step out together are a group of closed ranges; open ranges never overlap, so a row is
live if no open range covers it. Several groups with the same ``after_seq`` are versions of what
follows that row: bringing one back takes the present one out.
"""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet, Sum

from hermes.lib.db import DbNow
from sessions_app import domain
from sessions_app.models import Message, Rewind, Session, Summary

from . import rows
from .summaries import covered_by, live_between


def rewind(
    session: Session, from_seq: int, reason: domain.RewindReason, *, actor: str = ""
) -> int | None:
    """Take every live row from ``from_seq`` on out of a locked session.

    Return the key of the rewind, or None if there was no such row. The summary falls back, in the
    same transaction, to the newest of the session that covers none of these rows. The caller
    publishes.
    """
    return _step_out(
        session, Message.objects.filter(session=session, seq__gte=from_seq), reason, actor=actor
    )


def bring_back(session: Session, rewind_id: int, *, actor: str = "") -> bool:
    """Put the rows of a rewind into the context again; what stands in their place steps out.

    A summary of just the rows that are live then is the session's again.

    Called with the session locked; the caller publishes. False if the rewind was undone already,
    or if the row that it follows is itself out of the context.
    """
    ranges = list(
        Rewind.objects.filter(
            session=session, undone_at=None, group=_group_of(session, rewind_id)
        ).order_by("from_seq")
    )
    if not ranges:
        return False
    after_seq = ranges[0].after_seq
    anchor = Message.objects.filter(session=session, seq=after_seq).live()
    if after_seq and not anchor.exists():
        return False
    place = Message.objects.filter(session=session, seq__gt=after_seq)
    _step_out(session, place, domain.RewindReason.VERSION, actor=actor, after_seq=after_seq)
    Rewind.objects.filter(pk__in=[each.pk for each in ranges]).update(undone_at=DbNow())
    returned = Message.objects.filter(session=session).filter(
        seq__gte=ranges[0].from_seq, seq__lte=ranges[-1].to_seq
    )
    _recount(session, returned.live(), +1, from_seq=ranges[0].from_seq)
    while (earlier := _summary_to_restore(session)) is not None:
        _restore(session, earlier)
    rows.record(
        session, f"rewind:{ranges[0].group}", "rewind", frm="open", to="undone", actor=actor
    )
    return True


def _summary_to_restore(session: Session) -> Summary | None:
    """A summary after the current one of exactly the rows that are live; None if there is none."""
    later = Summary.objects.filter(
        session=session, previous=session.summary_id, reverted_at=None
    ).order_by("-pk")
    for each in later.defer("text", "body", "parts"):
        moved = Rewind.objects.filter(
            Q(undone_at=None, created_at__gt=each.created_at)
            | Q(undone_at__gt=each.created_at, created_at__lte=each.created_at),
            session=session,
            from_seq__lte=each.covers_through,
            to_seq__gt=covered_by(session),
        )
        if not moved.exists():
            return each
    return None


def _restore(session: Session, summary: Summary) -> None:
    count, size = live_between(session.pk, covered_by(session), summary.covers_through)
    session.live_count -= count
    session.live_tokens -= size
    session.summary = summary
    session.save(update_fields=["summary"])


def _group_of(session: Session, rewind_id: int) -> int:
    found = Rewind.objects.filter(session=session, pk=rewind_id).values_list("group", flat=True)
    return found.first() or 0


def _step_out(
    session: Session,
    place: QuerySet[Message],
    reason: domain.RewindReason,
    *,
    actor: str,
    after_seq: int | None = None,
) -> int | None:
    """Cover the live rows of ``place`` with ranges of one new group; return its key."""
    live = Message.objects.filter(pk__in=place.values("pk")).live()
    ranges = domain.runs(live.order_by("seq").values_list("seq", flat=True))
    if not ranges:
        return None
    first = ranges[0][0]
    if after_seq is None:
        before = Message.objects.filter(session=session, seq__lt=first).live()
        after_seq = before.order_by("-seq").values_list("seq", flat=True).first() or 0
    _recount(session, live, -1, from_seq=first)
    made = [
        Rewind(
            session=session,
            group=0,
            after_seq=after_seq,
            from_seq=low,
            to_seq=high,
            reason=reason,
        )
        for low, high in ranges
    ]
    Rewind.objects.bulk_create(made)
    key = made[0].pk
    Rewind.objects.filter(pk__in=[each.pk for each in made]).update(group=key)
    rows.record(
        session,
        f"rewind:{key}",
        "rewind",
        to="open",
        reason=reason,
        actor=actor,
        ranges=[list(each) for each in ranges],
    )
    return key


def _recount(session: Session, moved: QuerySet[Message], sign: int, *, from_seq: int) -> None:
    """After a change of what is live from ``from_seq`` on: generation, summary, numbers, reading.

    Reads the rows that moved; the whole only where the summary had to fall back.
    """
    rows.raise_generation(session)
    session.reading_tokens = session.reading_seq = None
    session.reading_summary = None
    current = None if session.summary is None else session.summary.covers_through
    if current is not None and current >= from_seq:
        # Along its own line: a summary of another version may cover as little, but of other rows.
        newest = session.summary
        while newest is not None and newest.covers_through >= from_seq:
            newest = newest.previous
        session.summary = newest
        session.save(update_fields=["summary"])
        covered = 0 if newest is None else newest.covers_through
        live = Message.objects.filter(session=session, seq__gt=covered).live()
        if sign < 0:
            live = live.filter(seq__lt=from_seq)
        total = live.aggregate(count=Count("pk"), tokens=Sum("tokens"))
        session.live_count, session.live_tokens = total["count"], total["tokens"] or 0
        return
    total = moved.filter(seq__gt=current or 0).aggregate(count=Count("pk"), tokens=Sum("tokens"))
    session.live_count += sign * total["count"]
    session.live_tokens += sign * (total["tokens"] or 0)
