"""How the pool of database connections gets over an outage; no Django in here, settings use it."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

logger = logging.getLogger(__name__)


class Pooled(psycopg.Connection[Any]):
    """A connection of a pool; who finds it broken has the others of its pool looked at too.

    The pool alone throws broken ones away one by one, with a pause before each that doubles: after
    a restart of the server, with five of them idle, a request would wait for ten seconds and fail.
    """

    _pool: ConnectionPool[Any] | None = None  # set by the pool while the connection is out of it

    def execute(self, *words: Any, **more: Any) -> psycopg.Cursor[Any]:
        """Execute a statement; the empty one is the pool's check, before it hands this out."""
        try:
            return super().execute(*words, **more)
        except psycopg.Error:
            if words == ("",) and self._pool is not None:
                self._pool.check()
            raise


def try_again(pool: ConnectionPool[Any]) -> None:
    """Tries to connect were given up: begin anew if somebody has asked since there was one."""
    if pool.get_stats().get("requests_waiting"):
        logger.warning("no connection to the database yet")
        pool.check()
