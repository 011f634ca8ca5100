"""The servers of a test run; loaded before Django's settings (``-p tests.servers``).

A run starts its own embedded PostgreSQL and Valkey in a temporary data folder and throws them
away. ``HERMES_TEST_DATABASE_URL`` and ``HERMES_TEST_REDIS_URL`` name other servers to use.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from hermes.management.servers.embedded import EmbeddedServers
from hermes.management.servers.identity import Identity, arguments

FOLDERS = Path(tempfile.gettempdir())
PREFIX = f"hermes-tests-{os.geteuid()}-"
KEPT = {
    "HERMES_TEST_DATABASE_URL",
    "HERMES_TEST_REDIS_URL",
    "HERMES_TEST_CHROMIUM",
    "HERMES_TEST_SIZE",  # full: the sizes of make prove
    "HERMES_TEST_SEED",  # of everything that is drawn by lot
    "HERMES_TEST_SHOW",  # show what the processes of a test have logged
}


class Run:
    """What belongs to this run of pytest."""

    folder: Path | None = None
    servers: EmbeddedServers | None = None
    redis_prefix = ""
    seed = 0


def _end_leftovers() -> None:
    """End the servers of runs whose pytest was killed."""
    for folder in FOLDERS.glob(f"{PREFIX}*"):
        owner = Identity.read(folder / "owner.json")
        if owner is None or owner.is_alive():
            continue
        for product in folder.glob("product-*"):
            end_product(product)
        with contextlib.suppress(Exception):
            EmbeddedServers(folder, for_tests=True).stop()
        shutil.rmtree(folder, ignore_errors=True)


def data_folder() -> Path:
    """The path of a data folder, not made yet, for a product that a test starts.

    What runs on it is ended by a later run if this one is killed.
    """
    assert Run.folder is not None
    return Run.folder / f"product-{secrets.token_hex(4)}"


def end_product(var: Path) -> None:
    """End everything that a start command has left running on ``var``."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((var / "run" / "up.lock").read_text().split()[1].rstrip(","))
        if arguments(pid)[-1:] == ["up"] and (starter := Identity.of(pid)):
            starter.end(signal.SIGKILL, 5)
    for file in (var / "run").glob("*.json"):
        if program := Identity.read(file):
            program.end(signal.SIGKILL, 5)
    if var.exists():
        with contextlib.suppress(Exception):
            EmbeddedServers(var).stop()


def run_folder() -> Path:
    """A new folder for servers of a run; a later run ends what is in it if this one is killed."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    if (own := Identity.of(os.getpid())) is not None:
        own.write(folder / "owner.json")
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the servers and point the settings at them."""
    known = early_config.known_args_namespace
    if known.version or known.help:
        return
    _end_leftovers()
    Run.folder = run_folder()
    for name in list(os.environ):
        if name.startswith("HERMES_") and name not in KEPT:
            del os.environ[name]
    Run.seed = int(os.environ.get("HERMES_TEST_SEED") or secrets.randbelow(10**6))
    random.seed(Run.seed)
    Run.servers = EmbeddedServers(
        Run.folder,
        database_url=os.environ.get("HERMES_TEST_DATABASE_URL", ""),
        redis_url=os.environ.get("HERMES_TEST_REDIS_URL", ""),
        max_connections=250,
        for_tests=True,
    )
    Run.servers.start()
    Run.redis_prefix = f"hermes-test-{secrets.token_hex(6)}"
    os.environ.update(Run.servers.environment())
    os.environ["HERMES_VAR"] = str(Run.folder)
    os.environ["HERMES_REDIS_PREFIX"] = Run.redis_prefix


def pytest_report_header() -> str:
    """The seed, by which the same lots are drawn again."""
    return f"HERMES_TEST_SEED={Run.seed} HERMES_TEST_SIZE={os.environ.get('HERMES_TEST_SIZE', '')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what starts Hermes' own servers where the run was given others: it would be the
    same test once more.
    """
    if Run.servers is None or Run.servers.postgres is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("own_servers")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Stop what this run started and remove what it wrote."""
    if Run.servers is None or Run.folder is None:
        return
    servers, Run.servers = Run.servers, None
    if servers.valkey is None:
        forget_hints(servers.redis_url)
    servers.stop()
    shutil.rmtree(Run.folder, ignore_errors=True)


def forget_hints(url: str) -> None:
    """Delete what tests without a worker have left in the broker, so that none begins with it."""
    import redis

    with contextlib.suppress(redis.RedisError), redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{Run.redis_prefix}*", count=1000):
            client.delete(key)
