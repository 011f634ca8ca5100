"""What every test has: the servers of the run, and no error logged unseen."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from django.db import Error, connection, transaction
from django.test import TransactionTestCase

from tests.servers import Run

# --- Servers -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The broker and layer of this run."""
    assert Run.servers is not None
    return Run.servers.environment()["REDIS_URL"]


@pytest.fixture
def process_environment(db: None, tmp_path: Path) -> Mapping[str, str]:
    """The environment of a process of the product that works on the test database.

    Such a process sees committed rows only. It has a data folder of its own, and the keys and the
    broker prefix of this run.
    """
    return environment_of_processes(tmp_path)


def environment_of_processes(parent: Path) -> Mapping[str, str]:
    """The same, with the data folder in ``parent``; called when the test database is there."""
    assert Run.folder is not None
    assert Run.servers is not None
    folder = parent / "var"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in ("secret_key", "field_key"):
        if (kept := Run.folder / name).exists():
            (folder / name).write_bytes(kept.read_bytes())
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
        "DATABASE_URL": _database_url(),
        "REDIS_URL": Run.servers.environment()["REDIS_URL"],
        "HERMES_REDIS_PREFIX": Run.redis_prefix,
        "HERMES_VAR": str(folder),
        "PYTHONUNBUFFERED": "1",
    }


def _database_url() -> str:
    told = connection.settings_dict
    host, port = str(told["HOST"]), str(told["PORT"] or 5432)
    if host.startswith("/"):
        host = quote(host, safe="")
    user, password = quote(str(told["USER"]), safe=""), quote(str(told["PASSWORD"]), safe="")
    return f"postgresql://{user}:{password}@{host}:{port}/{told['NAME']}"


# --- Side by side ---------------------------------------------------------------------------------


# Most of what starts processes or measures time. With ``-n 2`` one worker takes all of it, one test
# after the other, and the other one the rest, file by file: the halves take about as long.
BESIDE = ("tests/socket/test_desk",)
WHOLE = tuple(
    f"tests/{name}"
    for name in (
        *("benchmarks/", "browser/", "socket/", "compression/test_traffic", "dashboard/test_sizes"),
        *("founding/test_compaction", "ops/test_embedded_servers", "ops/test_test_servers"),
        *("ops/test_two_of_each", "ops/test_up", "ops/test_worker_tasks"),
        *("processes/test_sandbox", "processes/test_supervisor", "processes/test_tools"),
    )
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let no two tests run beside each other that want the machine for themselves."""
    from xdist.scheduler import LoadScopeScheduling

    class Beside(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_whole = nodeid.startswith(WHOLE) and not nodeid.startswith(BESIDE)
            return "whole" if is_whole else nodeid.partition("::")[0]

    return Beside(config, log)


# --- Errors --------------------------------------------------------------------------------------


class _Errors(logging.Handler):
    """Keeps every record of level ERROR and above, from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        with self._guard:
            self.records.append(record)


_ERRORS = pytest.StashKey[_Errors]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that logs at ERROR and does not ask for ``allow_errors``."""
    errors = item.stash.setdefault(_ERRORS, _Errors())
    logging.getLogger().addHandler(errors)
    try:
        result = yield
    finally:
        logging.getLogger().removeHandler(errors)
    if errors.records and "allow_errors" not in getattr(item, "fixturenames", ()):
        shown = "\n".join(f"{r.name}: {r.getMessage()}" for r in errors.records)
        pytest.fail(f"logged at ERROR (ask for allow_errors if that is meant):\n{shown}", False)
    return result


@pytest.fixture
def allow_errors(request: pytest.FixtureRequest) -> list[logging.LogRecord]:
    """Let the test log at ERROR; the value is the list of what it has logged so far."""
    return request.node.stash.setdefault(_ERRORS, _Errors()).records


# --- Signs of life --------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """The tests' own process tells nobody that it lives: the thread would write into any test.

    Before anything is collected: importing ``hermes.asgi`` for its doctests would begin it.
    """
    from hermes.dashboard import heartbeats

    heartbeats.begin = lambda *_what: None


# --- Emptying the tables --------------------------------------------------------------------------


KEPT: Final = {"django_content_type", "auth_permission"}  # as the migrations have left them
FEW: Final = 2_000  # rows of a table, up to which deleting them is quicker than a new file


@pytest.fixture(autouse=True, scope="session")
def _quick_flush() -> Generator[None]:
    """What a test has committed is deleted after it, from the tables that have rows.

    TRUNCATE makes new files for each table and index, which takes forty times as long. Like it,
    this waits for what other processes have not committed yet.
    """
    original = TransactionTestCase._fixture_teardown

    def teardown(case: TransactionTestCase) -> None:
        for attempt in range(10):
            try:
                _empty()
            except Error:
                connection.close()
                if attempt == 9:
                    raise
                time.sleep(0.2 * (attempt + 1))
            else:
                return

    TransactionTestCase._fixture_teardown = teardown  # type: ignore[method-assign]
    yield
    TransactionTestCase._fixture_teardown = original  # type: ignore[method-assign]


def _empty() -> None:
    tables = set(connection.introspection.django_table_names(only_existing=True)) - KEPT
    names = sorted(connection.ops.quote_name(table) for table in tables)
    count = "SELECT '{0}', count(*) FROM (SELECT FROM {0} LIMIT {1}) AS looked"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE")
        cursor.execute(" UNION ALL ".join(count.format(name, FEW + 1) for name in names))
        counts = {name: rows for name, rows in cursor.fetchall() if rows}
        if any(rows > FEW for rows in counts.values()):
            cursor.execute(f"TRUNCATE {', '.join(names)}")
        elif counts:
            cursor.execute("SELECT set_config('hermes.history_moves', 'on', true)")
            cursor.execute("; ".join(f"DELETE FROM {name}" for name in counts))
