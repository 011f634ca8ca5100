"""T3 to T9 through the whole product: real workers, a real supervisor, a real ``echo done``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from hermes import env
from processes_app.models import CompletionEvent, ProcessRecord
from sessions_app import intake as chats
from sessions_app.models import Chat, Message, Session, Turn
from tests import factories
from tests.processes import facts
from tests.processes.conftest import until
from tests.scripted.behaviour import Behaviour, Call, Rule
from tests.scripted.fixtures import scripted
from tests.socket.conftest import Process, Worker

__all__ = ["scripted"]
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.process,
    pytest.mark.timeout(180),
]
SECONDS = 40


class Product:
    """A worker for both queues and a supervisor, on the test database."""

    def __init__(self, environment, tmp_path) -> None:
        self.environment = environment
        self.worker = Worker(environment, tmp_path / "worker.log")
        command = [sys.executable, str(env.BASE / "manage.py"), "supervise"]
        self.supervisor = Process(command, environment, tmp_path / "supervisor.log")

    def start(self) -> None:
        self.worker.start()
        self.supervisor.start()

    def log(self) -> str:
        return self.worker.text()[-3000:] + self.supervisor.text()[-2000:]


@pytest.fixture
def product(transactional_db, process_environment, tmp_path, scripted) -> Iterator[Product]:
    made = Product(
        {
            **process_environment,
            "HERMES_SWEEP_SECONDS": "1",
            "HERMES_SANDBOX": "none",
            "HERMES_SANDBOX_ACCEPTED": "none",
            "HERMES_COMMANDS": "allow-list",
            "HERMES_ALLOWED_COMMANDS": "echo *,sh *",
            "HERMES_WORKSPACE": str(tmp_path / "workspace"),
        },
        tmp_path,
    )
    chats.register_endpoint(
        name="scripted",
        base_url=scripted.base_url,
        api_key="sk-right",
        model="fake-chat",
        window=32_000,
        role="chat",
    )
    made.start()
    yield made
    for process in (made.worker, made.supervisor):
        process.stop()


@pytest.fixture
def state() -> facts.Background:
    return facts.Background(factories.chat(facts.allowed_person()))


def ask(state, scripted, command: str, *, tool: str = "run_command", **arguments) -> None:
    """A person's message to which the model answers with a call; then the turn is over."""
    given = {"command": command, "background": True} if tool == "run_command" else {}
    call = Call(tool, json.dumps({**given, **arguments}))
    scripted.script(rules=[Rule("please", Behaviour(calls=(call,)), times=1)])
    state.turn = factories.say(state.chat, "please")
    until(lambda: Turn.objects.get(pk=state.turn.pk).finished_at, SECONDS)


