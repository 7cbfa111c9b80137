"""Reading chunks back: whole segments into one buffer, every chunk checked as it arrives."""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from kvtool.core.index import Index
from kvtool.core.pack import checksum
from kvtool.core.readplan import ReadPlan, Run, Segment
from kvtool.errors import ChunkCorrupt, ChunkMissing
from kvtool.store.catalog import Location
from kvtool.store.store import Store

T = TypeVar("T")
_LOOKS = 4  # at a chunk that seems to be missing


def plan_file(store: Store, index: Index) -> ReadPlan:
    """How to read a snapshot, after a look at the place of every chunk.

    Raises ChunkMissing naming the first chunk that is not there.
    """
    return _looking_again(lambda: _plan(store, index))


def fetch_segment(store: Store, plan: ReadPlan, segment: Segment, buffer: memoryview) -> None:
    """Fills the first `segment.length` bytes of `buffer`.

    Raises ChunkMissing, ChunkCorrupt (naming the chunk), OSError; the buffer then holds nothing of use.
    """
    try:
        _fill(store, plan, segment, buffer)
    except ChunkMissing:
        # A collection may have moved the chunks since the plan was made.
        part = plan.index.part(segment.first, segment.last)

        def fill_again() -> None:
            again = _plan(store, part)
            _fill(store, again, again.segment(0), buffer)

        _looking_again(fill_again)


def read_chunk(store: Store, chunk_id: bytes, length: int) -> bytes:
    """One chunk, verified by its SHA-256. Raises ChunkMissing, ChunkCorrupt, OSError."""
    return _looking_again(lambda: _read_chunk(store, chunk_id, length))


def read_at(store: Store, chunk_id: bytes, location: Location) -> bytes:
    """The chunk that is said to lie at `location`. Raises ChunkMissing, ChunkCorrupt, OSError."""
    data = bytearray(location.length)
    with store.packs.lease(location.pack) as fd:
        _read_run(fd, Run(location.pack, location.offset, location.length, 0), memoryview(data))
    if hashlib.sha256(data).digest() != chunk_id:
        raise ChunkCorrupt(chunk_id, location.length, f"pack {store.packs.path(location.pack)}")
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
        fetch_segment(store, plan, segment, buffer)
        yield buffer[: segment.length]


def read_head(store: Store, index: Index, size: int) -> bytes:
    """The first `size` bytes of a snapshot, or all when it is shorter; only their chunks are looked up.

    Raises ChunkMissing, ChunkCorrupt, OSError.
    """
    head = index.head(bisect_left(index.ends, size) + 1)
    return b"".join(read_file(store, head))[:size]


def _looking_again(action: Callable[[], T]) -> T:
    """Does it again when a chunk is missing, as a collection may just have moved it; in the end that raises.

    A chunk is always in one place or the other: to miss it twice in a row takes a move in each moment
    between look-up and open.
    """
    for _ in range(_LOOKS - 1):
        with suppress(ChunkMissing):
            return action()
    return action()


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


def _fill(store: Store, plan: ReadPlan, segment: Segment, buffer: memoryview) -> None:
    for run in segment.runs:
        with store.packs.lease(run.pack) as fd:
            _read_run(fd, run, buffer)
    index, checksums = plan.index, plan.placement.checksums
    position = 0
    for i in range(segment.first, segment.last):
        end = index.ends[i] - segment.start
        if checksum(buffer[position:end]) != checksums[i]:
            where = f"pack {store.packs.path(plan.placement.packs[i])}"
            raise ChunkCorrupt(index.id(i), index.length(i), where)
        position = end


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
            raise ChunkMissing(
                f"a pack ends before byte {run.offset + run.length}",
                hint="delete the snapshot, or save it again",
            )
        done += got
