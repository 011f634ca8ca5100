"""Frames are read strictly, and whatever comes, reading never raises."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from hermes.web import frames, shapes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "frames.md").read_text()
GOOD = {
    "turn.submit": {"id": "a", "text": "hi"},
    "turn.stop": {},
    "turn.continue": {"id": "a"},
    "turn.regenerate": {"id": "a", "turn": 3},
    "turn.edit": {"id": "a", "turn": 3, "text": "x"},
    "turn.rewind": {},
    "rewind.undo": {"rewind": 1},
    "queue.edit": {"turn": 1, "text": "x"},
    "queue.delete": {"turn": 1},
    "queue.promote": {"turn": 1},
    "session.new": {"id": "a"},
    "chat.branch": {"session": 1, "seq": 2, "id": "a"},
    "compaction.request": {},
    "compaction.preview": {},
    "compaction.cancel": {},
    "summary.undo": {"summary": 1},
    "read": {"session": 1, "seq": 2},
    "ack": {"n": 1},
    "ping": {"nonce": "a"},
}
ODD = [
    None,
    True,
    -1,
    1.5,
    2**63,
    10**400,
    "",
    "x" * 65,
    "\x00",
    "\ud800",
    [],
    {},
    [[[[1]]]],
    {"type": "ping"},
    "é" * 64,
    [{}] * 3,
]


@pytest.mark.parametrize("kind", GOOD)
def test_every_command_is_read(kind):
    parsed = frames.parse(json.dumps({"type": kind, "ref": "r", **GOOD[kind]}))

    assert type(parsed) is frames.COMMANDS[kind]
    assert parsed.ref == "r"
    assert all(getattr(parsed, name) == value for name, value in GOOD[kind].items())


@pytest.mark.parametrize("kind", GOOD)
def test_what_is_missing_is_named(kind):
    for name in GOOD[kind]:
        if kind == "turn.regenerate" and name == "turn":
            continue
        left = {key: value for key, value in GOOD[kind].items() if key != name}
        parsed = frames.parse(json.dumps({"type": kind, **left}))
        assert isinstance(parsed, frames.Bad)
        assert name in parsed.message


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "malformed"),
        ("", "malformed"),
        ("nope", "malformed"),
        ("[]", "malformed"),
        ("{" * 100_000, "malformed"),
        ("[" * 100_000, "malformed"),
        ('{"type": "turn.stop", "x": ' + "[" * 30 + "]" * 30 + "}", "malformed"),
        ('{"type": NaN}', "malformed"),
        ('{"type": "turn.unknown"}', "unknown_type"),
        ('{"type": ["turn.stop"]}', "unknown_type"),
        ('{"type": "__class__"}', "unknown_type"),
        ('{"type": "ack", "n": true}', "malformed"),
        ('{"type": "ack", "n": 1.0}', "malformed"),
        ('{"type": "ack", "n": ' + "9" * 5000 + "}", "malformed"),
        ('{"type": "turn.stop", "chat": "other"}', "mismatch"),
        ('{"type": "turn.stop", "session": 8}', "mismatch"),
        ('{"type": "turn.stop", "ref": 5}', "malformed"),
        ('{"type": "turn.submit", "id": "a\\u0000", "text": "x"}', "malformed"),
    ],
)
def test_bad_frames_are_told_why(content, code):
    parsed = frames.parse(content, chat="mine", session=7)

    assert isinstance(parsed, frames.Bad)
    assert (parsed.code, bool(parsed.message)) == (code, True)


def test_a_frame_for_this_chat_and_session_passes():
    content = '{"type": "turn.stop", "chat": "mine", "session": 7}'
    assert frames.parse(content, chat="mine", session=7) == frames.Stop()


def test_what_no_database_holds_is_shown_as_a_replacement():
    parsed = frames.parse('{"type": "turn.submit", "id": "a", "text": "a\\u0000b\\ud83dc"}')
    assert parsed == frames.Submit(None, "a", "a\ufffdb\ufffdc")


def test_whole_surrogate_pairs_are_one_sign():
    parsed = frames.parse('{"type": "turn.submit", "id": "a", "text": "\\ud83d\\ude00"}')
    assert parsed == frames.Submit(None, "a", "😀")


def test_what_a_summary_is_asked_with_is_optional():
    asked = '{"type": "compaction.request", "focus": "f", "summary": "s", "preview": 3}'
    assert frames.parse(asked) == frames.Compact(None, "f", "s", 3)
    assert frames.parse('{"type": "compaction.request", "preview": "3"}').code == "malformed"
    assert frames.parse('{"type": "summary.undo", "summary": "3"}').code == "malformed"


def test_mutated_frames_never_raise():
    seeded = random.Random(11)
    for _ in range(5_000):
        kind = seeded.choice(list(GOOD))
        frame = {"type": kind, **GOOD[kind], "ref": "r"}
        for _ in range(seeded.randint(1, 3)):
            match seeded.randint(0, 3):
                case 0:
                    frame[seeded.choice(list(frame))] = seeded.choice(ODD)
                case 1:
                    frame.pop(seeded.choice(list(frame)), None)
                    frame.setdefault("type", kind)
                case 2:
                    frame[seeded.choice(["chat", "session", "n", "x"])] = seeded.choice(ODD)
                case _:
                    frame["type"] = seeded.choice([*GOOD, "", "turn", None])
        with_limit = sys.get_int_max_str_digits()
        assert with_limit
        text = json.dumps(frame)
        if seeded.random() < 0.3:
            at = seeded.randrange(len(text))
            text = text[:at] + seeded.choice('{}[]",:\\ \x00') + text[at + seeded.randint(0, 2) :]
        parsed = frames.parse(text, chat="c", session=1)
        assert isinstance(parsed, frames.Command)
        json.dumps([getattr(parsed, each.name) for each in fields(parsed)]).encode()


def section(title: str) -> dict[str, str]:
    """Rows of a table of the page: the names in the first column, the text of the second."""
    part = PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    found = {}
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = cells[1]
    return found


def test_the_page_has_every_command_and_its_fields():
    told = section("From the client")
    assert set(told) == set(frames.COMMANDS)
    for kind, known in frames.COMMANDS.items():
        names = {each.name for each in fields(known) if each.name != "ref"}
        assert {name.rstrip("?") for name in re.findall(r"`([^`]+)`", told[kind])} == names, kind


def test_the_page_has_every_frame_and_its_fields():
    told = section("From the server")
    assert set(told) == set(shapes.TOLD)
    for kind, shape in shapes.TOLD.items():
        if "everything that `hello` has" in told[kind]:
            continue
        said = set(re.findall(r"[a-z_]+", re.sub(r"\{[^}]*\}", "", told[kind])))
        said |= set(re.findall(r"[a-z_]+", told[kind]))
        known = set(get_type_hints(shape)) - {"type", "n", "messages", "html"}
        if kind.startswith("turn.") and shape is shapes.TurnEnd:
            known = {"turn", "run", "len"}
        assert known <= said, (kind, known - said)


def test_the_page_has_every_error():
    from hermes.web.answering import TaskCode
    from sessions_app.domain import Code

    told = set()
    for names in section("Codes of `error`"):
        told.add(names)
    used = {str(code) for code in (*Code, *TaskCode)}
    used |= {"malformed", "unknown_type", "mismatch", "rate", "unavailable", "internal"}
    assert told == used
