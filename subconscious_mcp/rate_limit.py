"""How often somebody may ask: token buckets, one for each who asks."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MAX_KEYS = 10_000
"""Buckets that are kept. The one that was used longest ago goes first, and it is mostly full again by then."""


class RateLimit:
    """Lets each key do so much a minute, and as much at once. Not safe for several threads.

    Args:
        per_minute: How often a key may; 0 for as often as it likes.
        clock: Returns seconds that only grow.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def take(self, key: str) -> float:
        """Takes one from the bucket of a key.

        Returns:
            0 where there was one; else in how many seconds there will be.
        """
        if not self._most:
            return 0.0
        now = self._clock()
        left, since = self._buckets.pop(key, (self._most, now))
        left = min(self._most, left + (now - since) * self._most / 60)
        allowed = left >= 1
        self._buckets[key] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) * 60 / self._most
