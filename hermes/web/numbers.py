"""The numbers by which the poller sees that something moved."""

from __future__ import annotations

from typing import Any, Final

from django.db import connection

# What moves a pill without moving its session: progress, a hold, a cooldown that is over, a pause.
_MARK: Final = """
concat_ws('|',
    (SELECT concat_ws('.', a.id, a.status, a.progress, a.hold_started_at IS NOT NULL,
                      a.hold_released_at IS NOT NULL)
     FROM compression_app_compactionattempt a
     WHERE a.session_id = s.id ORDER BY a.id DESC LIMIT 1),
    'until', (SELECT max(k.id) FROM compression_app_cooldown k
     WHERE k.session_id = s.id AND k.cleared_at IS NULL AND k.until > statement_timestamp()),
    'off', (SELECT string_agg(p.id || '.' || (p.paused_at IS NOT NULL), ',' ORDER BY p.id)
     FROM compression_app_compressionstate p
     WHERE (p.scope = 'everything' OR p.scope LIKE 'endpoint:%%')
       AND (p.paused_at IS NOT NULL OR p.breaker_until > statement_timestamp())))
"""
# What moves the tasks of a chat: processes that run, the newest, what they have written, what
# became of their news, and approvals that a turn waits for. Empty where a chat has none of these.
_TASKS: Final = """
concat_ws('|',
    (SELECT string_agg(concat_ws('.', p.id, p.status, p.output_bytes, p.kill_asked,
                                 p.kill_failed, e.id, e.status, e.turn_id_meant),
                       ',' ORDER BY p.id, e.id)
     FROM ((SELECT id, status, output_bytes, kill_asked_at IS NOT NULL AS kill_asked,
                   kill_failed_at IS NOT NULL AS kill_failed
            FROM processes_app_processrecord
            WHERE origin_chat = c.key ORDER BY id DESC LIMIT 12)
           UNION
           (SELECT id, status, output_bytes, kill_asked_at IS NOT NULL, kill_failed_at IS NOT NULL
            FROM processes_app_processrecord
            WHERE origin_chat = c.key AND status IN ('starting', 'running')
            ORDER BY id DESC LIMIT 50)) p
     LEFT JOIN processes_app_completionevent e ON e.process_id = p.id),
    (SELECT string_agg('a' || a.id, ',' ORDER BY a.id)
     FROM processes_app_approval a JOIN sessions_app_turn w ON w.id = a.turn_id_meant
     WHERE a.origin_chat = c.key AND a.status = 'pending' AND w.status = 'waiting'
       AND w.wait_key = 'approval:' || a.id),
    (SELECT string_agg('e' || e.id || e.status, ',' ORDER BY e.id)
     FROM processes_app_completionevent e
     WHERE e.origin_chat = c.key AND e.status IN ('pending', 'accepted') AND e.process_id IS NULL))
"""
_POLL: Final = f"""
SELECT 's', s.id, s.version, t.id, t.fence_token,
       CASE WHEN t.started_at IS NULL AND t.status = 'running' THEN 'held' ELSE t.status END,
       c.reached, NULL::timestamptz, {_MARK}
FROM unnest(%(sessions)s::bigint[]) AS w(id)
JOIN sessions_app_session s ON s.id = w.id
LEFT JOIN sessions_app_turn t ON t.session_id = s.id AND t.status IN ('running', 'waiting')
LEFT JOIN LATERAL (
    SELECT "offset" + length(text) AS reached FROM sessions_app_turnchunk
    WHERE turn_id = t.id AND run = t.fence_token ORDER BY n DESC LIMIT 1
) c ON true
UNION ALL
SELECT 'c', c.id, c.version, c.current_id, NULL, NULL, NULL, NULL, {_TASKS}
FROM unnest(%(chats)s::bigint[]) AS w(id)
JOIN sessions_app_chat c ON c.id = w.id AND c.deleted_at IS NULL
UNION ALL
SELECT 'u', r.owner_id, NULL, NULL, NULL, NULL, NULL, max(r.touched_at), NULL
FROM (
    SELECT owner_id, touched_at FROM sessions_app_chat
    WHERE touched_at > statement_timestamp() - interval '15 seconds'
    UNION ALL
    SELECT c.owner_id, s.touched_at
    FROM sessions_app_session s JOIN sessions_app_chat c ON c.id = s.chat_id
    WHERE s.touched_at > statement_timestamp() - interval '15 seconds'
) r
WHERE r.owner_id = ANY(%(users)s::bigint[])
GROUP BY r.owner_id
"""  # noqa: S608 - our own text


def poll(sessions: list[int], chats: list[int], users: list[int]) -> list[tuple[Any, ...]]:
    """The numbers of everything that has a socket, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_POLL, {"sessions": sessions, "chats": chats, "users": users})
        return list(cursor.fetchall())


def marks_of(session_id: int) -> tuple[str, str]:
    """The marks of a session's pill and of its chat's tasks, as the poll reads them."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_MARK}, {_TASKS} FROM sessions_app_session s "  # noqa: S608 - our own
            "JOIN sessions_app_chat c ON c.id = s.chat_id WHERE s.id = %s",
            [session_id],
        )
        found = cursor.fetchone()
    return ("", "") if found is None else (str(found[0]), str(found[1]))
