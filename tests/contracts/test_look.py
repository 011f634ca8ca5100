"""The tokens: the dark values stand twice and agree, and every text can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSS = Path(__file__).resolve().parents[2] / "static" / "css"
_VALUE = re.compile(r"(--[\w-]+)\s*:\s*([^;]+);")


def _blocks(name: str) -> dict[str, dict[str, str]]:
    text = re.sub(r"/\*.*?\*/", "", (CSS / name).read_text(), flags=re.DOTALL)
    found = {}
    for label, opening in (
        ("light", r":root\s*\{"),
        ("dark", r':root\[data-theme="dark"\]\s*\{'),
        ("system", r":root:not\(\[data-theme\]\)\s*\{"),
    ):
        start = re.search(opening, text)
        assert start is not None, (name, label)
        body = text[start.end() : text.index("}", start.end())]
        found[label] = {key: " ".join(value.split()) for key, value in _VALUE.findall(body)}
    return found


@pytest.mark.parametrize("name", ["tokens.css", "chat.css"])
def test_the_dark_values_stand_twice_in_step(name: str):
    blocks = _blocks(name)

    assert blocks["dark"] == blocks["system"]
    assert len(blocks["dark"]) > 8


def _tokens(theme: str) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for name in ("tokens.css", "chat.css"):
        blocks = _blocks(name)
        tokens |= blocks["light"]
        if theme == "dark":
            tokens |= blocks["dark"]
    return tokens


def _light(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """How far apart two colours are, as WCAG counts it."""
    lights = sorted((_light(_full(one)), _light(_full(other))))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _full(colour: str) -> str:
    return colour if len(colour) == 7 else "#" + "".join(sign * 2 for sign in colour[1:])


GROUNDS = ["--bg", "--surface", "--sunken", "--raised"]
PAIRS = [
    *((ink, ground) for ink in ("--ink", "--ink-2", "--ink-3") for ground in GROUNDS),
    *(("--ink-3", ground) for ground in ("--hover", "--press", "--code-bg", "--bubble")),
    *(("--ink-2", f"--{kind}-soft") for kind in ("warn", "bad", "info", "ok", "accent")),
    *((f"--{kind}", f"--{kind}-soft") for kind in ("warn", "bad", "info", "ok", "accent")),
    *(("--accent", ground) for ground in GROUNDS),
    ("--accent-ink", "--accent"),
    ("--bad", "--surface"),
    ("--warn", "--sunken"),
    *((f"--syn-{kind}", "--code-bg") for kind in ("kw", "str", "num", "com", "fn", "name")),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_on_its_ground(theme: str):
    tokens = _tokens(theme)
    weak = {
        (ink, ground): round(contrast(tokens[ink], tokens[ground]), 2)
        for ink, ground in PAIRS
        if contrast(tokens[ink], tokens[ground]) < 4.5
    }

    assert weak == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_fields_and_focus_stand_out(theme: str):
    tokens = _tokens(theme)
    for edge in ("--line-field", "--focus"):
        for ground in GROUNDS:
            assert contrast(tokens[edge], tokens[ground]) >= 3, (edge, ground)


def test_the_measure_itself():
    assert round(contrast("#000", "#fff")) == 21


def test_nothing_of_the_sheet_of_states_is_left():
    text = (CSS / "chat.css").read_text()

    assert not re.search(r"\.is-(hover|active|focus)\b|\.spec|\.sheet", text)


def test_scripts_and_templates_hold_no_inline_style():
    root = CSS.parents[1]
    for template in (root / "templates").rglob("*.html"):
        text = template.read_text()
        assert not re.search(r'\sstyle="|<style|\son\w+="|<script>', text), template