def job(state, product, text: str) -> str:
    """A script in the workspace; the command that runs it."""
    from hashlib import sha256
    from pathlib import Path

    name = sha256(state.chat.key.encode()).hexdigest()[:20]
    folder = Path(product.environment["HERMES_WORKSPACE"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.sh").write_text(text)
    return "sh job.sh"


def settled(state) -> CompletionEvent:
    """The one event of the chat, once it is settled."""

    def look():
        event = CompletionEvent.objects.filter(origin_chat=state.chat.key).first()
        return event if event is not None and event.settled_at is not None else None

    return until(look, SECONDS)


def quiesced(state) -> None:
    """Wait until no turn is open, and hold every invariant against the rows."""
    open_turns = Turn.objects.filter(status__in=["queued", "running", "waiting"])
    until(lambda: not open_turns.exists(), SECONDS)
    time.sleep(0)
    assert facts.violations(state) == []


def asked_about(scripted, text: str) -> int:
    """In how many requests to the model a text stands in a report."""
    found = 0
    for request in scripted.requests("fake-chat"):
        newest = [m for m in request["body"]["messages"] if m["role"] == "user"][-1:]
        found += any(text in str(m["content"]) and "DATA " in str(m["content"]) for m in newest)
    return found


def test_t5_echo_done_is_told_once(product, state, scripted):
    ask(state, scripted, "echo done")
    event = settled(state)
    quiesced(state)

    assert event.status == "delivered", product.log()
    assert len(facts.told(state.chat)) == 1
    assert "finished with exit code 0" in facts.told(state.chat)[0]
    assert "\ndone\n" in facts.told(state.chat)[0]
    report = Message.objects.get(kind="completion")
    took = (report.created_at - event.happened_at).total_seconds()
    print(f"\nexit to transcript: {took:.2f} s")
    assert took < 10
    assert scripted.violations() == []


def test_t3_a_real_reset_is_a_boundary(product, state, scripted):
    ask(state, scripted, job(state, product, "sleep 2; echo done"))
    facts.reset(state)
    event = settled(state)
    factories.say(state.chat, "and now?")
    quiesced(state)

    assert (event.status, event.reason) == ("dropped", "closed_by_user")
    assert facts.told(state.chat) == []
    assert Session.objects.filter(chat=state.chat).count() == 2


def test_t4_a_real_idle_end_is_none(product, state, scripted):
    ask(state, scripted, job(state, product, "sleep 2; echo done"))
    facts.end_idle(state)
    event = settled(state)
    quiesced(state)

    assert event.status == "delivered"
    assert len(facts.told(state.chat)) == 1
    assert Session.objects.get(chat=state.chat).ended_at is None


def test_t6_a_record_without_a_stamp(product, state, scripted, tmp_path):
    factories.say(state.chat, "hello")
    quiesced(state)
    with subprocess.Popen(["sleep", "60"]) as running:
        from processes_app.checkpoint import start_of

        path = tmp_path / "processes.json"
        entry = {
            "session_id": "proc_old",
            "command": "sleep 60",
            "pid": running.pid,
            "pid_scope": "host",
            "host_start_time": start_of(running.pid),
            "started_at": time.time(),
            "session_key": state.chat.key,
            "watcher_interval": 5,
            "notify_on_complete": True,
        }
        path.write_text(json.dumps([entry]))
        told = subprocess.run(
            [sys.executable, str(env.BASE / "manage.py"), "import_checkpoint", str(path)],
            env=product.environment,
            capture_output=True,
            text=True,
        )
        running.kill()
        running.wait(10)
    assert "restored 1" in told.stdout, told.stderr
    event = settled(state)
    quiesced(state)

    assert (event.origin_session, event.status) == (None, "delivered")
    assert len(facts.told(state.chat)) == 1
    assert "outcome is unknown" in facts.told(state.chat)[0]


def test_t7_connections_that_the_server_ends(product, state, scripted):
    ask(state, scripted, job(state, product, "sleep 1; echo done"))
    until_at = time.monotonic() + 4
    while time.monotonic() < until_at:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND usename = current_user"  # not a worker that cleans up after us
            )
        time.sleep(0.1)
    event = settled(state)
    quiesced(state)

    assert event.status == "delivered", product.log()
    assert len(facts.told(state.chat)) == 1


def test_t8_a_chat_that_is_gone(product, state, scripted, tmp_path):
    gate = tmp_path / "go"
    ask(state, scripted, job(state, product, f"until [ -e {gate} ]; do sleep 0.1; done; echo done"))
    # The process outlives the deletion for once: the row of its chat is gone before its end.
    product.supervisor.stop()
    facts.purge(state)
    gate.touch()
    product.supervisor.start()
    event = settled(state)

    assert (event.status, event.reason) == ("dropped", "session_deleted")
    assert not Message.objects.filter(kind="completion").exists()


def test_t9_a_delegated_agent(product, state, scripted):
    ask(state, scripted, "", tool="delegate", goal="find the answer")
    event = settled(state)
    quiesced(state)

    assert (event.kind, event.status) == ("async_delegation", "delivered")
    assert len(facts.told(state.chat)) == 1
    assert Chat.objects.of(state.chat.owner_id).count() == 1


def test_everything_may_be_killed_and_the_exit_code_is_true(product, state, scripted):
    ask(state, scripted, job(state, product, "sleep 2; echo back-8; exit 7"))
    until(lambda: ProcessRecord.objects.filter(status="running").exists(), SECONDS)
    product.supervisor.kill()
    product.worker.kill()
    row = ProcessRecord.objects.get()
    until(lambda: (env_folder(product) / row.uid / "exit.json").exists(), SECONDS)
    assert ProcessRecord.objects.get().is_active
    product.start()
    event = settled(state)
    quiesced(state)

    row.refresh_from_db()
    assert (row.exit_code, row.output_bytes, event.status) == (7, 7, "delivered")
    assert "failed with exit code 7" in facts.told(state.chat)[0]
    assert abs((row.ended_at - row.started_at).total_seconds() - 2) < 1


def env_folder(product):
    from pathlib import Path

    return Path(product.environment["HERMES_VAR"]) / "processes"
