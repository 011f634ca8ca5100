"""Database habits: no connection held while waiting, retries of whole transactions, its clock.

A connection that is lost while a COMMIT waits for its answer leaves a transaction of which nobody
here knows whether it took effect. To run it again would append twice, or lose a claim that was
had; so its id is kept, and the server is asked what became of it (PostgreSQL manual,
``pg_xact_status``).
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, ParamSpec, TypeVar

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    connection,
    models,
    transaction,
)

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=models.Model)

TRIES: Final = 3
UNDER_WAY_SECONDS: Final = 5.0  # for which a COMMIT that got no answer may still be under way
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


# After a crash a server hands out again the numbers whose transactions did not reach its log, and
# loses its statistics: their age tells one life of a server from the next (PostgreSQL manual, "The
# Cumulative Statistics System").
LIFE: Final = "(SELECT coalesce(extract(epoch FROM stats_reset)::text, '') FROM pg_stat_bgwriter)"


class TransactionId(models.Func):
    """The transaction that this statement belongs to, with the life of the server; gives it one."""

    template = f"pg_current_xact_id()::text || '@' || {LIFE}"
    output_field = models.TextField()


_noted: Final = threading.local()


def locked(rows: models.QuerySet[M], pk: int) -> M:
    """One of these locking rows; the transaction's id is read on the way and noted.

    Where nobody has noted it, :func:`transacted` asks for it in a statement of its own.
    """
    found = rows.annotate(transaction_id_noted=TransactionId()).get(pk=pk)
    _noted.id = vars(found).pop("transaction_id_noted")
    return found


class InDoubt(OperationalError):
    """A COMMIT got no answer, and nobody could be asked since whether it took effect.

    ``again`` asks, and runs the transaction only if it did not; it returns and raises what the
    transaction does. To call the transaction itself again may do its work twice.
    """

    def __init__(self, message: str, again: Callable[[], Any]) -> None:
        super().__init__(message)
        self.again = again


class Unknowable(DatabaseError):
    """A COMMIT got no answer, and the server cannot tell any more whether it took effect.

    It has crashed since, or another one has taken over. Nothing is run again: what the rows say
    now decides, by the next sweep or the next request.
    """


@dataclass(frozen=True)
class _Sent(Generic[R]):
    """A transaction that was told to commit, and what it returns if it did."""

    id: str | None  # its number, and the life of the server; None: it had written nothing
    result: R

    def took_effect(self) -> bool:
        """Whether it did, as the server says; waits for one that is still under way.

        Raises:
            Unknowable: the number may be another transaction's by now.
        """
        if self.id is None:
            return False
        number, _, life = self.id.partition("@")
        until = time.monotonic() + UNDER_WAY_SECONDS
        while True:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {LIFE}")
                if cursor.fetchone()[0] != life:
                    raise Unknowable("the server has crashed since, or is another one")
                cursor.execute("SELECT pg_xact_status(%s::xid8)", [number])
                status = cursor.fetchone()[0]
            if status is None:
                raise Unknowable("the server has forgotten the transaction")
            if status != "in progress":
                return bool(status == "committed")
            if time.monotonic() > until:
                raise OperationalError("the transaction is still under way")
            with released():
                time.sleep(0.05)


def _transaction_id() -> str | None:
    """What :class:`TransactionId` says, or None if the transaction has written nothing."""
    if connection.needs_rollback:
        raise transaction.TransactionManagementError("nothing of this transaction will be kept")
    noted: str | None = getattr(_noted, "id", None)
    if noted is not None:
        return noted
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_current_xact_id_if_assigned()::text || '@' || {LIFE}")
        found: str | None = cursor.fetchone()[0]
    return found


def _commit(call: Callable[[], R], sent: _Sent[R] | None = None) -> R:
    """Run it until it has committed, at most so often; ask at most so often after each COMMIT."""
    runs = asked = 0
    while True:
        try:
            if sent is not None:
                asked += 1
                if sent.took_effect():
                    return sent.result
                sent = None
                if runs == TRIES:
                    raise OperationalError("the connection was lost before COMMIT arrived")
            runs, asked = runs + 1, 0
            _noted.id = None
            with transaction.atomic():
                result = call()
                sent = _Sent(_transaction_id(), result)
        except (DatabaseError, InterfaceError) as error:
            if not is_transient(error) or (sent is None and runs == TRIES):
                raise
            if sent is not None and asked == TRIES:
                raise InDoubt(str(error), functools.partial(_commit, call, sent)) from error
            _pause(call, max(runs, asked), error)
        else:
            return result


def _pause(call: Callable[..., object], attempt: int, error: Exception) -> None:
    """Let go of the connection and wait a moment before a next try."""
    name = getattr(call, "func", call).__qualname__
    logger.warning(
        "transaction retried", extra={"call": name, "attempt": attempt, "cause": str(error)}
    )
    connection.close()
    time.sleep(random.uniform(0.01, 0.05) * attempt)  # noqa: S311 - jitter, no secret


def transacted(function: Callable[P, R]) -> Callable[P, R]:
    """Run in one transaction: again, at most twice, on deadlock, lock timeout, lost connection.

    What was committed is never run again, also where the answer to COMMIT was lost: the server is
    asked, and the result of the first run is returned (its hints are lost). Within a caller's
    transaction nothing is retried: that transaction is already lost.

    The body may run more than once: it must not add to what its arguments hold.

    Raises:
        InDoubt: nobody could be asked.
        Unknowable: the server that was told to commit is not there any more.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if connection.in_atomic_block:
            with transaction.atomic():
                return function(*args, **kwargs)
        return _commit(functools.partial(function, *args, **kwargs))

    return run


def insist(call: Callable[[], R], *, seconds: float, what: str) -> R:
    """Call what is :func:`transacted`, for so long again where the database does not answer.

    Raises the last error once the time is up, and at once what no other try would change.
    """
    until = time.monotonic() + seconds
    pause = 0.25
    while True:
        try:
            return call()
        except (DatabaseError, InterfaceError) as error:
            if not is_transient(error) or time.monotonic() + pause > until:
                raise
            if isinstance(error, InDoubt):
                call = error.again
            logger.warning("not written yet", extra={"what": what, "cause": str(error)})
            with released():
                time.sleep(pause)
            pause = min(pause * 2, 3.0)


def retrying(function: Callable[P, R]) -> Callable[P, R]:
    """Run what only reads again, at most twice, on the errors that :func:`transacted` names."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(1, TRIES + 1):
            inner = connection.in_atomic_block
            try:
                return function(*args, **kwargs)
            except (DatabaseError, InterfaceError) as error:
                if inner or attempt == TRIES or not is_transient(error):
                    raise
                _pause(function, attempt, error)
        raise AssertionError("unreachable")

    return run


def constraint_name(error: DatabaseError) -> str:
    """The name of the constraint that refused a write, or an empty text."""
    diagnosis: Any = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None) or ""
