"""What a mount counts while it runs, for /metrics: plain numbers, cheap enough for every request."""

import errno
from bisect import bisect_left
from collections import Counter
from typing import Any

# Upper bounds in seconds: a small write takes some 50 us, a commit of a large save seconds.
BOUNDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
_ORDINARY = {errno.ENOENT, errno.ENODATA}  # answers, not failures


class Histogram:
    """How many observations fell under each of BOUNDS and above the one before, with the rest at the end."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Takes one more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def to_json(self) -> dict[str, Any]:
        """Counts and the sum of all observations in seconds."""
        return {"counts": self.counts, "seconds": self.total}


class Meters:
    """The counters of one mount."""

    def __init__(self) -> None:
        self.operations: dict[str, Histogram] = {}
        self.failures: Counter[tuple[str, str]] = Counter()
        self.commit_times = Histogram()
        self.failed_saves = 0
        self.restores = 0
        self.bytes_read = 0
        self.segment_hits = 0  # was there when it was asked for
        self.segment_waits = 0  # was on its way
        self.segment_misses = 0  # had to be fetched
        self.collections = 0
        self.failed_collections = 0
        self.collected_packs = 0
        self.collected_bytes = 0
        self.collection_seconds = 0.0

    def answered(self, operation: str, seconds: float) -> None:
        """One request of the kernel has its answer."""
        histogram = self.operations.get(operation)
        if histogram is None:
            histogram = self.operations[operation] = Histogram()
        histogram.observe(seconds)

    def failed(self, operation: str, code: int) -> None:
        """A request was answered with this errno."""
        if code not in _ORDINARY:
            self.failures[operation, errno.errorcode.get(code, str(code))] += 1

    def to_json(self) -> dict[str, Any]:
        """All of it, by the names above; failures as (operation, name of the errno, count)."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, int | float)}
        return {
            **plain,
            "bounds": BOUNDS,
            "operations": {name: each.to_json() for name, each in self.operations.items()},
            "failures": [[*key, count] for key, count in self.failures.items()],
            "commit_times": self.commit_times.to_json(),
        }
