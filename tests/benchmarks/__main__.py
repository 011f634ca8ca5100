"""Measure and print: ``python -m tests.benchmarks`` (``make bench``).

Everything is measured in turn in one run, on servers of its own. The table goes to standard output,
the same as JSON to ``build/bench.json``. The exit code is 0 whether or not targets are met: times
are told, not enforced; ``--strict`` enforces them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable

from hermes import env

from .figures import Figure, surroundings, table
from .ground import Ground, standing

FILE = env.BASE / "build" / "bench.json"
GROUPS = ("costs", "lengths", "streams", "folding", "reports")


def say(text: str) -> None:
    """Tell how far it is, beside the table."""
    print(f"  {text}", file=sys.stderr, flush=True)


def measure(ground: Ground, only: set[str], *, quick: bool) -> list[Figure]:
    """All figures of these groups."""
    from . import costs, folding, lengths, reports, streams

    flow, folds, sizes = streams.Flow(), folding.Folds(), lengths.Lengths()
    ends = reports.Reports()
    if quick:
        flow = streams.Flow(tokens=100, rounds=3, firsts=10, crowd_tokens=50)
        folds = folding.Folds(rounds=3, repeats=1, held=1)
        ends = reports.Reports(exits=6, unhinted=3, rounds=2, repeats=1)
        sizes = lengths.Lengths(long=10_000, rounds=3, repeats=5)
    parts: list[tuple[str, Callable[[], list[Figure]]]] = [
        ("costs", costs.figures),
        ("lengths", lambda: lengths.figures(sizes)),
    ]
    if only & {"streams", "folding", "reports"}:
        own = {
            "HERMES_TURN_HOLD_SECONDS": str(folds.hold),
            "HERMES_PROCESSES_A_PERSON": "1000",
            "HERMES_PROCESSES_IN_ALL": "1000",
        }
        product = streams.start(ground, small=folding.SMALL, **own)
        parts += [
            ("streams", lambda: streams.figures(product, flow, say)),
            ("folding", lambda: folding.figures(product, folds)),
            ("reports", lambda: reports.figures(product, ends)),
        ]
    found = []
    for name, part in parts:
        if name in only:
            say(f"{name} …")
            found += part()
    return found


def main() -> int:
    """Measure, print, write; 1 only where ``--strict`` is asked for and a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help="comma-separated: %(default)s")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    told = parser.parse_args()
    only = set(told.only.split(","))
    if unknown := only - set(GROUPS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    random.seed(told.seed)
    began = time.monotonic()
    with standing() as ground:
        found = measure(ground, only, quick=told.quick)
    about = {
        **surroundings(),
        "seed": told.seed,
        "quick": told.quick,
        "seconds": round(time.monotonic() - began, 1),
    }
    print("  ".join(f"{name} {value}" for name, value in about.items()))
    print(table(found))
    for figure in found:
        if named := figure.detail.get("named"):
            print(f"\n{figure.what}:", *named, sep="\n  ")
    FILE.parent.mkdir(exist_ok=True)
    told_all = {**about, "figures": [figure.as_json() for figure in found]}
    FILE.write_text(json.dumps(told_all, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(told.strict and not all(figure.is_met for figure in found))


if __name__ == "__main__":
    sys.exit(main())
