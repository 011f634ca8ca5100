"""The full sizes of what this project claims: ``python -m tests.prove`` (``make prove``).

Each step is a command of its own, on servers of its own; its numbers are what the suites print. One
table comes at the end, and the same as ``build/prove.json``. The exit code is 0 if every step
passed; missed targets of benchmarks are told in the table and do not fail it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hermes import env

from .benchmarks.figures import surroundings

FILE = env.BASE / "build" / "prove.json"
BENCH = env.BASE / "build" / "bench.json"


@dataclass(frozen=True)
class Step:
    """Something that is claimed, and the command that shows it."""

    name: str
    what: str
    words: tuple[str, ...]  # after ``python -m``

    @property
    def command(self) -> str:
        return " ".join(("python", "-m", *self.words))


def suite(name: str, what: str, *tests: str) -> Step:
    """A step that is a part of the suite at its full size."""
    return Step(name, what, ("pytest", "-q", "-s", "--timeout=3600", *tests))


EXACT = "tests/socket/test_exact.py::test_"
STEPS = (
    suite(
        "hints",
        "answers byte-equal with 0, 50 and 100 % of hints lost",
        EXACT + "hints_are_lost_doubled_and_late",
    ),
    suite("flapping", "… while clients flap", EXACT + "clients_flap"),
    suite(
        "web",
        "… while the web is killed -9 three times",
        EXACT + "the_web_process_is_killed",
    ),
    suite(
        "worker",
        "… while the worker is killed -9 three times",
        EXACT + "the_worker_is_killed",
    ),
    suite("many", "200 sockets, opened ten times, on one pool", "tests/socket/test_many.py"),
    suite(
        "crash",
        "a crash at every statement",
        "tests/faults/test_crashes.py",
        "tests/faults/test_completion_crashes.py",
    ),
    suite("races", "all orders with at most two preemptions", "tests/races"),
    suite(
        "fences",
        "each guard of fence and lease",
        "tests/faults/test_fencing.py",
        "tests/socket/test_subscribing.py",
    ),
    suite(
        "resume",
        "the properties of resuming",
        "tests/faults/test_resume.py",
        "tests/processes/test_effects.py",
    ),
    suite("compaction", "holds, late adoption, failures", "tests/compression"),
    suite(
        "founding",
        "completions at the session boundary",
        "tests/founding/test_completions.py",
        "tests/founding/test_completions_whole.py",
        "tests/processes/test_judge.py",
        "tests/processes/test_verdicts.py",
    ),
    suite(
        "storm",
        "processes without end, resets, kills: each end told once",
        "tests/processes/test_storm.py",
    ),
    suite(
        "two",
        "two webs and two workers a queue as deploy/ starts them; one of each is killed",
        "tests/ops/test_two_of_each.py",
    ),
    suite(
        "children",
        "ends, kills, endless output; what each sandbox refuses",
        "tests/processes/test_supervisor.py",
        "tests/processes/test_files.py",
        "tests/processes/test_sandbox.py",
    ),
    suite(
        "bad-input",
        "what bad input and bad models come to",
        "tests/flows/test_answers.py",
        "tests/socket/test_doors.py",
        "tests/web/test_pages.py",
    ),
    suite(
        "desk",
        "every page at 1,000 and 1,000,000 messages; 10,000 redelivered",
        "tests/dashboard/test_sizes.py",
        "tests/dashboard/test_desk.py",
    ),
    Step("walks", "an operator mends three planted faults, timed", ("tests.walks",)),
    Step("mutants", "seeded defects turn red", ("tests.mutants",)),
    Step("bench", "ratios and counts", ("tests.benchmarks",)),
)

# What the suites print, and under which name the scoreboard keeps it.
COUNTS = {
    "crash_points": re.compile(r"crash points passed(?: so far)?: (\d+)"),
    "answers": re.compile(r"COMMITs without an answer(?: so far)?: (\d+)"),
    "interleavings": re.compile(r"interleavings explored(?: so far)?: (\d+)"),
    "mutants_killed": re.compile(r"mutants killed: (\d+) of \d+"),
    "mutants": re.compile(r"mutants killed: \d+ of (\d+)"),
}
LINES = (
    re.compile(r"^  (.+: \d+ turns, .+)$", re.M),
    re.compile(
        r"^(?:resume|crash points|interleavings|mutants|storm|exits|deliverers|output|sandbox|desk)"
        r"[^\n]*: .+$",
        re.M,
    ),
    re.compile(r"^X\d\d .+$", re.M),
    re.compile(r"^\d+ (?:passed|failed).*$", re.M),
)
KILLS = re.compile(r"(?:killed (\d+) times|, (\d+) kills)")
EQUAL = re.compile(r"(\d+) turns, (\d+) equal")


@dataclass
class Shown:
    """What a step came to."""

    name: str
    what: str
    command: str
    passed: bool
    result: str
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def read(output: str) -> tuple[dict[str, int], list[str]]:
    """The numbers and the telling lines of what a suite has printed."""
    counts = {}
    for name, pattern in COUNTS.items():
        if found := pattern.findall(output):
            counts[name] = max(map(int, found))  # each module prints the total so far
    lines = [line.strip() for pattern in LINES for line in pattern.findall(output)]
    if kills := [int(one or other) for one, other in KILLS.findall(output)]:
        counts["kills"] = sum(kills)
    if turns := EQUAL.findall(output):
        counts["turns"] = sum(int(all_of) for all_of, _ in turns)
        counts["equal"] = sum(int(equal) for _, equal in turns)
    return counts, lines


def run(step: Step, seed: int, size: str) -> Shown:
    """Run a step; its output goes to a file in ``build``."""
    began = time.monotonic()
    log = FILE.parent / f"prove-{step.name}.log"
    log.parent.mkdir(exist_ok=True)
    words: list[str] = [sys.executable, "-m", *step.words]
    if step.name == "bench":
        words += ["--seed", str(seed), *(["--quick"] if size != "full" else [])]
    surroundings_of = {**os.environ, "HERMES_TEST_SIZE": size, "HERMES_TEST_SEED": str(seed)}
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(
            words, cwd=env.BASE, env=surroundings_of, stdout=out, stderr=subprocess.STDOUT
        ).returncode
    counts, lines = read(log.read_text(encoding="utf-8", errors="replace"))
    result = "; ".join(lines) or f"exit code {code}"
    if step.name == "bench" and code == 0:
        figures = json.loads(BENCH.read_text(encoding="utf-8"))["figures"]
        missed = [one["what"] for one in figures if not one["met"]]
        result = f"{len(figures) - len(missed)} of {len(figures)} within their targets"
        lines = [f"missed: {what}" for what in missed]
    passed, seconds = code == 0, round(time.monotonic() - began, 1)
    return Shown(step.name, step.what, step.command, passed, result, seconds, counts, lines)


def table(about: dict[str, Any], shown: Sequence[Shown]) -> str:
    """The one table."""
    told = f"seed {about['seed']}, commit {about['commit']}, {about['cores']} cores"
    lines = [f"{told}, size {about['size']}, {about['date']}", ""]
    for one in shown:
        word = "passed" if one.passed else "FAILED"
        lines.append(f"{one.name:11} {word}  {one.seconds:7.1f} s  {one.what}")
        lines.append(f"{'':11} {one.command}")
        lines += [f"{'':11}   {line}" for line in (one.lines or [one.result])]
    failed = [one.name for one in shown if not one.passed]
    lines += ["", f"FAILED: {', '.join(failed)}" if failed else "every step passed"]
    return "\n".join(lines)


def main() -> int:
    """Run the steps, print the table; 1 if one failed."""
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--only", default=",".join(names), help="comma-separated: %(default)s")
    parser.add_argument("--smoke", action="store_true", help="the sizes of the suite instead")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    told = parser.parse_args()
    if unknown := set(told.only.split(",")) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    size = "smoke" if told.smoke else "full"
    about = {**surroundings(), "seed": told.seed, "size": size}
    shown = []
    for step in STEPS:
        if step.name in told.only.split(","):
            print(f"  {step.name}: {step.command} …", file=sys.stderr, flush=True)
            shown.append(run(step, told.seed, size))
    print(table(about, shown))
    kept = {**about, "steps": [asdict(one) for one in shown]}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(not all(one.passed for one in shown))


if __name__ == "__main__":
    sys.exit(main())
