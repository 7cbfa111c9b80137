"""Collection: deleting what no snapshot needs.

Mark is a read-only pass over all stubs; a survey of the catalog then tells how much of each pack is needed.
Packs of which nothing is, are dropped; of others the rest is rewritten (see `compact`). Every step leaves a
whole store behind: a chunk that a snapshot needs is always in a pack that the catalog names.

Beside a running mount what was used since the mark began is spared; who calls `drop` says what that is.
"""

import errno
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kvtool.core import pack
from kvtool.errors import ChunkMissing, PackDamaged
from kvtool.store import layout as store_layout
from kvtool.store import packs, stubs
from kvtool.store.store import Store

Ids = Collection[bytes]
_NOTHING: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection freed, or would free: packs deleted, how many new ones took what was left of some,
    and the bytes by which the store shrank.
    """

    packs: int = 0
    rewritten: int = 0
    bytes: int = 0

    def __add__(self, other: "Collected") -> "Collected":
        return Collected(self.packs + other.packs, self.rewritten + other.rewritten, self.bytes + other.bytes)


class PackUse(NamedTuple):
    """A pack's key, its file's bytes, and the number and bytes of its chunks that snapshots need."""

    key: int
    size: int
    chunks: int
    bytes: int

    @property
    def dead(self) -> int:
        """The bytes that the pack would not have if it held what is needed alone."""
        return self.size - pack.size_of(self.chunks, self.bytes)


@dataclass(frozen=True, slots=True)
class Survey:
    """How much of each pack is needed, by the chunks `ids` that snapshots refer to. Packs younger than the
    mark are left out; so are packs that hold a chunk which a snapshot needs and no place is known for: a
    damaged copy may be the last.
    """

    ids: set[bytes]
    uses: list[PackUse]

    @property
    def dead(self) -> list[PackUse]:
        """The packs of which nothing is needed."""
        return [use for use in self.uses if not use.chunks]


def mark(store: Store) -> set[bytes]:
    """The ids of the chunks that snapshots need.

    Raises IndexDamaged for a file of the stub tree that is no stub: it may stand for chunks, so nothing can
    be called unneeded. Raises NoStore when the stub tree is absent or another store's.
    """
    store_layout.check_stub_tree(store.layout, store.format)
    ids: set[bytes] = set()
    for path in stubs.walk(store.layout):
        try:
            if stubs.get(path, stubs.INCOMPLETE) is None:
                ids.update(chunk_id for chunk_id, _ in stubs.read_index(path).chunks())
        except FileNotFoundError:
            continue  # deleted or renamed meanwhile; the mount notes renames itself
    return ids


def newest_pack(store: Store) -> int:
    """The key of the pack sealed last, 0 when there is none."""
    rows = store.catalog.packs()
    return rows[-1].key if rows else 0


def survey(store: Store, ids: set[bytes], newest: int) -> Survey:
    """How much of the packs with keys up to `newest` is needed."""
    rows = [row for row in store.catalog.packs() if row.key <= newest]
    chunks = dict.fromkeys((row.key for row in rows), 0)
    lengths = chunks.copy()
    found = 0
    for chunk_id, key, _, length in store.catalog.scan():
        if chunk_id in ids:
            found += 1
            if key in chunks:
                chunks[key] += 1
                lengths[key] += length
    uses = [PackUse(row.key, row.size, chunks[row.key], lengths[row.key]) for row in rows]
    if found < len(ids):
        missing = _missing(store, ids)
        uses = [use for use in uses if not missing.intersection(_footer_ids(store, use.key))]
    return Survey(ids, uses)


def drop(store: Store, keys: Iterable[int], needed: Ids = _NOTHING) -> Iterator[Collected]:
    """Deletes packs one by one, but for those that hold one of `needed`: first from the catalog, then the
    file. Needs no free space to speak of.
    """
    for key in keys:
        row = store.catalog.pack(key)
        if row is None:
            continue
        if needed and any(entry.id in needed for entry in store.catalog.entries(key)):
            continue
        store.packs.close()  # the space of a deleted file is free when nobody has it open
        path = store.layout.pack(row.id)
        try:
            store.catalog.drop_packs([key])
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # No room even for that. The other way round is safe too: who meets a pack that is gone stores
            # anew.
            path.unlink(missing_ok=True)
            store.catalog.drop_packs([key])
        else:
            path.unlink(missing_ok=True)
        yield Collected(packs=1, bytes=row.size)


def _missing(store: Store, ids: set[bytes]) -> set[bytes]:
    missing = set(ids)
    missing.difference_update(chunk_id for chunk_id, _, _, _ in store.catalog.scan())
    return missing


def _footer_ids(store: Store, key: int) -> list[bytes]:
    try:
        return [entry.id for entry in packs.read_entries(store.packs.path(key))[2]]
    except (PackDamaged, ChunkMissing, OSError):
        return []
