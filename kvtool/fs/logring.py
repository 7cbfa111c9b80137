"""The last lines of the mount's log, in memory."""

import logging
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import Any

_LINES = 2000
_TEXT_MAX = 4096  # characters of one line; a traceback is as long as it is


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number since the start, seconds since the epoch, and what was said by which module."""

    number: int
    time: float
    level: str
    logger: str
    message: str


class LogRing(logging.Handler):
    """Keeps the newest lines, and counts all by level."""

    def __init__(self, lines: int = _LINES) -> None:
        super().__init__()
        self._lines: deque[Line] = deque(maxlen=lines)
        self._last = 0
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one more line; any thread may log, one at a time."""
        self._last += 1
        level = record.levelname.lower()
        self.counts[level] += 1
        text = self.format(record)[:_TEXT_MAX]
        self._lines.append(Line(self._last, record.created, level, record.name, text))

    def read(self, *, level: str, since: float, after: int, limit: int) -> dict[str, Any]:
        """The newest lines of at least that level, not older than `since`, with numbers above `after`.

        `last` is the number of the newest line of all: the next call's `after`. `lost` is how many between
        `after` and the first line kept are no longer there.
        """
        least = logging.getLevelNamesMapping()[level.upper()]
        self.acquire()
        try:
            lines, last = list(self._lines), self._last
        finally:
            self.release()
        found = [
            asdict(line)
            for line in lines
            if line.number > after
            and line.time >= since
            and logging.getLevelNamesMapping().get(line.level.upper(), least) >= least
        ]
        first = lines[0].number if lines else last + 1
        return {"lines": found[-limit:], "last": last, "lost": max(0, first - 1 - after), "now": time.time()}
