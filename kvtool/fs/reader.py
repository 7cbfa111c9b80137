"""Restores: segments of chunks are fetched ahead of a sequential reader into reused, bounded buffers.

Each segment is read from disk once for a restore: the kernel keeps what it was given in its page cache and
asks for every byte once, so a segment whose bytes have all been handed out gives its buffer back. Buffers
are handed back and filled by the event loop alone, and a reply is copied to the kernel before the loop runs
anything else, so `read` may return a view of a buffer.
"""

import errno
import logging
import mmap
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from kvtool.core.readplan import SEGMENT_SIZE, ReadPlan, Segment
from kvtool.errors import KvtoolError
from kvtool.fs.meters import Meters
from kvtool.store.fetch import fetch_segment
from kvtool.store.store import Store

log = logging.getLogger(__name__)
_FULL_SPEED = 256 << 10  # bytes read in a row before a start in mid-file counts as sequential
_NEAR = 4 << 20  # how far the kernel's own read-ahead may stray from the order of a sequential reader


@dataclass(eq=False, slots=True)
class Position:
    """Where one open file is being read, to tell a sequential reader from a random one."""

    next: int = 0
    segment: int = -1
    run: int = _FULL_SPEED  # a file read from its beginning is sequential from the first byte


@dataclass(eq=False, slots=True)
class _Held:
    """One segment in memory, or on its way there."""

    plan: ReadPlan
    segment: Segment
    buffer: memoryview
    ready: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None
    users: int = 0
    served: int = 0


