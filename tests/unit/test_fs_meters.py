"""What a mount counts, and the last lines of its log."""

import errno
import logging

import pytest

from kvtool.fs.logring import LogRing
from kvtool.fs.meters import BOUNDS, Histogram, Meters


def test_a_histogram_has_every_observation_once() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] * 2):
        histogram.observe(seconds)
    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-2:] == [1, 1]
    assert sum(histogram.counts) == 5
    assert histogram.total == pytest.approx(2.01 * BOUNDS[0] + 3 * BOUNDS[-1])


def test_a_name_that_is_not_there_is_no_failure() -> None:
    meters = Meters()
    for code in (errno.ENOENT, errno.ENODATA, errno.EIO, errno.EIO, 9999):
        meters.failed("open", code)
    assert sorted(meters.to_json()["failures"]) == [["open", "9999", 1], ["open", "EIO", 2]]


def test_what_was_answered_is_counted_by_operation() -> None:
    meters = Meters()
    for operation in ("read", "read", "write"):
        meters.answered(operation, 0.5)
    found = meters.to_json()
    assert {name: sum(each["counts"]) for name, each in found["operations"].items()} == {
        "read": 2,
        "write": 1,
    }
    assert len(found["commit_times"]["counts"]) == len(found["bounds"]) + 1


@pytest.fixture
def ring() -> LogRing:
    return LogRing(lines=3)


def say(ring: LogRing, level: int, text: str, *, at: float = 0.0) -> None:
    record = logging.LogRecord("kvtool.x", level, __file__, 1, text, (), None)
    record.created = at
    ring.handle(record)


def texts(
    ring: LogRing, level: str = "debug", since: float = 0.0, after: int = 0, limit: int = 10
) -> list[str]:
    return [
        line["message"] for line in ring.read(level=level, since=since, after=after, limit=limit)["lines"]
    ]


def test_the_ring_keeps_the_newest_lines_and_says_what_is_lost(ring: LogRing) -> None:
    assert ring.read(level="debug", since=0, after=0, limit=9)["lines"] == []
    for number in range(5):
        say(ring, logging.INFO, f"{number}")
    found = ring.read(level="debug", since=0, after=0, limit=9)
    assert [line["number"] for line in found["lines"]] == [3, 4, 5]
    assert (found["last"], found["lost"]) == (5, 2)
    assert ring.read(level="debug", since=0, after=3, limit=9)["lost"] == 0
    assert texts(ring, after=4) == ["4"]
    assert texts(ring, limit=2) == ["3", "4"]
    assert ring.counts == {"info": 5}


def test_the_ring_is_read_by_level_and_time(ring: LogRing) -> None:
    say(ring, logging.DEBUG, "d", at=10)
    say(ring, logging.WARNING, "w", at=20)
    say(ring, logging.ERROR, "e", at=30)
    assert texts(ring, level="info") == ["w", "e"]
    assert texts(ring, level="error") == ["e"]
    assert texts(ring, since=20) == ["w", "e"]
    assert texts(ring, since=30.5) == []


def test_a_line_is_bounded(ring: LogRing) -> None:
    say(ring, logging.INFO, "x" * 10_000)
    assert len(texts(ring)[0]) == 4096
