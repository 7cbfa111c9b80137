"""What a verification has to hash: the chunks that some snapshots need, or every chunk in every pack.

On the way it looks up what snapshots need. Memory is bounded by the largest pack and the largest stub,
however many there are.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvtool.core.index import ID_SIZE, Index
from kvtool.core.pack import ENTRY_SIZE, encode_entries, encode_places
from kvtool.errors import IndexDamaged, PackDamaged
from kvtool.store import packs, stubs
from kvtool.store.catalog import Part
from kvtool.store.hashers import Job
from kvtool.store.store import Store

_JOB = 512 * ENTRY_SIZE  # of a table is what a process is given at once

Need = tuple[bytes, int]  # a chunk's id, and the bytes that a snapshot takes it to have


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A pack whose header, footer or trailer is wrong, or a file in the stub tree that is no stub."""

    kind: Literal["pack", "stub"]
    path: str
    message: str


class Targets:
    """The jobs of a verification; `total` is about how many bytes they have at most.

    On the way `spared` counts those of them that were hashed before, `lacking` collects what snapshots need
    and the catalog does not know, and `damaged`, by path, the files that could not be read.
    """

    total: int

    def __init__(self, store: Store) -> None:
        self.spared = 0
        self.lacking: set[Need] = set()
        self.damaged: dict[str, DamagedFile] = {}
        self._store = store

    def jobs(self) -> Iterator[Job]:
        """What to hash, pack by pack, in the order in which it lies there."""
        raise NotImplementedError

    def meanwhile(self) -> Iterator[None]:
        """What else there is to do, in steps of a few milliseconds."""
        raise NotImplementedError

    def needs(self, paths: Iterable[bytes]) -> Iterator[tuple[bytes, Index]]:
        """The stubs at those paths that have been committed, with their indexes."""
        for path in paths:
            try:
                if stubs.get(path, stubs.INCOMPLETE) is None:
                    yield path, stubs.read_index(path)
            except FileNotFoundError:
                continue  # deleted or renamed meanwhile
            except (IndexDamaged, OSError) as error:
                self._note_damaged("stub", os.fsdecode(path), error)

    def _note_damaged(self, kind: Literal["pack", "stub"], path: str, error: Exception) -> None:
        message = error.message if isinstance(error, IndexDamaged | PackDamaged) else str(error)
        if isinstance(error, OSError) and error.strerror:
            message = error.strerror
        self.damaged[path] = DamagedFile(kind, path, message)


class Everything(Targets):
    """Every chunk in every pack, and whether the catalog knows what snapshots need.

    A pack's own footer says what is in it, and when that is damaged the catalog; whether both agree is not
    looked at.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.total = sum(row.size for row in store.catalog.packs())

    def jobs(self) -> Iterator[Job]:
        """Pack by pack, those that the catalog knows first."""
        layout, catalog = self._store.layout, self._store.catalog
        done: set[bytes] = set()
        for row in catalog.packs():
            done.add(row.id)
            table = self._footer(row.id)
            if table is None:
                table = encode_entries(catalog.entries(row.key))
            yield from _jobs(row.id, layout.pack(row.id), table)
        while left := sorted(packs.list_packs(layout).keys() - done):  # sealed since, maybe with moved chunks
            done.update(left)
            for pack_id in left:
                yield from _jobs(pack_id, layout.pack(pack_id), self._footer(pack_id) or b"")

    def meanwhile(self) -> Iterator[None]:
        """The look-ups."""
        for _, index in self.needs(stubs.walk(self._store.layout)):
            self.lacking |= self._store.catalog.parts(index)[1]
            yield

    def _footer(self, pack_id: bytes) -> bytes | None:
        path = self._store.layout.pack(pack_id)
        try:
            return packs.read_table(path)
        except FileNotFoundError:
            return None  # whether that matters, those that need its chunks tell
        except (PackDamaged, OSError) as error:
            self._note_damaged("pack", str(path), error)
            return None


class Needed(Targets):
    """What some snapshots need, each chunk once, where the catalog places it."""

    def __init__(self, store: Store, snapshots: Sequence[bytes]) -> None:
        """`snapshots` are paths of stubs."""
        super().__init__(store)
        self._snapshots = snapshots
        self.total = sum(map(_size, snapshots))

    def jobs(self) -> Iterator[Job]:
        """Snapshot by snapshot, so that hashing begins at once; and again what moved meanwhile."""
        catalog, layout = self._store.catalog, self._store.layout
        done: dict[int, array[int]] = {}
        version = None
        while version != (version := catalog.version()):
            for _, index in self.needs(self._snapshots):
                parts, lacking = catalog.parts(index)
                self.lacking |= lacking
                left = index.size
                for part in parts:
                    seen = done.setdefault(part.pack, array("q"))
                    new = _unseen(part, seen)
                    row = catalog.pack(part.pack)
                    if new.offsets and row is not None:
                        seen += new.offsets
                        left -= sum(new.lengths)
                        table = encode_places(new.ids, new.offsets, new.lengths)
                        yield from _jobs(row.id, layout.pack(row.id), table)
                self.spared += left

    def meanwhile(self) -> Iterator[None]:
        """Nothing: looking up is what the jobs are made of."""
        return iter(())


def _size(path: bytes) -> int:
    try:
        return stubs.attributes(path).size
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _unseen(part: Part, seen: "array[int]") -> Part:
    """Those chunks of a part of a pack whose offsets are not in `seen`."""
    old = set(part.offsets).intersection(seen)
    if not old:
        return part
    new = [i for i, offset in enumerate(part.offsets) if offset not in old]
    ids = b"".join([part.ids[ID_SIZE * i : ID_SIZE * (i + 1)] for i in new])
    offsets, lengths = (array("q", [column[i] for i in new]) for column in (part.offsets, part.lengths))
    return Part(part.pack, ids, offsets, lengths)


def _jobs(pack_id: bytes, path: Path, table: bytes) -> Iterator[Job]:
    for first in range(0, len(table), _JOB):
        yield Job(pack_id, path, table[first : first + _JOB])