class Reader:
    """Reads through the segments of all open files; `cache` bytes in all, `workers` reads at once."""

    def __init__(
        self, store: Store, nursery: trio.Nursery, *, read_ahead: int, cache: int, workers: int
    ) -> None:
        self._store = store
        self._nursery = nursery
        self._read_ahead = read_ahead
        self._limiter = trio.CapacityLimiter(workers)
        self._budget = max(cache, 2 * SEGMENT_SIZE)
        self._allocated = 0
        self._free: list[memoryview] = []
        self._held: OrderedDict[tuple[int, int], _Held] = OrderedDict()  # (id of the plan, segment number)
        self._scratch = memoryview(bytearray())
        self._room = trio.lowlevel.ParkingLot()
        self.bytes_fetched = 0
        self.meters = Meters()

    @property
    def bytes_held(self) -> int:
        """The memory in buffers, in use or not."""
        return self._allocated

    async def read(self, plan: ReadPlan, position: Position, offset: int, size: int) -> bytes | memoryview:
        """Up to `size` bytes at `offset`, fewer only at the end. The result is good until the next `await`.

        Raises OSError or KvtoolError when a chunk is missing or damaged.
        """
        end = min(offset + size, plan.index.size)
        if offset >= end:
            return b""
        sequential = self._advance(position, offset, end)
        numbers = range(plan.find(offset), plan.find(end - 1) + 1)
        needed = await self._fetched(plan, numbers, position if sequential else None)
        if needed is None:
            # There is no room for all at once.
            border = plan.starts[numbers[1]]
            front = bytes(await self.read(plan, position, offset, border - offset))
            return front + await self.read(plan, position, border, end - border)
        # From here to the reply there is no `await`, so the buffers and the scratch space stay as they are.
        views = []
        for held in needed:
            if held.error is not None:
                raise held.error
            start = max(0, offset - held.segment.start)
            views.append(held.buffer[start : min(end - held.segment.start, held.segment.length)])
        if len(views) == 1:
            result = views[0]
        else:
            result, filled = self._scratch_for(end - offset), 0
            for view in views:
                result[filled : filled + len(view)] = view
                filled += len(view)
        self.meters.bytes_read += end - offset
        for held, view in zip(needed, views, strict=True):
            self._serve(held, len(view))
        return result

    async def _fetched(
        self, plan: ReadPlan, numbers: Sequence[int], position: Position | None
    ) -> list[_Held] | None:
        """Those segments, once they are there or failed; for a sequential reader at `position` also the next.

        None when there is no room for all of them: who holds one does not wait for room for another, since
        two who did would wait for ever.
        """
        needed: list[_Held] = []
        try:
            for number in numbers:
                held = self._hold(plan, number, demand=True)
                while held is None:
                    if needed:
                        return None
                    await self._room.park()
                    held = self._hold(plan, number, demand=True)
                held.users += 1
                needed.append(held)
                if position is not None and position.segment != number:
                    position.segment = number
                    self._prefetch(plan, number)
            for held in needed:
                if not held.ready.is_set():
                    await held.ready.wait()
            return needed
        finally:
            for held in needed:
                held.users -= 1
            self._room.unpark_all()  # from here on their buffers can be taken

    def _scratch_for(self, size: int) -> memoryview:
        """Space for a reply that spans segments: the same for all, as none waits before it is sent."""
        if len(self._scratch) < size:
            self._scratch = memoryview(bytearray(size))
        return self._scratch[:size]

    def forget(self, plan: ReadPlan) -> None:
        """Frees what is held of a file nobody has open any more."""
        for key in [key for key in self._held if key[0] == id(plan)]:
            held = self._held[key]
            if held.ready.is_set() and not held.users:
                self._release(key)

    def _advance(self, position: Position, offset: int, end: int) -> bool:
        """Notes a read; whether the reader is sequential enough for the full read-ahead."""
        if offset == 0 or abs(offset - position.next) <= _NEAR:
            position.run = _FULL_SPEED if offset == 0 else position.run + end - offset
        else:
            position.run = 0
        position.next = end
        return position.run >= _FULL_SPEED

    def _prefetch(self, plan: ReadPlan, number: int) -> None:
        readers = len({key[0] for key in self._held})
        window = min(self._read_ahead, self._budget // max(readers, 1)) // SEGMENT_SIZE
        for ahead in range(number + 1, min(number + window, len(plan) - 1) + 1):
            if self._hold(plan, ahead, demand=False) is None:
                return

    def _hold(self, plan: ReadPlan, number: int, *, demand: bool) -> _Held | None:
        """The segment, on its way if it was not there; None when there is no buffer for it now."""
        key = (id(plan), number)
        held = self._held.get(key)
        if held is not None:
            if demand:
                self._held.move_to_end(key)
                self.meters.segment_hits += held.ready.is_set()
                self.meters.segment_waits += not held.ready.is_set()
            return held
        segment = plan.segment(number)
        buffer = self._buffer(segment.length, demand=demand)
        if buffer is None:
            return None
        self.meters.segment_misses += demand
        held = self._held[key] = _Held(plan, segment, buffer)
        self._nursery.start_soon(self._fetch, key, held)
        return held

    def _buffer(self, length: int, *, demand: bool) -> memoryview | None:
        size = max(length, SEGMENT_SIZE)
        if self._free and len(self._free[-1]) >= size:
            return self._free.pop()
        # What was fetched ahead for others is taken only for a reader that waits.
        idle = [key for key, held in self._held.items() if demand and held.ready.is_set() and not held.users]
        while self._allocated + size > self._budget:
            if not self._free:
                if not idle:
                    return None
                self._release(idle.pop(0))
            buffer = self._free.pop()
            if len(buffer) >= size:
                return buffer
            self._allocated -= len(buffer)
        self._allocated += size
        return _new_buffer(size)

    async def _fetch(self, key: tuple[int, int], held: _Held) -> None:
        try:
            await trio.to_thread.run_sync(
                fetch_segment, self._store, held.plan, held.segment, held.buffer, limiter=self._limiter
            )
            self.bytes_fetched += held.segment.length
        except (KvtoolError, OSError) as error:
            held.error = error
        except Exception as error:
            log.exception("reading segment %d", held.segment.number)
            held.error = OSError(errno.EIO, repr(error))
        held.ready.set()
        if held.error is not None:
            # Not kept: the next read tries again.
            self._release(key)
        self._room.unpark_all()

    def _serve(self, held: _Held, count: int) -> None:
        held.served += count
        if held.served >= held.segment.length and not held.users:
            self._release((id(held.plan), held.segment.number))

    def _release(self, key: tuple[int, int]) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._free.append(held.buffer)
            self._room.unpark_all()


def _new_buffer(size: int) -> memoryview:
    """Memory in huge pages where there are some: the kernel looks every page up for each reply."""
    memory = mmap.mmap(-1, size)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
