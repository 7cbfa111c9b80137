"""Reading chunks back. A segment is brought into the page cache first, by who can wait for the disk; then its
chunks are copied from there as they are wanted, and each is checked before a byte of it is handed out.
"""

import hashlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import TypeVar, TypeVarTuple

from kvtool.core.index import Index
from kvtool.core.pack import checksum
from kvtool.core.readplan import ReadPlan, Run, Segment
from kvtool.errors import ChunkCorrupt, ChunkMissing
from kvtool.store.catalog import Location
from kvtool.store.store import Store

T = TypeVar("T")
Args = TypeVarTuple("Args")
_LOOKS = 4  # at a chunk that seems to be missing
_MANY = 16  # runs in a segment from which on announcing them takes less time than it saves


def plan_file(store: Store, index: Index) -> ReadPlan:
    """How to read a snapshot, after a look at the place of every chunk.

    Raises ChunkMissing naming the first chunk that is not there.
    """
    return _looking_again(_plan, store, index)


class Brought:
    """A segment whose bytes the page cache has, if it has not dropped them since."""

    def __init__(self, store: Store, plan: ReadPlan, segment: Segment) -> None:
        """Brings it. Raises ChunkMissing, OSError."""
        self._store, self._plan, self._segment = store, plan, segment
        if len(segment.runs) > _MANY:
            for run in segment.runs:  # the disk may look for all of them at once
                with store.packs.lease(run.pack) as fd:
                    os.posix_fadvise(fd, run.offset, run.length, os.POSIX_FADV_WILLNEED)
        for run in segment.runs:
            with store.packs.lease(run.pack) as fd:
                _bring(fd, run)

    def copy(self, start: int, end: int, into: memoryview) -> None:
        """Fills `into` with the segment's bytes `start` to `end`, both where chunks begin or end.

        Raises ChunkMissing when a collection has moved them since (bring the segment again), ChunkCorrupt
        naming the chunk, OSError; `into` then holds nothing of use.
        """
        segment, base = self._segment, self._segment.start + start
        for run in segment.runs:
            low, high = max(start, run.target), min(end, run.target + run.length)
            if low < high:
                with self._store.packs.lease(run.pack) as fd:
                    _read_run(fd, Run(run.pack, run.offset + low - run.target, high - low, low - start), into)
        ends, checksums = self._plan.index.ends, self._plan.placement.checksums
        first = bisect_right(ends, base, segment.first, segment.last)
        position = 0
        for i in range(first, bisect_left(ends, base + end - start, first, segment.last) + 1):
            chunk_end = ends[i] - base
            if checksum(into[position:chunk_end]) != checksums[i]:
                index, pack = self._plan.index, self._plan.placement.packs[i]
                raise _corrupt(self._store, pack, index.id(i), index.length(i))
            position = chunk_end


def bring_segment(store: Store, plan: ReadPlan, segment: Segment) -> Brought:
    """Reads a segment into the page cache, wherever its chunks are by now. Raises ChunkMissing, OSError."""
    try:
        return Brought(store, plan, segment)
    except ChunkMissing:
        # A collection may have moved the chunks since the plan was made.
        part = plan.index.part(segment.first, segment.last)

        def bring_again() -> Brought:
            again = _plan(store, part)
            return Brought(store, again, again.segment(0))

        return _looking_again(bring_again)


def read_chunk(store: Store, chunk_id: bytes, length: int) -> bytes:
    """One chunk, verified by its SHA-256. Raises ChunkMissing, ChunkCorrupt, OSError."""
    return _looking_again(_read_chunk, store, chunk_id, length)


def read_at(store: Store, chunk_id: bytes, location: Location) -> bytes:
    """The chunk that is said to lie at `location`. Raises ChunkMissing, ChunkCorrupt, OSError."""
    data = bytearray(location.length)
    with store.packs.lease(location.pack) as fd:
        _read_run(fd, Run(location.pack, location.offset, location.length, 0), memoryview(data))
    if hashlib.sha256(data).digest() != chunk_id:
        raise _corrupt(store, location.pack, chunk_id, location.length)
    return bytes(data)


