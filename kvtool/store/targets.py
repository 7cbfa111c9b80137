"""What a verification has to hash: the chunks that some snapshots need, or every chunk in every pack.

On the way it looks up what snapshots need. Memory is bounded by the largest pack and the largest stub,
however many there are.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal

from kvtool.core.index import Index
from kvtool.core.pack import ENTRY_SIZE
from kvtool.errors import IndexDamaged, PackDamaged
from kvtool.store import packs, stubs
from kvtool.store.catalog import Span
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
    """The jobs of a verification; `total` is about how many bytes they have.

    On the way `lacking` collects what snapshots need and the catalog does not know, and `damaged`, by path,
    the files that could not be read.
    """

    total: int

    def __init__(self, store: Store) -> None:
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
                table = catalog.table(Span(row.key, 0, sys.maxsize))
            yield from _jobs(row.id, layout.pack(row.id), table)
        while left := sorted(packs.list_packs(layout).keys() - done):  # sealed since, maybe with moved chunks
            done.update(left)
            for pack_id in left:
                yield from _jobs(pack_id, layout.pack(pack_id), self._footer(pack_id) or b"")

    def meanwhile(self) -> Iterator[None]:
        """The look-ups."""
        for _, index in self.needs(stubs.walk(self._store.layout)):
            self.lacking |= self._store.catalog.spans(index)[1]
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
        """Looks everything up. `snapshots` are paths of stubs. Raises OSError."""
        super().__init__(store)
        self._snapshots = snapshots
        self._look_up()
        self.total = sum(span.end - span.start for span in self._spans)

    def jobs(self) -> Iterator[Job]:
        """What is needed, pack by pack; and again what has been moved meanwhile."""
        catalog, layout = self._store.catalog, self._store.layout
        done: set[Span] = set()
        while todo := [span for span in self._spans if span not in done]:
            done.update(todo)
            ids = {row.key: row.id for row in catalog.packs()}
            for key, spans in groupby(todo, key=attrgetter("pack")):
                if key in ids:
                    table = b"".join(map(catalog.table, spans))
                    yield from _jobs(ids[key], layout.pack(ids[key]), table)
            if catalog.version() == self._version:
                return
            self._look_up()

    def meanwhile(self) -> Iterator[None]:
        """Nothing: all has been looked up before."""
        return iter(())

    def _look_up(self) -> None:
        self._version = self._store.catalog.version()
        spans: list[Span] = []
        merged = 0
        for _, index in self.needs(self._snapshots):
            found, lacking = self._store.catalog.spans(index)
            self.lacking |= lacking
            spans += found
            if len(spans) > 2 * merged:
                spans = _merged(spans)
                merged = len(spans)
        self._spans = _merged(spans)


def _merged(spans: list[Span]) -> list[Span]:
    """The same parts of packs in order, each once."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and merged[-1].pack == span.pack and span.start <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged


def _jobs(pack_id: bytes, path: Path, table: bytes) -> Iterator[Job]:
    for first in range(0, len(table), _JOB):
        yield Job(pack_id, path, table[first : first + _JOB])
