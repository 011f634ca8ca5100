"""The scoreboard of the README, from what the suites have printed: ``python -m tests.scoreboard``.

Reads ``build/prove.json`` and ``build/bench.json``, keeps the figures with commit, cores and date
in ``docs/scoreboard.json``, and writes them between the marks of the README. Where the steps were
run in several goes, name the files of all: a later one counts for the steps that it has.
``--render`` only writes the README anew from the kept figures. A contract test holds the two
together.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hermes import env

from . import prove
from .benchmarks.__main__ import FILE as BENCH

KEPT = env.BASE / "docs" / "scoreboard.json"
README = env.BASE / "README.md"
BEGIN, END = "<!-- scoreboard -->", "<!-- /scoreboard -->"
ABOUT = ("commit", "cores", "date", "seed")


def read(path: Path) -> dict[str, Any]:
    """A file that a run has written; empty if there was none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several goes as one: the steps of all, and every commit that was proved."""
    steps = {step["name"]: {**step, "of": run["commit"]} for run in runs for step in run["steps"]}
    order = {step.name: number for number, step in enumerate(prove.STEPS)}
    found = sorted(steps.values(), key=lambda step: order[step["name"]])
    commits = dict.fromkeys(run["commit"] for run in runs)
    used = [commit for commit in commits if any(step["of"] == commit for step in found)]
    return {**runs[-1], "commit": "`, `".join(used), "steps": found}


def gathered(proved: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a run of both."""
    steps = {
        step["name"]: {
            "what": step["what"],
            "command": step["command"],
            "passed": step["passed"],
            "counts": step["counts"],
            "lines": [line for line in step["lines"] if not line.startswith("missed")],
        }
        for step in proved.get("steps", ())
    }
    figures = [
        {name: one[name] for name in ("id", "what", "value", "unit", "p95", "target", "met")}
        for one in measured.get("figures", ())
    ]
    return {
        "proved": {name: proved.get(name) for name in (*ABOUT, "size")},
        "steps": steps,
        "measured": {name: measured.get(name) for name in (*ABOUT, "quick")},
        "figures": figures,
    }


def counts(kept: dict[str, Any]) -> dict[str, int]:
    """The counts of all steps together."""
    total: dict[str, int] = {}
    for step in kept["steps"].values():
        for name, value in step["counts"].items():
            total[name] = total.get(name, 0) + value
    return total


def said(step: dict[str, Any], property_name: str) -> str:
    """What a test of the properties of resuming has printed."""
    begin = f"resume: {property_name}: "
    found = [line.removeprefix(begin) for line in step["lines"] if line.startswith(begin)]
    return "; ".join(line.replace("|", "/") for line in found)


def about(told: dict[str, Any]) -> str:
    """Where figures come from."""
    return f"commit `{told['commit']}`, {told['cores']} cores, {told['date']}, seed {told['seed']}"


PROPERTIES = (
    "prefix continuation",
    "effect exactly-once",
    "fork determinism",
    "checkpoint validity",
    "consume-once",
    "recovery determinism",
)


def rendered(kept: dict[str, Any]) -> str:
    """The block of the README."""
    total, steps = counts(kept), kept["steps"]
    passed = sum(step["passed"] for step in steps.values())
    size = kept["proved"]["size"]
    lines = [
        f"`make prove`: {passed} of {len(steps)} steps passed at {size} size "
        f"({about(kept['proved'])}).",
        "",
        "| what | came to |",
        "|---|---|",
    ]
    known = [
        ("turns through the product, byte-equal", "equal", "turns"),
        ("crash points passed", "crash_points", None),
        ("COMMITs whose answer was lost", "answers", None),
        ("interleavings explored", "interleavings", None),
        ("SIGKILLs survived", "kills", None),
        ("seeded defects killed", "mutants_killed", "mutants"),
    ]
    for what, name, of in known:
        if name in total:
            value = f"{total[name]:,}" + (f" of {total[of]:,}" if of else "")
            lines.append(f"| {what} | {value} |")
    if "resume" in steps:
        lines += ["", "| property of “Resume Means Resume” (arXiv:2608.03836) | came to |"]
        lines += ["|---|---|"]
        lines += [
            f"| {name} | {said(steps['resume'], name) or 'not shown yet'} |" for name in PROPERTIES
        ]
    if kept["figures"]:
        size = "small sizes" if kept["measured"]["quick"] else "full sizes"
        lines += ["", f"`make bench`, {size} ({about(kept['measured'])}):", ""]
        lines += ["| figure | value | p95 | target |", "|---|---|---|---|"]
        for one in kept["figures"]:
            p95 = "" if one["p95"] is None else f"{one['p95']:g}"
            mark = "" if one["met"] else " **missed**"
            value = f"{one['value']:g} {one['unit']}".strip()
            lines.append(f"| {one['what']} | {value}{mark} | {p95} | ≤ {one['target']:g} |")
    return "\n".join(lines)


def block(text: str) -> str:
    """What stands between the marks of a page."""
    return text.split(BEGIN)[1].split(END)[0].strip()


def written(text: str, kept: dict[str, Any]) -> str:
    """The page with these figures between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{rendered(kept)}\n{END}{after}"


def main() -> int:
    """Keep the figures of the last runs, and write the README."""
    parser = argparse.ArgumentParser(prog="python -m tests.scoreboard", description=__doc__)
    parser.add_argument("--render", action="store_true", help="from the kept figures only")
    parser.add_argument("files", nargs="*", type=Path, default=[prove.FILE], help="of make prove")
    told = parser.parse_args()
    if not told.render:
        runs, measured = [read(file) for file in told.files], read(BENCH)
        if not all(runs):
            parser.error("there is no build/prove.json: run make prove first")
        text = json.dumps(gathered(joined(runs), measured), indent=1, ensure_ascii=False)
        KEPT.write_text(text + "\n", encoding="utf-8")
    page = README.read_text(encoding="utf-8")
    README.write_text(written(page, read(KEPT)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
