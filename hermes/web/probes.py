"""Whether this process lives, and whether it can do its work."""

from __future__ import annotations

import logging
from typing import Final

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse

from hermes.lib.sockets import LEAVING

logger = logging.getLogger(__name__)

WAIT: Final = 1.0  # seconds for the broker


def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _migrations() -> bool:
    try:
        executor = MigrationExecutor(connection)
        return not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return False


def _broker() -> bool:
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=WAIT, socket_timeout=WAIT
    )
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def readyz(request: HttpRequest) -> JsonResponse:
    """Database, broker and tables are there; 503 names what is not."""
    if LEAVING.is_set():
        return JsonResponse({"process": "leaving"}, status=503)
    parts = {"database": _database(), "broker": _broker()}
    parts["migrations"] = parts["database"] and _migrations()
    told = {name: "ok" if good else "failed" for name, good in parts.items()}
    if not all(parts.values()):
        logger.warning("not ready", extra=told)
    return JsonResponse(told, status=200 if all(parts.values()) else 503)
