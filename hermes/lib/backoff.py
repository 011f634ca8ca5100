"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable


def backoff(
    attempt: int,
    *,
    base: float = 1.0,
    cap: float = 60.0,
    jitter: float = 0.5,
    chance: Callable[[], float] = random.random,
) -> float:
    """Seconds to wait after the ``attempt``-th failure, which counts from 1.

    The wait doubles with every failure up to ``cap``. Of it, the share ``jitter`` is left to
    chance, downwards, so that those who failed together do not come again together.

    >>> [backoff(n, jitter=0) for n in (1, 2, 3, 7, 5000)]
    [1.0, 2.0, 4.0, 60.0, 60.0]
    >>> backoff(3, chance=lambda: 1.0)
    2.0
    """
    # The exponent is bounded: two to the power of a large number is no float.
    wait = min(cap, base * 2.0 ** min(max(attempt, 1) - 1, 60))
    return wait * (1.0 - jitter * chance())
