"""Output of any shape as text: what it costs, and that nothing in it hides the rest."""

from __future__ import annotations

import time

import pytest

from processes_app import domain


@pytest.mark.parametrize("piece", ["a", "a b ", "a\r", "\x1b]x", "\x1b[1;", "\x1bP", "\r\r\n"])
def test_a_line_costs_what_it_is_long(piece):
    """A program may write a megabyte without one line end, and is no more work for it."""
    raw = piece * (1_000_000 // len(piece))
    began = time.monotonic()
    domain.readable(raw)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "opened", ["\x1b]0;title", "\x1bPq", "\x1b^x", "\x1b_x", "\x1b]8;;http://x"]
)
def test_a_string_that_is_never_closed_hides_no_later_line(opened):
    assert domain.readable(f"before\n{opened}\nthe rest\n") == "before\n\nthe rest\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("10%\r50%\r100%\n", "100%\n"),
        ("10%\r50%\r", "50%"),
        ("one\r\ntwo\r\r\n", "one\ntwo\n"),
        ("\x1b]0;title\x07text\x1b]8;;u\x1b\\link\x1b]8;;\x1b\\", "textlink"),
    ],
)
def test_lines_that_are_written_over(raw, shown):
    assert domain.readable(raw) == shown


def test_a_nul_among_words_is_shown_and_the_words_are_kept():
    raw = b"ab\0cd\none.txt\0two.txt\0"
    assert domain.is_text(raw)
    assert domain.readable(raw.decode()) == "ab\ufffdcd\none.txt\ufffdtwo.txt\ufffd"
