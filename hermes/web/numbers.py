"""The numbers by which the poller sees that something moved."""

from __future__ import annotations

from typing import Any, Final

from django.db import connection

_POLL: Final = """
SELECT 's', s.id, s.version, t.id, t.fence_token,
       CASE WHEN t.started_at IS NULL AND t.status = 'running' THEN 'held' ELSE t.status END,
       c.reached, NULL::timestamptz
FROM unnest(%(sessions)s::bigint[]) AS w(id)
JOIN sessions_app_session s ON s.id = w.id
LEFT JOIN sessions_app_turn t ON t.session_id = s.id AND t.status IN ('running', 'waiting')
LEFT JOIN LATERAL (
    SELECT "offset" + length(text) AS reached FROM sessions_app_turnchunk
    WHERE turn_id = t.id AND run = t.fence_token ORDER BY n DESC LIMIT 1
) c ON true
UNION ALL
SELECT 'c', c.id, c.version, c.current_id, NULL, NULL, NULL, NULL
FROM unnest(%(chats)s::bigint[]) AS w(id)
JOIN sessions_app_chat c ON c.id = w.id AND c.deleted_at IS NULL
UNION ALL
SELECT 'u', r.owner_id, NULL, NULL, NULL, NULL, NULL, max(r.touched_at)
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
"""


def poll(sessions: list[int], chats: list[int], users: list[int]) -> list[tuple[Any, ...]]:
    """The numbers of everything that has a socket, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(_POLL, {"sessions": sessions, "chats": chats, "users": users})
        return list(cursor.fetchall())
