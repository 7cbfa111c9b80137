"""Reading chunks back: whole segments into one buffer, every chunk checked as it arrives."""

import hashlib
import os
from collections.abc import Iterator

from kvtool.core.index import Index
from kvtool.core.pack import checksum
from kvtool.core.readplan import ReadPlan, Run, Segment
from kvtool.errors import ChunkCorrupt, ChunkMissing
from kvtool.store.packs import PackFiles
from kvtool.store.store import Store


def plan_file(store: Store, index: Index) -> ReadPlan:
    """How to read a snapshot, after a look at the place of every chunk.

    Raises ChunkMissing naming the first chunk that is not there.
    """
    placement = store.catalog.place(index)
    reach = {key: store.packs.data_end(key) for key in set(placement.packs) if not store.packs.is_whole(key)}
    for i, key in enumerate(placement.packs) if reach else ():
        if key in reach and placement.offsets[i] + index.length(i) > reach[key]:
            raise ChunkMissing(
                f"chunk {index.id(i).hex()} is missing: pack {store.packs.path(key)} is gone or cut short",
                hint="delete the snapshot, or save it again",
            )
    return ReadPlan.build(index, placement)


def fetch_segment(packs: PackFiles, plan: ReadPlan, segment: Segment, buffer: memoryview) -> None:
    """Fills the first `segment.length` bytes of `buffer`.

    Raises ChunkMissing, ChunkCorrupt (naming the chunk), OSError; the buffer then holds nothing of use.
    """
    for run in segment.runs:
        with packs.lease(run.pack) as fd:
            _read_run(fd, run, buffer)
    index, checksums = plan.index, plan.placement.checksums
    position = 0
    for i in range(segment.first, segment.last):
        end = index.ends[i] - segment.start
        if checksum(buffer[position:end]) != checksums[i]:
            raise ChunkCorrupt(index.id(i), index.length(i), f"pack {packs.path(plan.placement.packs[i])}")
        position = end


def read_chunk(store: Store, chunk_id: bytes, length: int) -> bytes:
    """One chunk, verified by its SHA-256. Raises ChunkMissing, ChunkCorrupt, OSError."""
    location = store.catalog.find([chunk_id]).get(chunk_id)
    if location is None or location.length != length:
        raise ChunkMissing(f"chunk {chunk_id.hex()} ({length} bytes) is not in the store")
    data = bytearray(length)
    with store.packs.lease(location.pack) as fd:
        _read_run(fd, Run(location.pack, location.offset, length, 0), memoryview(data))
    if hashlib.sha256(data).digest() != chunk_id:
        raise ChunkCorrupt(chunk_id, length, f"pack {store.packs.path(location.pack)}")
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
        fetch_segment(store.packs, plan, segment, buffer)
        yield buffer[: segment.length]


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
