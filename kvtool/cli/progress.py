"""Progress for people: a line on standard error, when that is a terminal, with rate and time left."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from kvtool.cli.call import Call
from kvtool.core.text import printable
from kvtool.core.units import format_duration, format_size
from kvtool.store.watch import NOBODY, Watch

_PAUSE = 0.1  # seconds between two looks of the line
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(call: Call, label: str, total: int = 0, *, unit: str = "") -> Iterator[Watch]:
    """A line about `total` bytes, or so many of what `unit` names; what it yields is told of what is done.

    `total` 0 is a number that is not known (yet). Nothing is shown with --json or --quiet, and where standard
    error is no terminal, or one that cannot clear a line. The line is gone at the end, however that comes.
    """
    if call.quiet or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield NOBODY
        return
    bar = Bar(sys.stderr, printable(label), total, (lambda n: f"{n} {unit}") if unit else format_size)
    try:
        yield Watch(bar.begin, bar.done)
    finally:
        bar.clear()


class Bar:
    """The line, written anew when something is done, though not more than ten times a second."""

    def __init__(self, stream: TextIO, label: str, total: int, shown: Callable[[int], str]) -> None:
        self._stream = stream
        self._label = label
        self._shown = shown
        self.begin(total)

    def begin(self, total: int) -> None:
        """There is so much to do from now on."""
        self._total, self._done = total, 0
        self._started = self._written = time.monotonic()
        self._write()

    def done(self, count: int) -> None:
        """So much more is done."""
        self._done += count
        now = time.monotonic()
        if now >= self._written + _PAUSE:
            self._written = now
            self._write()

    def clear(self) -> None:
        """Takes the line away."""
        self._put(_CLEAR)

    def text(self, seconds: float) -> str:
        """The line, so many seconds after it began."""
        parts = [self._label]
        if self._total:
            parts.append(f"{min(100 * self._done // self._total, 100)}%")
        if self._done:
            of = f" of {self._shown(self._total)}" if self._total else ""
            parts.append(self._shown(self._done) + of)
        if self._done and seconds:
            parts.append(f"{self._shown(round(self._done / seconds))}/s")
            left = seconds * (self._total - self._done) / self._done
            if self._total:
                parts.append(f"{format_duration(max(round(left), 0))} left")
        return "  ".join(parts)

    def _write(self) -> None:
        with suppress(OSError):
            width = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._put(_CLEAR + self.text(time.monotonic() - self._started)[: width - 1])

    def _put(self, text: str) -> None:
        with suppress(OSError):  # a terminal that has gone is no reason to stop
            self._stream.write(text)
            self._stream.flush()
