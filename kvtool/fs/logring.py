"""The last lines of the mount's log and its processes', in memory."""

import json
import logging
import socket
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import Any

import trio

from kvtool.store.relay import TEXT_MAX

_LINES = 2000
_DATAGRAM_MAX = 1 << 16  # bytes: a character takes up to 12 in JSON


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
        text = self.format(record)[:TEXT_MAX]
        self._lines.append(Line(self._last, record.created, level, record.name, text))

    async def receive(self, source: socket.socket) -> None:
        """Takes the lines of the mount's processes (see `store.relay`), one at a time, until cancelled."""
        with trio.socket.from_stdlib_socket(source) as lines:
            while True:
                self._take(await lines.recv(_DATAGRAM_MAX))

    def _take(self, datagram: bytes) -> None:
        said = json.loads(datagram)
        for level, count in said["missed"]:
            self.acquire()
            self._last += count
            self.counts[logging.getLevelName(level).lower()] += count
            self.release()
        record = logging.LogRecord(said["logger"], said["level"], "", 0, said["text"], None, None)
        record.created = said["time"]
        self.handle(record)

    def read(self, *, level: str, since: float, after: int, limit: int) -> dict[str, Any]:
        """The newest lines of at least that level, not older than `since`, with numbers above `after`.

        `last` is the number of the newest line of all: the next call's `after`. `lost` is how many after
        `after` are no longer there, or came too fast to be kept.
        """
        least = logging.getLevelNamesMapping()[level.upper()]
        self.acquire()
        try:
            lines, last = list(self._lines), self._last
        finally:
            self.release()
        lines = [line for line in lines if line.number > after]
        found = [
            asdict(line)
            for line in lines
            if line.time >= since and logging.getLevelNamesMapping().get(line.level.upper(), least) >= least
        ]
        lost = max(0, last - after - len(lines))
        return {"lines": found[-limit:], "last": last, "lost": lost, "now": time.time()}
