"""Output as text: whole characters, whole secrets, and gaps that show neither half of one."""

from __future__ import annotations

import pytest

from hermes.lib.redaction import live
from processes_app import shim
from processes_app.files import RECENT, SECRET_MOST, Folder

KEEP = 4000
SECRET = "canary-secret-value-0123456789"


@pytest.fixture
def write(tmp_path):
    live.add(SECRET)

    def written(*parts: bytes) -> Folder:
        log = shim.Log(str(tmp_path), KEEP)
        for part in parts:
            log.write(part)
        return Folder(tmp_path)

    return written


@pytest.mark.parametrize("before", range(KEEP // 2 - 40, KEEP // 2 + 2))
def test_a_secret_on_the_edge_of_two_pieces_is_redacted(write, before):
    output = write(b"x" * before, f" {SECRET}\n".encode()).output()

    assert output.text == f"{'x' * before} [redacted]\n"
    assert output.left_out == 0


@pytest.mark.parametrize("before", range(KEEP // 2 - 4, KEEP // 2 + 1))
def test_a_character_on_the_edge_stays_whole(write, before):
    assert write(b"x" * before, "\u20ac\U0001f600\n".encode()).output().text == (
        f"{'x' * before}\u20ac\U0001f600\n"
    )


@pytest.mark.parametrize("size", range(30, 90, 7))
@pytest.mark.parametrize("has_lines", [True, False])
def test_beside_a_gap_there_is_no_half_of_a_secret(write, size, has_lines):
    """Secrets are written all the way, so that one lies on every edge."""
    filler = "." * (size - 1) + ("\n" if has_lines else " ")
    raw = f"{SECRET}{filler}".encode() * 1000
    output = write(*(raw[at : at + 777] for at in range(0, len(raw), 777))).output()

    assert "canary" not in output.text
    assert "0123456789" not in output.text
    assert "bytes not kept" in output.text
    assert output.size == len(raw)
    kept = len(output.text.encode())
    assert kept < KEEP + 100


def test_the_end_of_a_long_line_is_shown_from_further_in(write):
    recent = write(b"a" * (RECENT * 3)).recent()
    assert set(recent) <= {"a"}
    assert len(recent) <= KEEP // 2 - SECRET_MOST


def test_sizes_are_those_of_what_was_written(write):
    for parts in ((b"",), (b"one\n",), (b"x" * 5000,), (b"line\n" * 3000,)):
        folder = write(*parts)
        assert folder.output().size == folder.size() == sum(map(len, parts))
        for path in folder.path.glob("log*"):
            path.unlink()
