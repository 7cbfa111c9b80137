"""Restores: segments of chunks are brought into the page cache ahead of a sequential reader.

Each segment is read from disk once for a restore: the kernel keeps what it was given in its page cache and
asks for every byte once, so a segment whose bytes have all been handed out is let go. A reply is copied into
memory that is the same for all, which the processor's caches still hold when the kernel takes it: nothing
else runs before that.
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
from kvtool.errors import ChunkMissing, KvtoolError
from kvtool.fs.meters import Meters
from kvtool.store.fetch import Brought, bring_segment
from kvtool.store.store import Store

log = logging.getLogger(__name__)
_FULL_SPEED = 256 << 10  # bytes read in a row before a start in mid-file counts as sequential
_LOOKS = 4  # at chunks that were moved after they had been brought
_HUGE = 2 << 20  # bytes of a huge page; where they are of another size, there are none
_NEAR = 4 << 20  # how far the kernel's own read-ahead may stray from the order of a sequential reader


@dataclass(eq=False, slots=True)
class Position:
    """Where one open file is being read, to tell a sequential reader from a random one."""

    next: int = 0
    segment: int = -1
    run: int = _FULL_SPEED  # a file read from its beginning is sequential from the first byte


@dataclass(eq=False, slots=True)
class _Held:
    """One segment in the page cache, or on its way there."""

    plan: ReadPlan
    segment: Segment
    content: Brought | None = None
    ready: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None
    users: int = 0
    served: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return id(self.plan), self.segment.number


class Reader:
    """Reads through the segments of all open files: `cache` bytes brought in all, `workers` reads at once."""

    def __init__(
        self, store: Store, nursery: trio.Nursery, *, read_ahead: int, cache: int, workers: int
    ) -> None:
        self._store = store
        self._nursery = nursery
        self._read_ahead = read_ahead
        self._limiter = trio.CapacityLimiter(workers)
        self._budget = max(cache, 2 * SEGMENT_SIZE)
        self._taken = 0
        self._held: OrderedDict[tuple[int, int], _Held] = OrderedDict()  # (id of the plan, segment number)
        self._scratch = memoryview(bytearray())
        self._in_scratch: tuple[ReadPlan, int, int] | None = None  # which bytes of which file
        self._room = trio.lowlevel.ParkingLot()
        self.bytes_fetched = 0
        self.meters = Meters()

    @property
    def bytes_held(self) -> int:
        """The bytes brought, or on their way, that have not been handed out."""
        return self._taken

    async def read(self, plan: ReadPlan, position: Position, offset: int, size: int) -> bytes | memoryview:
        """Up to `size` bytes at `offset`, fewer only at the end. The result is good until the next `await`.

        Raises OSError or KvtoolError when a chunk is missing or damaged.
        """
        end = min(offset + size, plan.index.size)
        if offset >= end:
            return b""
        ahead = position if self._advance(position, offset, end) else None
        for _ in range(_LOOKS - 1):
            with suppress(ChunkMissing):
                return await self._read(plan, ahead, offset, end)
        return await self._read(plan, ahead, offset, end)

    async def _read(
        self, plan: ReadPlan, position: Position | None, offset: int, end: int
    ) -> bytes | memoryview:
        numbers = range(plan.find(offset), plan.find(end - 1) + 1)
        needed = await self._fetched(plan, numbers, position)
        if needed is None:
            # There is no room for all at once.
            border = plan.starts[numbers[1]]
            front = bytes(await self._read(plan, position, offset, border))
            return front + await self._read(plan, position, border, end)
        # From here to the reply there is no `await`, so the memory it is in stays as it is.
        low, high = plan.widened(offset, end)
        self._fill(plan, needed, low, high)
        self.meters.bytes_read += end - offset
        for held in needed:
            start, stop = max(offset, held.segment.start), min(end, held.segment.start + held.segment.length)
            self._serve(held, stop - start)
        return self._scratch[offset - low : end - low]

    def _fill(self, plan: ReadPlan, needed: Sequence[_Held], low: int, high: int) -> None:
        """Has `_scratch` begin with bytes `low` to `high` of the file, which are whole chunks."""
        there = self._in_scratch
        if there is not None and there[0] is plan and there[1:] == (low, high):
            return  # small reads of one large chunk
        self._in_scratch = None
        if len(self._scratch) < high - low:
            self._scratch = _new_buffer(high - low)
        for held in needed:
            segment = held.segment
            start, stop = max(low, segment.start), min(high, segment.start + segment.length)
            try:
                if held.error is not None:
                    raise held.error
                if held.content is None:
                    raise OSError(errno.EIO, "a segment was let go of too early")
                into = self._scratch[start - low : stop - low]
                held.content.copy(start - segment.start, stop - segment.start, into)
            except (KvtoolError, OSError):
                self._release(held)  # the next read tries again
                raise
        self._in_scratch = plan, low, high

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
            self._room.unpark_all()  # from here on their room can be taken

    def forget(self, plan: ReadPlan) -> None:
        """Lets go of what is held of a file that nobody reads."""
        for held in [held for held in self._held.values() if held.plan is plan and not held.users]:
            self._release(held)
        if self._in_scratch is None or self._in_scratch[0] is plan:
            self._in_scratch, self._scratch = None, memoryview(bytearray())

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
        """The segment, on its way if it was not there; None when there is no room for it now."""
        key = (id(plan), number)
        held = self._held.get(key)
        if held is not None:
            if demand:
                self._held.move_to_end(key)
                self.meters.segment_hits += held.ready.is_set()
                self.meters.segment_waits += not held.ready.is_set()
            return held
        segment = plan.segment(number)
        if not self._make_room(segment.length, demand=demand):
            return None
        self.meters.segment_misses += demand
        held = self._held[key] = _Held(plan, segment)
        self._nursery.start_soon(self._fetch, held)
        return held

    def _make_room(self, length: int, *, demand: bool) -> bool:
        """Takes room for so many bytes, if there is some; a segment that is alone may be larger than all."""
        # What was fetched ahead for others is let go only for a reader that waits.
        idle = [held for held in self._held.values() if demand and held.ready.is_set() and not held.users]
        while self._taken and self._taken + length > self._budget:
            if not idle:
                return False
            self._release(idle.pop(0))
        self._taken += length
        return True

    async def _fetch(self, held: _Held) -> None:
        try:
            held.content = await trio.to_thread.run_sync(self._bring, held, limiter=self._limiter)
            if held.content is not None:
                self.bytes_fetched += held.segment.length
        except (KvtoolError, OSError) as error:
            held.error = error
        except Exception as error:
            log.exception("reading segment %d", held.segment.number)
            held.error = OSError(errno.EIO, repr(error))
        held.ready.set()
        if not self._holds(held):
            self._taken -= held.segment.length
        elif held.error is not None:
            self._release(held)
        self._room.unpark_all()

    def _bring(self, held: _Held) -> Brought | None:
        """What a thread does: nothing when the file was forgotten before one was free."""
        return bring_segment(self._store, held.plan, held.segment) if self._holds(held) else None

    def _serve(self, held: _Held, count: int) -> None:
        held.served += count
        if held.served >= held.segment.length and not held.users:
            self._release(held)

    def _holds(self, held: _Held) -> bool:
        return self._held.get(held.key) is held

    def _release(self, held: _Held) -> None:
        """Lets go of it; while it is on its way it keeps its room, so that there is a bound on what is."""
        if self._holds(held):
            del self._held[held.key]
            if held.ready.is_set():
                self._taken -= held.segment.length
                self._room.unpark_all()


def _new_buffer(size: int) -> memoryview:
    """Memory of `size` bytes at least, in huge pages where there are some: the kernel looks each page up."""
    memory = mmap.mmap(-1, -(-size // _HUGE) * _HUGE)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
