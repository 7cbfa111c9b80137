"""A test whose log holds a warning that it did not ask for fails, in this process and in a mount's stderr alike."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

_ALARM = re.compile(
    r"kvtool: (WARNING|ERROR|CRITICAL)\b|Traceback \(most recent call last\)|Exception ignored in"
)

ExpectLog = Callable[[str], None]


def alarms(lines: Iterable[str]) -> list[str]:
    """The lines of a kvtool process's stderr that are of level warning or above, or begin a traceback."""
    return [line for line in lines if _ALARM.match(line)]


def unexpected(messages: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """What no pattern matches."""
    return [message for message in messages if not any(re.search(pattern, message) for pattern in patterns)]


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def expect_log() -> Iterator[ExpectLog]:
    """Call it with a regular expression to allow log records of level warning and above that match."""
    patterns: list[str] = []
    collector = _Collector()
    logging.getLogger().addHandler(collector)
    try:
        yield patterns.append
    finally:
        logging.getLogger().removeHandler(collector)
    surprises = unexpected(collector.messages, patterns)
    assert not surprises, "unexpected log records:\n" + "\n".join(surprises)
