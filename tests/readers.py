"""A Reader by itself, over a disk of ours: segments of 1,000 bytes instead of 4 MiB, no store, no pack."""

import threading
from array import array
from collections.abc import Awaitable, Callable

import pytest
import trio

from kvtool.core.index import Index
from kvtool.core.readplan import Placement, ReadPlan, Segment
from kvtool.fs import reader as reader_module
from kvtool.fs.reader import Position, Reader
from tests.stores import SIZES
from tests.synth import random_bytes

SEGMENT = 1000
DATA = random_bytes(20_000)
LIMIT = 20.0


class Disk:
    """Stands for `bring_segment`: what is asked for, and when it comes."""

    def __init__(self) -> None:
        self.fetched: list[int] = []
        self.failures: dict[int, Exception] = {}
        self.decayed: dict[int, Exception] = {}  # after it was fetched
        self.copied = 0
        self.gate = threading.Event()
        self.gate.set()

    @classmethod
    def in_place(cls, monkeypatch: pytest.MonkeyPatch) -> "Disk":
        """A disk that all readers of the test read from."""
        disk = cls()
        monkeypatch.setattr(reader_module, "bring_segment", disk)
        monkeypatch.setattr(reader_module, "SEGMENT_SIZE", SEGMENT)
        monkeypatch.setattr(reader_module, "_NEAR", SEGMENT)
        monkeypatch.setattr(reader_module, "_FULL_SPEED", 300)
        return disk

    def __call__(self, packs: object, plan: ReadPlan, segment: Segment) -> "Content":
        self.fetched.append(segment.number)
        assert self.gate.wait(LIMIT)
        if segment.number in self.failures:
            raise self.failures.pop(segment.number)
        return Content(self, segment)


class Content:
    """A segment from it."""

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk, self._segment = disk, segment

    def copy(self, start: int, end: int, into: memoryview) -> None:
        self._disk.copied += 1
        begin = self._segment.start
        into[:] = b"\xee" * len(into)
        if self._segment.number in self._disk.decayed:
            raise self._disk.decayed.pop(self._segment.number)
        into[:] = DATA[begin + start : begin + end]


def plan_of(lengths: list[int] | None = None) -> ReadPlan:
    """A file of chunks of these lengths, of DATA's beginning; else of all of it, 100 bytes each."""
    lengths = lengths or [100] * 200
    count = len(lengths)
    index = Index(SIZES).extended(array("Q", lengths), bytes(32 * count))
    blank = array("Q", [0] * count)
    return ReadPlan.build(index, Placement(blank, blank, blank), SEGMENT)


def run(
    act: Callable[[Reader], Awaitable[None]], *, read_ahead: int = 4, cache: int = 10, workers: int = 2
) -> None:
    """Has `act` read; `read_ahead` and `cache` in segments."""

    async def main() -> None:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                reader = Reader(
                    None,  # type: ignore[arg-type]
                    nursery,
                    read_ahead=read_ahead * SEGMENT,
                    cache=cache * SEGMENT,
                    workers=workers,
                )
                await act(reader)

    trio.run(main)


async def settled(reader: Reader) -> None:
    """Returns when all that is on its way has come."""
    while not all(held.ready.is_set() for held in reader._held.values()):
        await trio.lowlevel.checkpoint()


async def read_all(reader: Reader, plan: ReadPlan, step: int, start: int = 0) -> bytes:
    """A file from `start` to its end, `step` bytes at a time."""
    position, parts = Position(), []
    while True:
        piece = bytes(await reader.read(plan, position, start, step))
        if not piece:
            return b"".join(parts)
        parts.append(piece)
        start += len(piece)
