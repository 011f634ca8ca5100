"""A long past, made by the database itself: rows of every kind, as many as are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection, models

from tests.processes import facts

PEOPLE = 20
PAGE = 60  # rows of what does not grow: its list fills a page from the first
LEAST = 500  # rows of any kind that grows: the most filters fill a page of its list, too
# Times run with the keys, over four weeks up to now.
AT = "(now() - (%(count)s - n) * interval '28 days' / %(count)s)"


@dataclass(frozen=True)
class Past:
    """What was made, and where a long session and a completion of it are."""

    messages: int
    session: int  # a tenth of all messages is in it
    dropped: int  # completions that were dropped since their owner was inactive


def fill(model: type[models.Model], count: int, **columns: str) -> int:
    """Insert rows; ``columns`` are SQL in ``n``, which counts from 1. The key before the first one.

    A column that is not named gets the default of the model.
    """
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    names, values, told = [], [], {"count": count}
    key = model._meta.pk
    with connection.cursor() as cursor:
        base = 0
        if isinstance(key, models.AutoField):
            cursor.execute(f"SELECT coalesce(max(id), 0) FROM {table}")
            base = cursor.fetchone()[0]
            columns[key.column] = "%(base)s + n"
        for field in model._meta.concrete_fields:
            told[f"default_{field.column}"] = None
            if (value := columns.pop(field.column, None)) is None:
                if field.has_db_default() or (field.null and not field.has_default()):
                    continue
                told[f"default_{field.column}"] = field.get_db_prep_save(
                    field.get_default(), connection
                )
                value = f"%(default_{field.column})s"
            names.append(quote(field.column))
            values.append(value.replace("AT", AT))
        assert not columns, columns
        told["base"] = base
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "
            "FROM generate_series(1, %(count)s) AS n",
            told,
        )
        if base or isinstance(key, models.AutoField):
            cursor.execute(
                "SELECT setval(pg_get_serial_sequence(%s, %s), %s)",
                [table, key.column, base + count],
            )
    return int(base)


def _model(name: str) -> type[models.Model]:
    return apps.get_model(name)


def make(messages: int, name: str) -> Past:
    """A past of so many messages, a fifth as many attempts and completions, and what goes with it.

    ``name`` tells it from others in the same database.
    """
    _execute("SET statement_timeout = 0")  # one statement makes a million rows
    people = [facts.allowed_person(f"{name}-{n}").pk for n in range(PEOPLE)]
    chats = max(LEAST, messages // 100)
    owner = f"{people[0]} + n %% {PEOPLE}"
    assert people == list(range(people[0], people[0] + PEOPLE))
    chat = fill(
        _model("sessions_app.chat"),
        chats,
        uid="gen_random_uuid()",
        key=f"'{name}:' || n",
        owner_id=owner,
        title="'Tide tables'",
        begun_at="AT",
        active_at="AT",
        created_at="AT",
        deleted_at="CASE WHEN n %% 50 = 7 THEN AT END",
        is_hidden="n %% 50 = 9",
    )
    # Two sessions a chat; the first of each chat was ended, the second is open.
    session = fill(
        _model("sessions_app.session"),
        2 * chats,
        key=f"'{name}-' || n",
        chat_id=f"{chat} + 1 + (n - 1) %% {chats}",
        number=f"1 + (n - 1) / {chats}",
        begun_by="CASE WHEN n %% 50 = 3 THEN 'system' ELSE 'user' END",
        ended_at=f"CASE WHEN n <= {chats} THEN AT END",
        end_reason=f"CASE WHEN n > {chats} THEN NULL WHEN n %% 9 = 0 THEN 'compression' "
        "ELSE 'session_reset' END",
        live_tokens="n * 10",
        touched_at="AT",
        created_at="AT",
    )
    _execute(
        "UPDATE sessions_app_chat SET current_id = id - %s + %s WHERE id > %s",
        [chat, session + chats, chat],
    )
    long = max(400, messages // 20)  # turns of the first session: more than its pages show
    state = _messages(messages, name, chat, session, chats, long)
    _compaction(messages // 5, session, 2 * chats)
    dropped = _processes(messages // 5, name, people[0], chat, chats, state)
    _rest(messages, name, chat, session, chats)
    _execute("VACUUM ANALYZE")
    _execute("RESET statement_timeout")
    return Past(messages, session + 1, dropped)


def _messages(count: int, name: str, chat: int, session: int, chats: int, long: int) -> int:
    """Turns and their messages: the oldest are the long session, the others go round."""
    turns, others = count // 2, 2 * chats - 1
    place = f"CASE WHEN n <= {long} THEN 1 ELSE 2 + (n - {long} - 1) %% {others} END"
    number = f"CASE WHEN n <= {long} THEN n - 1 ELSE (n - {long} - 1) / {others} END"
    is_open = f"n > {turns - 5}"
    turn = fill(
        _model("sessions_app.turn"),
        turns,
        chat_id=f"{chat} + 1 + (({place}) - 1) %% {chats}",
        session_id=f"{session} + ({place})",
        status=f"CASE WHEN {is_open} THEN 'queued' WHEN n %% 50 = 0 THEN 'failed' "
        "WHEN n %% 50 = 1 THEN 'cancelled' WHEN n %% 5000 = 2 THEN 'interrupted' "
        "ELSE 'completed' END",
        source="CASE WHEN n %% 40 = 3 THEN 'regenerate' WHEN n %% 40 = 4 THEN 'completion' "
        "ELSE 'person' END",
        client_turn_id=f"'{name}-' || n",
        text="'What about the harbour?'",
        position=f"1 + ({number})",
        first_seq=f"1 + 2 * ({number})",
        error_code="CASE WHEN n %% 50 = 0 THEN 'provider_' || n %% 3 ELSE '' END",
        model_name="'m'",
        model_calls="1",
        prompt_tokens="10",
        changed="n",
        created_at="AT",
        started_at=f"CASE WHEN NOT {is_open} THEN AT + interval '0.3 s' END",
        finished_at=f"CASE WHEN NOT {is_open} THEN AT + interval '9 s' END",
    )
    exchange = "((n + 1) / 2)"
    m_place = (
        f"CASE WHEN {exchange} <= {long} THEN 1 ELSE 2 + ({exchange} - {long} - 1) %% {others} END"
    )
    m_number = (
        f"CASE WHEN {exchange} <= {long} THEN {exchange} - 1 "
        f"ELSE ({exchange} - {long} - 1) / {others} END"
    )
    fill(
        _model("sessions_app.message"),
        count,
        session_id=f"{session} + ({m_place})",
        turn_id=f"{turn} + {exchange}",
        seq=f"2 * ({m_number}) + 2 - n %% 2",
        role="CASE WHEN n %% 2 = 1 THEN 'user' ELSE 'assistant' END",
        kind="CASE WHEN n %% 400 = 9 THEN 'nudge' ELSE 'text' END",
        text="'The third boat leaves with the tide.'",
        tokens="10",
        is_partial="n %% 1000 = 10",
        created_at="AT",
    )
    _execute(
        "UPDATE sessions_app_session s SET last_seq = t.last, live_count = t.last FROM ("
        "SELECT session_id, max(seq) AS last FROM sessions_app_message "
        "WHERE session_id > %s GROUP BY 1) t WHERE s.id = t.session_id",
        [session],
    )
    is_verdict, is_operator = "n %% 6 = 5", "n %% 500 = 7"
    fill(
        _model("sessions_app.history"),
        3 * turns,
        at="AT",
        chat=f"{chat} + 1",
        session=f"CASE WHEN NOT ({is_verdict}) THEN {session} + CASE WHEN n <= {3 * long} THEN 1 "
        f"ELSE 2 + (n - {3 * long} - 1) %% {others} END END",
        subject=f"CASE WHEN {is_verdict} THEN 'completion:' || n "
        f"ELSE 'turn:' || ({turn} + (n + 2) / 3) END",
        kind=f"CASE WHEN {is_verdict} THEN 'verdict' WHEN {is_operator} THEN 'operator' "
        "ELSE 'turn' END",
        **{"from": f"CASE WHEN {is_verdict} THEN 'pending' ELSE 'running' END"},
        to=f"CASE WHEN {is_verdict} THEN 'dropped' WHEN {is_operator} THEN 'redeliver' "
        "ELSE 'completed' END",
        reason=f"CASE WHEN {is_verdict} THEN 'owner_inactive' ELSE '' END",
        actor=f"CASE WHEN {is_operator} THEN 'seeded' || n %% 3 ELSE '' END",
    )
    fill(
        _model("sessions_app.rewind"),
        max(LEAST, count // 100),
        session_id=f"{session} + 1 + n %% {2 * chats}",
        group="n",
        after_seq="0",
        from_seq="1",
        to_seq="2",
        reason="CASE WHEN n %% 3 = 0 THEN 'undo' ELSE 'regenerate' END",
        undone_at="AT",
        created_at="AT",
    )
    return turn


def _compaction(count: int, session: int, sessions: int) -> None:
    is_open = f"n > {count - 5}"
    place = f"{session} + 1 + n %% {sessions}"
    held = "CASE WHEN n %% 4 = 0 THEN AT END"
    attempt = fill(
        _model("compression_app.compactionattempt"),
        count,
        session_id=place,
        status=f"CASE WHEN {is_open} THEN 'queued' WHEN n %% 20 = 0 THEN 'failed' "
        "WHEN n %% 200 = 1 THEN 'lost' WHEN n %% 200 = 2 THEN 'superseded' "
        "WHEN n %% 200 = 3 THEN 'cancelled' ELSE 'committed' END",
        trigger="CASE WHEN n %% 4 = 0 THEN 'hard' WHEN n %% 100 = 1 THEN 'manual' ELSE 'soft' END",
        generation="1",
        watermark="2",
        cut="2",
        model_name="'m'",
        opened_at="AT",
        hold_started_at=held,
        hold_released_at="CASE WHEN n %% 40 = 0 THEN AT + interval '15 s' END",
        finished_at=f"CASE WHEN NOT {is_open} THEN AT + interval '20 s' END",
        reason="CASE WHEN n %% 20 = 0 THEN 'stalled' WHEN n %% 200 = 1 THEN 'lease_expired' "
        "ELSE '' END",
        before_tokens="100",
        after_tokens="10",
        prompt_tokens="90",
        summary_id_made="1",
    )
    fill(
        _model("compression_app.cooldown"),
        min(count, max(LEAST, count // 20)),
        session_id=place,
        attempt_id=f"{attempt} + n",
        kind="CASE WHEN n %% 5 = 0 THEN 'ladder' ELSE 'flat' END",
        reason="CASE WHEN n %% 5 = 0 THEN 'stalled' ELSE 'lease_expired' END",
        until="AT + interval '1 minute'",
        created_at="AT",
    )
    fill(
        _model("compression_app.compressionstate"),
        sessions,
        scope=f"'session:' || ({session} + n)",
        session_id=f"{session} + n",
        streak="CASE WHEN n %% 200 = 0 THEN 4 ELSE 0 END",
    )
    fill(
        _model("sessions_app.summary"),
        count,
        session_id=place,
        covers_through="2",
        text="'What was said before.'",
        tokens="9",
        is_untrusted="n %% 50 = 0",
        is_mechanical="n %% 500 = 0",
        attempt_id=f"{attempt} + n",
        created_at="AT",
        reverted_at="CASE WHEN n %% 500 = 1 THEN AT END",
    )


def _processes(count: int, name: str, person: int, chat: int, chats: int, turn: int) -> int:
    """Processes, each with its news; a twentieth was dropped since the owner was inactive."""
    place = f"(1 + n %% {chats})"
    process = fill(
        _model("processes_app.processrecord"),
        count,
        uid=f"'p{name}' || n",
        status="CASE WHEN n %% 100 = 0 THEN 'lost' ELSE 'ended' END",
        reason="CASE WHEN n %% 100 = 0 THEN 'vanished' ELSE 'exited' END",
        command="'make tide'",
        origin_chat=f"'{name}:' || {place}",
        origin_session=f"'{name}-' || ({chats} + {place})",
        owner_id_meant=f"{person} + {place} %% {PEOPLE}",
        host="'host'",
        sandbox="'bwrap'",
        exit_code="0",
        created_at="AT",
        started_at="AT",
        ended_at="AT + interval '5 s'",
    )
    is_open = f"n %% 20 = 4 AND n > {count - 100}"
    status = (
        f"CASE WHEN n %% 20 IN (0, 1) THEN 'dropped' WHEN n %% 200 = 2 THEN 'quiet' "
        f"WHEN n %% 20 = 3 THEN 'consumed' WHEN {is_open} THEN 'pending' ELSE 'delivered' END"
    )
    fill(
        _model("processes_app.completionevent"),
        count,
        process_id=f"{process} + n",
        kind="'completion'",
        origin_chat=f"'{name}:' || {place}",
        origin_session=f"'{name}-' || ({chats} + {place})",
        status=status,
        reason="CASE n %% 20 WHEN 0 THEN 'owner_inactive' WHEN 1 THEN 'closed_by_user' ELSE '' END",
        quiet_because="CASE WHEN n %% 200 = 2 THEN 'too_old' ELSE '' END",
        title="'make tide'",
        body="'done'",
        turn_id_meant=f"CASE WHEN ({status}) = 'delivered' THEN {turn} + n END",
        happened_at="AT",
        due_at="AT",
        settled_at=f"CASE WHEN NOT ({is_open}) THEN AT END",
        created_at="AT",
    )
    fill(
        _model("processes_app.approval"),
        max(LEAST, count // 10),
        status="CASE WHEN n %% 100 = 0 THEN 'denied' ELSE 'allowed' END",
        answer="CASE WHEN n %% 100 = 0 THEN 'deny' WHEN n %% 100 = 1 THEN 'always' ELSE 'once' END",
        turn_id_meant=f"{turn} + n",
        call_id="'call'",
        origin_chat=f"'{name}:' || {place}",
        origin_session=f"'{name}-' || ({chats} + {place})",
        owner_id_meant=f"{person} + {place} %% {PEOPLE}",
        command="'make tide'",
        until="AT",
        answered_at="AT",
        created_at="AT",
    )
    return count // 20


def _rest(messages: int, name: str, chat: int, session: int, chats: int) -> None:
    """What the desk keeps itself."""
    some = max(LEAST, messages // 100)
    channel = fill(
        _model("dashboard.alertchannel"), 5, name=f"'{name}' || n", address="'a@example.org'"
    )
    alert = fill(
        _model("dashboard.alert"),
        some,
        rule="'rule' || n %% 9",
        subject="'s' || n",
        since="AT",
        seen_at="AT",
        told_at="AT",
        cleared_at="AT",
    )
    fill(
        _model("dashboard.alertnotice"),
        some,
        alert_id=f"{alert} + n",
        channel_id=f"{channel} + 1 + n %% 5",
        what="'fired'",
        created_at="AT",
        sent_at="AT",
    )
    fill(
        _model("dashboard.loginfailure"),
        some,
        name="md5(n::text)",
        address="'10.0.0.' || n %% 20",
        at="now() - n * interval '1 s'",
    )
    fill(
        _model("dashboard.silence"),
        some,
        rule="'rule' || n %% 9",
        until="AT",
        reason="'quiet please'",
        actor="'operator'",
    )
    fill(
        _model("dashboard.heartbeat"),
        PAGE,
        owner=f"'{name}|boot|web|' || n",
        kind="'web'",
        host=f"'{name}'",
        seen_at="now() - interval '2 days'",
    )
    fill(_model("dashboard.checkresult"), PAGE, name=f"'{name}' || n")
    fill(_model("sessions_app.modelendpoint"), PAGE, name=f"'{name}' || n", is_enabled="false")
    fill(_model("auth.group"), PAGE, name=f"'{name}' || n")
    user = fill(
        get_user_model(),
        max(LEAST, messages // 1000),
        username=f"'{name}.' || n",
        password="'!'",
        date_joined="AT",
    )
    fill(
        _model("dashboard.secondfactor"),
        PAGE,
        user_id=f"{user} + n",
        sealed_secret="''",
        recovery="'[]'",
    )


def _execute(sql: str, told: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, told)