def read_file(store: Store, index: Index) -> Iterator[memoryview]:
    """The bytes of a snapshot in order, a segment at a time, each valid until the next is asked for.

    Every chunk is looked up before the first byte comes. Raises ChunkMissing, ChunkCorrupt, OSError.
    """
    plan = plan_file(store, index)
    buffer = memoryview(bytearray())
    for number in range(len(plan)):
        segment = plan.segment(number)
        if segment.length > len(buffer):
            buffer = memoryview(bytearray(segment.length))
        piece = buffer[: segment.length]
        _looking_again(_read_segment, store, plan, segment, piece)
        yield piece


def read_head(store: Store, index: Index, size: int) -> bytes:
    """The first `size` bytes of a snapshot, or all when it is shorter; only their chunks are looked up.

    Raises ChunkMissing, ChunkCorrupt, OSError.
    """
    head = index.head(bisect_left(index.ends, size) + 1)
    return b"".join(read_file(store, head))[:size]


def _looking_again(action: Callable[[*Args], T], *args: *Args) -> T:
    """Does it again when a chunk is missing, as a collection may just have moved it; in the end that raises.

    A chunk is always in one place or the other: to miss it twice in a row takes a move in each moment
    between look-up and open.
    """
    for _ in range(_LOOKS - 1):
        with suppress(ChunkMissing):
            return action(*args)
    return action(*args)


def _plan(store: Store, index: Index) -> ReadPlan:
    placement = store.catalog.place(index)
    reach = {key: store.packs.data_end(key) for key in set(placement.packs) if not store.packs.is_whole(key)}
    for i, key in enumerate(placement.packs) if reach else ():
        if key in reach and placement.offsets[i] + index.length(i) > reach[key]:
            raise ChunkMissing(
                f"chunk {index.id(i).hex()} is missing: pack {store.packs.path(key)} is gone or cut short",
                hint="delete the snapshot, or save it again",
            )
    return ReadPlan.build(index, placement)


def _read_segment(store: Store, plan: ReadPlan, segment: Segment, into: memoryview) -> None:
    bring_segment(store, plan, segment).copy(0, segment.length, into)


def _read_chunk(store: Store, chunk_id: bytes, length: int) -> bytes:
    location = store.catalog.find([chunk_id]).get(chunk_id)
    if location is None or location.length != length:
        raise ChunkMissing(f"chunk {chunk_id.hex()} ({length} bytes) is not in the store")
    return read_at(store, chunk_id, location)


def _read_run(fd: int, run: Run, buffer: memoryview) -> None:
    done = 0
    while done < run.length:
        target = buffer[run.target + done : run.target + run.length]
        got = os.preadv(fd, [target], run.offset + done)
        if not got:
            raise _ends_early(run)
        done += got


def _bring(fd: int, run: Run) -> None:
    """Has the kernel read a run, and copy none of it: sendfile(2) to a file that swallows all.

    It reads ahead in large pages and waits for what it reads; posix_fadvise(2) does neither.
    """
    done = 0
    try:
        while done < run.length:
            sent = os.sendfile(_nowhere(), fd, run.offset + done, run.length - done)
            if not sent:
                raise _ends_early(run)
            done += sent
    except OSError:
        # A file system that cannot do it; what cannot be read at all, reading says too.
        _read_run(fd, Run(run.pack, run.offset, run.length, 0), memoryview(bytearray(run.length)))


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _corrupt(store: Store, pack: int, chunk_id: bytes, length: int) -> ChunkCorrupt:
    store.packs.reopen(pack)
    return ChunkCorrupt(chunk_id, length, f"pack {store.packs.path(pack)}")


def _ends_early(run: Run) -> ChunkMissing:
    return ChunkMissing(
        f"a pack ends before byte {run.offset + run.length}", hint="delete the snapshot, or save it again"
    )
