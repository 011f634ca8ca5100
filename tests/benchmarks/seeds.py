"""Long transcripts, made in SQL from one exchange that the product has written itself."""

from __future__ import annotations

from typing import Any

from django.db import connection, models

from sessions_app import transcript
from sessions_app.models import Message, Session, Summary, Turn
from tests import factories, states

from .ground import without_hints

QUESTION = "What about the harbour, the tide tables and the third boat? " * 3
ANSWER = "The third boat leaves **with the tide**; `tide.csv` has the hours of this week. " * 4


def replicate(model: type[models.Model], pk: int, count: int, **columns: str) -> None:
    """Copy a row so many times; ``columns`` are SQL in ``g``, which counts from 1."""
    names, values = [], []
    for field in model._meta.concrete_fields:
        if field.primary_key:
            continue
        column = connection.ops.quote_name(field.column)
        names.append(column)
        values.append(columns.get(field.column, f"t.{column}"))
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM {table} t, generate_series(1, %s) g WHERE t.id = %s",
            [count, pk],
        )


def long_session(messages: int, *, covered: int = 0, owner: Any = None) -> states.State:
    """A session of so many messages in exchanges, its first ``covered`` summed up.

    Every number on the rows is true: ``check_invariants`` finds nothing.
    """
    state = states.State(factories.chat(owner))
    with without_hints():  # no worker is to have it
        turn = factories.say(state.chat, QUESTION)
    claimed = transcript.claim(turn.session_id)
    transcript.start(claimed)
    transcript.finish(claimed, transcript.Step(text=ANSWER, model_name="seeded"))
    state.turn = turn
    session = Session.objects.get(pk=turn.session_id)
    more = messages // 2 - 1
    replicate(
        Turn,
        turn.pk,
        more,
        first_seq="1 + 2 * g",
        position="t.position + g",
        client_turn_id="'seed' || g",
        text_hash="''",
    )
    analyze()  # else each message's turn may be looked for row by row
    for row in Message.objects.filter(session=session):
        replicate(
            Message,
            row.pk,
            more,
            seq=f"{row.seq} + 2 * g",
            turn_id=(
                f"(SELECT id FROM {Turn._meta.db_table} WHERE chat_id = {session.chat_id} "
                "AND client_turn_id = 'seed' || g)"
            ),
        )
    count, size = transcript.live_between(session.pk, covered, messages)
    summary = None
    if covered:
        summary = Summary.objects.create(
            session=session, covers_through=covered, text="What was said before.", tokens=20
        )
    Session.objects.filter(pk=session.pk).update(
        last_seq=messages,
        last_position=1 + more,
        live_count=count,
        live_tokens=size,
        summary=summary,
        reading_tokens=None,
        reading_seq=None,
        reading_live=0,
    )
    return state


def analyze() -> None:
    """Let the planner know what is there."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
