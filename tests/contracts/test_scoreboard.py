"""The README's scoreboard is what the runs have printed; the page of defects is what is run."""

from __future__ import annotations

import pytest

from hermes import env
from tests import mutants, prove, scoreboard


def test_the_readme_shows_the_kept_figures() -> None:
    kept = scoreboard.read(scoreboard.KEPT)
    assert kept, "docs/scoreboard.json is missing: python -m tests.scoreboard"
    shown = scoreboard.block(scoreboard.README.read_text(encoding="utf-8"))
    assert shown == scoreboard.rendered(kept).strip()


def test_kept_figures_say_where_they_come_from() -> None:
    kept = scoreboard.read(scoreboard.KEPT)
    for part in ("proved", "measured"):
        assert all(kept[part][name] is not None for name in scoreboard.ABOUT), part
    assert kept["steps"]
    assert kept["figures"]


def test_every_step_can_be_run() -> None:
    for step in prove.STEPS:
        for word in step.words:
            if word.startswith("tests/"):
                path, _, name = word.partition("::")
                assert (env.BASE / path).exists(), step
                if name:
                    source = (env.BASE / path).read_text(encoding="utf-8")
                    assert f"def {name}(" in source, step


def test_defects_are_listed_and_their_text_is_in_the_code() -> None:
    assert mutants.PAGE.read_text(encoding="utf-8") == mutants.page()
    for mutant in mutants.MUTANTS:
        text = (env.BASE / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, mutant.id
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert (env.BASE / path).exists(), mutant.id
            if name:
                wanted = name.rpartition("::")[2]
                source = (env.BASE / path).read_text(encoding="utf-8")
                assert f"def {wanted}(" in source, mutant.id


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("\ncrash points passed: 12\ncrash points passed: 30\n", {"crash_points": 30}),
        ("interleavings explored so far: 310 {'a × b': 310}", {"interleavings": 310}),
        ("  web killed 3 times: 200 turns, 200 equal, 0 prefixes\n", {"kills": 3, "turns": 200}),
        ("resume: prefix continuation: 9 acknowledged, 6 kills, 0 lost", {"kills": 6}),
        ("storm: 2 people x 9 processes, 1 resets, 1 deletions, 5 kills ({})", {"kills": 5}),
        (
            "\n  two of each: 38 turns, 38 equal, 1 prefixes, 5 kills ({})",
            {"equal": 38, "kills": 5},
        ),
        ("mutants killed: 21 of 22, 9 s", {"mutants_killed": 21, "mutants": 22}),
    ],
)
def test_numbers_are_read_from_what_the_suites_print(output: str, expected: dict[str, int]) -> None:
    counts, lines = prove.read(output)
    assert expected.items() <= counts.items()
    assert lines


def test_steps_that_were_run_in_several_goes_count_as_one_each() -> None:
    step = {"name": "many", "what": "w", "command": "c", "counts": {}, "lines": []}
    runs = [
        {"commit": "a1", "steps": [{**step, "passed": False}, {**step, "name": "bench"}]},
        {"commit": "b2", "steps": [{**step, "passed": True}]},
    ]
    told = scoreboard.joined(runs)
    assert [(each["name"], each["of"]) for each in told["steps"]] == [
        ("many", "b2"),
        ("bench", "a1"),
    ]
    assert told["steps"][0]["passed"] is True
    assert told["commit"] == "a1`, `b2"
