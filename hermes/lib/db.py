"""Database habits: no connection held while waiting, retries of whole transactions, its clock."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, ParamSpec, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection, models

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

TRIES: Final = 3
# deadlock_detected, lock_not_available, serialization_failure, idle in transaction timeout,
# admin shutdown, crash shutdown, cannot connect now
TRANSIENT: Final = frozenset({"40P01", "55P03", "40001", "25P03", "57P01", "57P02", "57P03"})


class DbNow(models.Func):
    """The database's clock at this statement, also inside a long transaction."""

    template = "clock_timestamp()"
    output_field = models.DateTimeField()


def db_now() -> datetime:
    """The database's clock, read now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


@contextmanager
def released() -> Iterator[None]:
    """Give this thread's connection back while something slow happens.

    The pool is the limit, not the number of threads. Inside a transaction there is nothing that
    could be given back: that is a mistake of the caller and raises.
    """
    if connection.in_atomic_block:
        raise RuntimeError("released() must not run inside a transaction")
    connection.close()
    yield


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is run again."""
    if isinstance(error, InterfaceError):
        return True
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None)
    # psycopg reports a connection that broke under a statement without a state
    return isinstance(error, OperationalError) and (state is None or state in TRANSIENT)


def retrying(function: Callable[P, R]) -> Callable[P, R]:
    """Run the transaction again, at most twice, on deadlock, lock timeout and lost connection.

    Goes outside ``transaction.atomic``. Within a caller's transaction nothing is retried: that
    transaction is already lost.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(1, TRIES + 1):
            inner = connection.in_atomic_block
            try:
                return function(*args, **kwargs)
            except DatabaseError as error:
                if inner or attempt == TRIES or not is_transient(error):
                    raise
                logger.warning(
                    "transaction retried",
                    extra={"call": function.__qualname__, "attempt": attempt, "cause": str(error)},
                )
                connection.close()
                time.sleep(random.uniform(0.01, 0.05) * attempt)  # noqa: S311 - jitter, no secret
        raise AssertionError("unreachable")

    return run


def constraint_name(error: DatabaseError) -> str:
    """The name of the constraint that refused a write, or an empty text."""
    diagnosis: Any = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None) or ""
