"""Seeded defects: each is put into a copy of the tree, and a test has to turn red.

``python -m tests.mutants`` runs them all, on one pair of servers of its own, after a control run
without any defect; it fails if a defect survives. ``tests/mutants.md`` tells what each one is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes import env
from hermes.management.servers.embedded import EmbeddedServers

from .benchmarks.figures import surroundings
from .servers import run_folder

FILE = env.BASE / "build" / "mutants.json"
PAGE = env.BASE / "tests" / "mutants.md"
LEFT_BEHIND = (".git", "build", "var", ".venv", "docs", "__pycache__", "*.pyc", ".*_cache")
RED, GREEN = 1, 0  # exit codes of pytest; any other says nothing about the defect
FENCING = "tests/faults/test_fencing.py::"


@dataclass(frozen=True)
class Mutant:
    """One defect: a text of one file replaced by another, and the tests that see it."""

    id: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, tree: Path) -> None:
        """Put the defect into a tree.

        Raises:
            LookupError: the text is not there exactly once: the code has moved on.
        """
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise LookupError(f"{self.id}: {self.old!r} is in {self.file} {text.count(self.old)}×")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


TURNS = "sessions_app/transcript/turns.py"
ENDS = "sessions_app/transcript/ends.py"
VERDICTS = "tests/processes/test_verdicts.py::"
HOLD = "tests/compression/test_hold.py::TestDeferred::"

MUTANTS = (
    Mutant(
        "M1",
        "seq, position and version are handed out without the session's lock",
        "sessions_app/models/base.py",
        "return locked(self.select_for_update(no_key=True), pk)",
        "return self.get(pk=pk)",
        ("tests/races/test_appends.py::test_submit_and_start",),
    ),
    Mutant(
        "M2",
        "a worker's writes do not compare the fencing token",
        TURNS,
        'return {"fence_token": claimed.lease.token}',
        "return {}",
        (FENCING + "test_a_worker_that_was_taken_over_writes_nothing",),
    ),
    Mutant(
        "M3",
        "the fence looks at the attempt before it has the session's lock",
        "compression_app/fence/commits.py",
        "    session = Session.objects.lock(session_id)\n"
        "    attempt = CompactionAttempt.objects.get(pk=lease.pk)\n"
        "    if attempt.status == AttemptStatus.COMMITTED and",
        "    attempt = CompactionAttempt.objects.get(pk=lease.pk)\n"
        "    session = Session.objects.lock(session_id)\n"
        "    if attempt.status == AttemptStatus.COMMITTED and",
        ("tests/races/test_appends.py::test_commit_and_cancel",),
    ),
    Mutant(
        "M4",
        "a lease runs out by the worker's clock",
        TURNS,
        "lease_expires_at=DbNow() + Turn.LEASE.ttl",
        'lease_expires_at=__import__("django.utils.timezone").utils.timezone.now()'
        " + Turn.LEASE.ttl",
        (FENCING + "test_a_worker_whose_clock_is_wrong_holds_its_lease_as_long_as_any",),
    ),
    Mutant(
        "M5",
        "a lost turn is ended by its id alone, whichever run it is in by now",
        ENDS,
        "or token not in {None, turn.fence_token}:",
        "or False:",
        (FENCING + "test_a_sweep_that_saw_an_older_run_ends_nothing",),
    ),
    Mutant(
        "M8",
        "a message that is sent again is not recognised",
        "sessions_app/intake/turns.py",
        "    if known_id is not None:\n",
        "    if False:\n",
        ("tests/faults/test_crashes.py::test_submit_is_stored_or_not_and_a_retry_makes_it_one",),
    ),
    Mutant(
        "M9",
        "a cooldown is armed when a hold runs out, although the attempt goes on",
        "compression_app/fence/holds.py",
        "        CompactionAttempt.objects.amend(attempt_id, attempt.status, "
        "hold_released_at=DbNow())\n",
        "        CompactionAttempt.objects.amend(attempt_id, attempt.status, "
        "hold_released_at=DbNow())\n"
        "        from datetime import timedelta\n"
        "        from compression_app.models import Cooldown\n"
        '        Cooldown.objects.create(session=session, attempt=attempt, kind="flat",\n'
        '                                reason="hold", until=DbNow() + timedelta(seconds=60))\n',
        (HOLD + "test_nothing_is_burned_while_it_streams",),
    ),
    Mutant(
        "M10",
        "an attempt that was deferred counts as a failure in the streak",
        "compression_app/domain/ends.py",
        "    if end.is_deferred:\n"
        '        return Consequence(Wait(CooldownKind.FLAT, flat, f"turn-hold: {reason}"))\n',
        "    if end.is_deferred:\n"
        '        return Consequence(Wait(CooldownKind.FLAT, flat, f"turn-hold: {reason}"),\n'
        "                           streak=end.streak + 1)\n",
        (HOLD + "test_it_fails_late",),
    ),
    Mutant(
        "M11",
        "adopting a summary writes the messages that it covers",
        "sessions_app/transcript/summaries.py",
        "    session.live_count -= count\n    session.live_tokens -= size\n"
        "    _point_at(session, made)",
        "    session.live_count -= count\n    session.live_tokens -= size\n"
        "    Message.objects.filter(session=session, seq__lte=draft.covers_through)"
        '.update(kind="text")\n'
        "    _point_at(session, made)",
        (FENCING + "test_a_commit_touches_no_message",),
    ),
    Mutant(
        "M12",
        "a process is known by its pid alone",
        "hermes/lib/leases.py",
        "process_start(self.pid) != self.start",
        "process_start(self.pid) is None",
        ("tests/lib/test_leases.py",),
    ),
    Mutant(
        "M13",
        "a socket reads first and subscribes afterwards",
        "hermes/web/consumers.py",
        "        await self.hub.add(self)  "
        "# before anything is read: what moves from now on wakes us"
        '\n        await self._sync("hello")\n',
        '        await self._sync("hello")\n        await self.hub.add(self)\n',
        ("tests/socket/test_subscribing.py",),
    ),
    Mutant(
        "M14",
        "text is forwarded wherever it belongs, without a look at its offset",
        "hermes/web/cursor.py",
        "if self.base is None or offset > self.end:",
        "if self.base is None:",
        ("tests/socket/test_cursor.py::test_a_stream_only_ever_holds_a_prefix",),
    ),
    Mutant(
        "H1",
        "a turn is claimed without the session's lock",
        TURNS,
        "    session = Session.objects.lock_with_summary(session_id)\n    turn = (\n",
        "    session = Session.objects.get(pk=session_id)\n    turn = (\n",
        (
            "tests/races/test_interleavings.py::test_claim_and_claim",
            "tests/races/test_interleavings.py::test_claim_and_new",
        ),
    ),
    Mutant(
        "H2",
        "a turn starts although its session has ended",
        TURNS,
        "    if session.ended_at is not None:\n",
        "    if False:\n",
        (FENCING + "test_a_turn_whose_session_has_ended_does_not_start",),
    ),
    Mutant(
        "H3",
        "streamed text above a gap is kept as if nothing were missing",
        ENDS,
        "        if offset > at:  # a piece is missing: what comes after it cannot be placed\n"
        "            break\n",
        "",
        (FENCING + "test_text_above_a_gap_is_not_kept",),
    ),
    Mutant(
        "H4",
        "a worker keeps its database connection while the model speaks",
        "sessions_app/runner.py",
        "    with released(), flusher, watch.on_wake(stream.shutdown):\n",
        "    with flusher, watch.on_wake(stream.shutdown):\n",
        (FENCING + "test_no_connection_is_held_while_a_model_speaks",),
    ),
    Mutant(
        "H5",
        "tool calls stay without a result when their turn ends",
        ENDS,
        "    _answer_open_calls(session, turn)\n",
        "",
        (FENCING + "test_open_calls_are_answered_when_the_turn_ends",),
    ),
    Mutant(
        "H6",
        "a turn that kills its worker is handed back for ever",
        ENDS,
        "        put_back=turn.put_back + 1,\n",
        "",
        ("tests/faults/test_crashes.py::test_a_second_loss_interrupts",),
    ),
    Mutant(
        "H7",
        "a branch copies what was taken out of the context too",
        "sessions_app/intake/chats.py",
        "kept = Message.objects.filter(session=source, seq__lte=through).live()",
        "kept = Message.objects.filter(session=source, seq__lte=through)",
        ("tests/faults/test_resume.py::test_fork_determinism",),
    ),
    Mutant(
        "H8",
        "a change does not raise the session's version",
        "sessions_app/transcript/rows.py",
        "    session.version += 1\n",
        "",
        (FENCING + "test_every_change_that_people_see_raises_the_version",),
    ),
    Mutant(
        "H9",
        "text is shown before any of it is saved",
        "sessions_app/streaming.py",
        "saved_at, number, reasoned, reasoning_at = 0.0, self._first, 0, 0",
        "saved_at, number, reasoned, reasoning_at = began, self._first, 0, 0",
        (FENCING + "test_the_first_text_is_saved_before_it_is_shown",),
    ),
    Mutant(
        "H10",
        "two recoveries at once both end a lost turn",
        ENDS,
        "    if to is TurnStatus.INTERRUPTED and turn.status != TurnStatus.RUNNING:\n"
        "        return False  # another recovery has handed it back already\n",
        "",
        ("tests/faults/test_resume.py::test_recovery_determinism",),
    ),
    Mutant(
        "H11",
        "the next turn is looked for among all turns that the session ever had",
        "sessions_app/transcript/turns.py",
        "Turn.objects.filter(session_id=session_id, status__in=sorted(domain.OPEN_TURN))",
        'Turn.objects.filter(session_id=session_id).exclude(status="failed")'
        '.exclude(status="cancelled").exclude(status="interrupted").exclude(status="completed")',
        ("tests/benchmarks/test_smoke.py::test_no_length_makes_the_server_read_more",),
    ),
    Mutant(
        "H12",
        "a transaction whose COMMIT got no answer is run again without a question",
        "hermes/lib/db.py",
        "if sent.took_effect():",
        "if False:",
        ("tests/faults/test_crashes.py::test_a_result_is_stored_once",),
    ),
    Mutant(
        "M6",
        "news is delivered whatever a person has closed meanwhile",
        "processes_app/domain/judge.py",
        "    if is_closed or (facts.tip is not None and facts.tip.end is EndClass.USER):\n",
        "    if False:\n",
        (
            "tests/founding/test_completions.py"
            "::test_t3_nothing_is_injected_into_a_session_that_was_reset",
        ),
    ),
    Mutant(
        "M7",
        "news counts as delivered before its turn has started",
        "processes_app/verdicts.py",
        "if turn is not None and turn.started_at is not None:",
        "if turn is not None:",
        (VERDICTS + "test_a_turn_that_was_reset_before_it_started_is_judged_again",),
    ),
    Mutant(
        "P4",
        "a child is known by its pid alone",
        "processes_app/files.py",
        "return bool(self.start) and process_start(self.pid) == self.start",
        "return process_start(self.pid) is not None",
        ("tests/processes/test_supervisor.py::test_a_recycled_pid_is_not_signalled",),
    ),
    Mutant(
        "P1",
        "a result counts as taken although it never stood in the transcript",
        "processes_app/facts.py",
        "    if results.exists():\n",
        "    if True:\n",
        (VERDICTS + "test_take_only_for_an_ended_process_and_a_running_turn",),
    ),
    Mutant(
        "P2",
        "a second finisher writes an end and its news again",
        "processes_app/intake/processes.py",
        "    if not landed:\n        return False\n    _record(process, process.status, end.status",
        "    _record(process, process.status, end.status",
        ("tests/races/test_completions.py::test_end_and_end",),
    ),
    Mutant(
        "P3",
        "a process can start for a session that was reset meanwhile",
        "processes_app/intake/processes.py",
        "if session.ended_at is not None or row is None or row.fence_token != turn.run:",
        "if row is None:",
        ("tests/processes/test_intake.py::test_nothing_starts_for_a_turn_that_is_over",),
    ),
    Mutant(
        "P5",
        "what a report asks for counts as the person's wish",
        "processes_app/tools.py",
        "return newest == MessageKind.COMPLETION, outputs.exists()",
        "return False, outputs.exists()",
        (
            "tests/processes/test_tools.py"
            "::test_what_a_report_asks_for_needs_an_approval_whatever_was_allowed",
        ),
    ),
    Mutant(
        "P6",
        "the pieces of an output are redacted one by one",
        "processes_app/files.py",
        '            head, end = head + end, b""\n',
        "            return Output(self._shown(head) + self._shown(end), size, 0, is_text=True)\n",
        ("tests/processes/test_files.py::test_a_secret_on_the_edge_of_two_pieces_is_redacted",),
    ),
    Mutant(
        "P7",
        "a kill reaches the child's group only",
        "processes_app/shim.py",
        "        for pid in descendants():\n            with contextlib.suppress(OSError):\n"
        "                os.kill(pid, number)\n",
        "",
        ("tests/processes/test_supervisor.py::test_a_kill_takes_every_descendant",),
    ),
    Mutant(
        "P8",
        "nothing is asked again before a report starts",
        "processes_app/gate.py",
        "    if verdicts.is_wanted(turn.turn_id, turn.session_key):\n",
        "    if True:\n",
        (VERDICTS + "test_the_gate_drops_what_is_not",),
    ),
    Mutant(
        "P9",
        "a foreground command outlives its turn",
        "processes_app/intake/turns.py",
        "    if has_children:\n",
        "    if False:\n",
        ("tests/processes/test_receivers.py::test_what_belonged_to_the_turn_is_ended",),
    ),
    Mutant(
        "P10",
        "a dry run says what it would like to do, not what the table says",
        "processes_app/verdicts.py",
        "found |= {event.pk: domain.judge(ground.facts(event)) for event in events}",
        "found |= {event.pk: Deliver(event.origin_session) for event in events}",
        ("tests/admin/test_processes.py::TestRedeliver::test_the_same_table_judges_again",),
    ),
)


class Runs:
    """Runs of pytest in copies of the tree, on one pair of servers."""

    def __init__(self, folder: Path, servers: EmbeddedServers) -> None:
        self.folder = folder
        urls = servers.environment()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
            "HERMES_TEST_DATABASE_URL": urls["DATABASE_URL"],
            "HERMES_TEST_REDIS_URL": urls["REDIS_URL"],
        }

    def copy(self, name: str) -> Path:
        """A copy of the tree as it stands."""
        tree = self.folder / name
        shutil.copytree(env.BASE, tree, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
        return tree

    def pytest(self, tree: Path, tests: tuple[str, ...], *more: str) -> tuple[int, str]:
        """The exit code, and what was printed."""
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, *tests]
        done = subprocess.run(
            words, cwd=tree, env=self.environment, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout + done.stderr


def said(output: str) -> str:
    """The test that turned red first."""
    for line in output.splitlines():
        if line.startswith(("FAILED tests/", "ERROR tests/")):
            return line.split(" - ")[0].split("::", 1)[-1]
    return ""


def run(wanted: list[Mutant], *, show: bool = False) -> list[dict[str, Any]]:
    """Run each defect; what came of it."""
    folder = run_folder()
    servers = EmbeddedServers(folder, max_connections=100, for_tests=True)
    found = []
    try:
        servers.start()
        runs = Runs(folder, servers)
        control = runs.copy("control")
        everything = tuple(dict.fromkeys(test for mutant in wanted for test in mutant.tests))
        code, output = runs.pytest(control, everything)
        if code != GREEN:
            raise RuntimeError(f"without any defect the tests are not green:\n{output[-3000:]}")
        for mutant in wanted:
            began = time.monotonic()
            tree = runs.copy(mutant.id)
            mutant.apply(tree)
            code, output = runs.pytest(tree, mutant.tests, "-x")
            told = {
                "id": mutant.id,
                "what": mutant.what,
                "file": mutant.file,
                "tests": mutant.tests,
                "red": code == RED,
                "by": said(output) if code == RED else f"exit code {code}",
                "seconds": round(time.monotonic() - began, 1),
            }
            if show or code not in {RED, GREEN}:
                print(output[-3000:], file=sys.stderr)
            found.append(told)
            word = "red" if told["red"] else "SURVIVED"
            print(f"{mutant.id:4} {word:9} {told['by']}  ({mutant.what})", flush=True)
            shutil.rmtree(tree)
    finally:
        servers.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def page() -> str:
    """``tests/mutants.md``."""
    lines = [
        "# Seeded defects",
        "",
        "`python -m tests.mutants` puts each of these into a copy of the tree and runs the tests"
        " beside it there: they have to turn red. A defect that survives fails the run, and so does"
        " one whose text is not in the code any more. This page is printed by"
        " `python -m tests.mutants --page`; M-numbers are those of the design, H-numbers our own.",
        "",
        "| id | defect | in | seen by |",
        "|---|---|---|---|",
    ]
    for mutant in MUTANTS:
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in mutant.tests)
        lines.append(f"| {mutant.id} | {mutant.what} | `{mutant.file}` | {tests} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the defects that are named, or all; 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("ids", nargs="*", help="which; all if none is named")
    parser.add_argument("--page", action="store_true", help="write tests/mutants.md and end")
    parser.add_argument("--show", action="store_true", help="show what pytest prints")
    told = parser.parse_args()
    if told.page:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    wanted = [mutant for mutant in MUTANTS if not told.ids or mutant.id in told.ids]
    began = time.monotonic()
    found = run(wanted, show=told.show)
    red = sum(one["red"] for one in found)
    seconds = round(time.monotonic() - began, 1)
    print(f"mutants killed: {red} of {len(found)}, {seconds} s")
    FILE.parent.mkdir(exist_ok=True)
    about = {**surroundings(), "seconds": seconds, "mutants": found}
    FILE.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(red != len(found))


if __name__ == "__main__":
    sys.exit(main())
