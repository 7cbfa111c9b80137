"""Compaction: what is still needed of half-dead packs moves to new ones, and the old ones go.

A conversation's next turn replaces most of what the last one wrote, so old packs end up nearly dead. Live
chunks are copied in the order of the newest snapshot that needs them, each verified by its SHA-256; the new
pack is on the disk before the catalog names it, and an old one is deleted after that. Whatever dies in
between leaves a chunk in two packs, and the next collection deletes one of them.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kvtool.core import pack
from kvtool.errors import ChunkCorrupt, ChunkMissing, IndexDamaged
from kvtool.store import packs, stubs
from kvtool.store.catalog import Location
from kvtool.store.collect import PackUse, Survey
from kvtool.store.fetch import read_at
from kvtool.store.packs import PackWriter
from kvtool.store.store import Store

DEAD_SHARE = 4  # of a pack one part in so many may be dead
SMALL = 4 << 20  # bytes of a pack that is small
ENOUGH = 16  # so many small packs become one
ROUND = 256 << 20  # live bytes of the packs that become one
ROUND_CHUNKS = 4000
_SPARE = 64 << 20  # bytes of the disk that compaction leaves free
_BATCH = 4 << 20  # bytes in one write


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new sealed pack that the catalog does not know yet, the keys of the packs whose live chunks it
    holds, and the chunks that turned out damaged. The packs of these are not among `sources`.
    """

    pack_id: bytes
    sources: list[int]
    damaged: list[tuple[bytes, int]]


def choose(uses: Sequence[PackUse]) -> list[PackUse]:
    """The packs that are worth it: more than a quarter dead, and the small ones when there are enough."""
    alive = [use for use in uses if use.chunks]
    heavy = {use for use in alive if DEAD_SHARE * use.dead > use.size - pack.size_of(0, 0)}
    small = {use for use in alive if use.size < SMALL}
    return sorted(heavy | small if len(small) >= ENOUGH else heavy)


def rounds(chosen: Iterable[PackUse]) -> Iterator[list[PackUse]]:
    """The chosen packs in groups, neighbours in time together, each of which becomes one pack."""
    group: list[PackUse] = []
    for use in chosen:
        total = sum(each.bytes for each in group) + use.bytes
        if group and (total > ROUND or sum(each.chunks for each in group) + use.chunks > ROUND_CHUNKS):
            yield group
            group = []
        group.append(use)
    if group:
        yield group


def rewrite(store: Store, survey: Survey) -> Iterator[Rewritten]:
    """Writes the new packs, one for each round. Stops, as if there were no more, where the disk is too full.

    The caller has the catalog `adopt` each and drops its sources before it asks for the next.
    """
    for group in rounds(choose(survey.uses)):
        status = os.statvfs(store.layout.packs)
        if status.f_bavail * status.f_frsize < sum(use.bytes for use in group) + _SPARE:
            return
        live = _live_chunks(store, survey.ids, {use.key for use in group})
        yield _copy(store, _in_order(store, live), [use.key for use in group])


def adopt(store: Store, pack_id: bytes) -> int:
    """Has the chunks of a new pack lie there from now on. Returns the bytes by which the store has grown.

    Raises PackDamaged, OSError; the pack is then gone again.
    """
    path = store.layout.pack(pack_id)
    try:
        _, size, entries = packs.read_entries(path)
        store.catalog.add_pack(pack_id, size, entries, moved=True)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return size


def _live_chunks(store: Store, ids: set[bytes], keys: set[int]) -> dict[bytes, Location]:
    return {
        chunk_id: Location(key, offset, length, 0)
        for chunk_id, key, offset, length in store.catalog.scan()
        if key in keys and chunk_id in ids
    }


def _in_order(store: Store, live: dict[bytes, Location]) -> Iterator[tuple[bytes, Location]]:
    """The chunks in the order of the snapshots that need them, newest first."""
    ages = []
    for path in stubs.walk(store.layout):
        with suppress(FileNotFoundError):
            ages.append((-os.lstat(path).st_mtime_ns, path))
    for _, path in sorted(ages):
        if not live:
            return
        with suppress(FileNotFoundError, IndexDamaged):
            for chunk_id, _ in stubs.read_index(path).chunks():
                if (location := live.pop(chunk_id, None)) is not None:
                    yield chunk_id, location
    yield from live.items()  # of snapshots that were deleted just now


def _copy(store: Store, chunks: Iterable[tuple[bytes, Location]], keys: Iterable[int]) -> Rewritten:
    writer = PackWriter(store.layout)
    spoiled: set[int] = set()
    damaged: list[tuple[bytes, int]] = []
    batch: list[tuple[bytes, memoryview]] = []
    try:
        for chunk_id, location in chunks:
            try:
                batch.append((chunk_id, memoryview(read_at(store, chunk_id, location))))
            except (ChunkCorrupt, ChunkMissing, OSError) as error:
                spoiled.add(location.pack)
                if isinstance(error, ChunkCorrupt):
                    damaged.append((chunk_id, location.length))
            if sum(len(data) for _, data in batch) >= _BATCH:
                writer.append(batch)
                batch = []
        writer.append(batch)
        writer.seal(sync=True)
    except BaseException:
        writer.discard()
        raise
    return Rewritten(writer.id, [key for key in keys if key not in spoiled], damaged)
