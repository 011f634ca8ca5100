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
SELECT 'c', c.id, c.version, c.current_id, NULL, NULL, NULL, NULL, NULL
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


def mark_of(session_id: int) -> str:
    """The mark of a session's pill, as the poll reads it."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_MARK} FROM sessions_app_session s WHERE s.id = %s",  # noqa: S608 - our own
            [session_id],
        )
        found = cursor.fetchone()
    return "" if found is None else str(found[0])
