"""Acks: who is behind, who is silent, and who is not judged."""

from __future__ import annotations

from hermes.web.limits import SILENT_SECONDS, UNACKED_BYTES, UNACKED_FRAMES, Unacked


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_client_that_never_acks_is_not_judged():
    clock = Clock()
    unacked = Unacked(clock)
    for n in range(10_000):
        unacked.sent(n, 10_000)
    clock.now = 1e6
    assert (unacked.is_behind, unacked.is_silent) == (False, False)


def test_one_that_acks_falls_behind_by_frames_or_bytes_and_catches_up():
    for count, size in ((UNACKED_FRAMES, 1), (4, UNACKED_BYTES // 4)):
        unacked = Unacked(Clock())
        unacked.acked(0)
        for n in range(1, count + 1):
            assert not unacked.is_behind
            unacked.sent(n, size)
        assert unacked.is_behind
        unacked.acked(count // 2 - 1)
        assert unacked.is_behind
        unacked.acked(count)
        assert not unacked.is_behind


def test_silence_counts_only_while_something_is_outstanding():
    clock = Clock()
    unacked = Unacked(clock)
    unacked.acked(0)
    clock.now = 500.0
    assert not unacked.is_silent
    unacked.sent(1, 10)
    clock.now += SILENT_SECONDS - 1
    assert not unacked.is_silent
    clock.now += 2
    assert unacked.is_silent
    unacked.acked(1)
    assert not unacked.is_silent
