"""A test whose log holds a warning that it did not ask for fails, in this process and in a mount's
stderr alike.
"""

import logging
import re
from collections.abc import Iterable

_ALARM = re.compile(
    r"kvtool: (WARNING|ERROR|CRITICAL)\b|Traceback \(most recent call last\)|Exception ignored in"
)


def alarms(lines: Iterable[str]) -> list[str]:
    """The lines of a kvtool process's stderr that are of level warning or above, or begin a traceback."""
    return [line for line in lines if _ALARM.match(line)]


def unexpected(messages: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """What no pattern matches."""
    return [message for message in messages if not any(re.search(pattern, message) for pattern in patterns)]


class Collector(logging.Handler):
    """Keeps the records of level warning and above of this process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.levelname} {record.name}: {record.getMessage()}")
