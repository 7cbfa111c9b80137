"""Compaction: what is still needed of half-dead packs moves to new ones, and the old ones go.

A conversation's next turn replaces most of what the last one wrote, so old packs end up nearly dead. Live
chunks are copied in the order of the newest snapshot that needs them, each verified by its SHA-256; the new
pack is on the disk before the catalog names it, and an old one is deleted after that. Whatever dies in
between leaves a chunk in two packs, and the next collection deletes one of them.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kvtool.core import pack
from kvtool.errors import ChunkCorrupt, ChunkMissing, IndexDamaged
from kvtool.store import packs, stubs
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
_MOVED = 125  # chunks that move in one transaction, of which a step makes one at least


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
    groups = list(rounds(choose(survey.uses)))
    for group, order in zip(groups, _orders(store, survey.ids, groups), strict=True):
        status = os.statvfs(store.layout.packs)
        if status.f_bavail * status.f_frsize < sum(use.bytes for use in group) + _SPARE:
            return
        yield _copy(store, order, [use.key for use in group])


class Adoption:
    """A new pack becomes the place of its chunks, in steps, each of which leaves every chunk in some place.

    `size` is the bytes by which the store has grown. Raises PackDamaged and OSError, the pack is then gone.
    """

    def __init__(self, store: Store, pack_id: bytes) -> None:
        path = store.layout.pack(pack_id)
        try:
            _, self.size, self._entries = packs.read_entries(path)
            self._key = store.catalog.add_pack(pack_id, self.size, [])
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._catalog = store.catalog

    def step(self) -> bool:
        """Moves some hundred chunks. Returns whether there are more."""
        self._catalog.move_chunks(self._key, self._entries[:_MOVED])
        del self._entries[:_MOVED]
        return bool(self._entries)


def adopt(store: Store, pack_id: bytes) -> int:
    """A whole adoption. Returns the bytes by which the store has grown. Raises as `Adoption` does."""
    adoption = Adoption(store, pack_id)
    while adoption.step():
        pass
    return adoption.size


def _orders(store: Store, ids: set[bytes], groups: Sequence[Sequence[PackUse]]) -> list[list[bytes]]:
    """For each group of packs its live chunks, in the order of the snapshots that need them, newest first."""
    group_of = {
        entry.id: number
        for number, group in enumerate(groups)
        for use in group
        for entry in store.catalog.entries(use.key)
        if entry.id in ids
    }
    orders: list[list[bytes]] = [[] for _ in groups]
    for path in _newest_first(store) if groups else ():
        with suppress(FileNotFoundError, IndexDamaged):
            for chunk_id, _ in stubs.read_index(path).chunks():
                if (number := group_of.pop(chunk_id, None)) is not None:
                    orders[number].append(chunk_id)
    for chunk_id, number in group_of.items():  # of snapshots that were deleted just now
        orders[number].append(chunk_id)
    return orders


def _newest_first(store: Store) -> list[bytes]:
    ages = []
    for path in stubs.walk(store.layout):
        with suppress(FileNotFoundError):
            ages.append((os.lstat(path).st_mtime_ns, path))
    return [path for _, path in sorted(ages, reverse=True)]


def _copy(store: Store, order: Sequence[bytes], keys: Collection[int]) -> Rewritten:
    places = store.catalog.find(order)
    writer = PackWriter(store.layout)
    spoiled: set[int] = set()
    damaged: list[tuple[bytes, int]] = []
    batch: list[tuple[bytes, memoryview]] = []
    size = 0
    try:
        for chunk_id in order:
            location = places.get(chunk_id)
            if location is None:  # a reader has found it damaged meanwhile, in one of them
                spoiled.update(keys)
                continue
            if location.pack not in keys:
                continue
            try:
                data = read_at(store, chunk_id, location)
            except (ChunkCorrupt, ChunkMissing, OSError) as error:
                spoiled.add(location.pack)
                if isinstance(error, ChunkCorrupt):
                    damaged.append((chunk_id, location.length))
                continue
            batch.append((chunk_id, memoryview(data)))
            size += len(data)
            if size >= _BATCH:
                writer.append(batch)
                batch, size = [], 0
        writer.append(batch)
        writer.seal(sync=True)
    except BaseException:
        writer.discard()
        raise
    return Rewritten(writer.id, [key for key in keys if key not in spoiled], damaged)
