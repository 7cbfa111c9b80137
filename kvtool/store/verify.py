"""Verification: hashing what is stored, each chunk once, and naming every snapshot that damage touches.

Read-only and without the lock, so a mount may save, collect and move chunks meanwhile: what looks wrong is
looked up and looked at again at the end, before it is called damage.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvtool.core.pack import ENTRY_SIZE, entries_in
from kvtool.store import badlist, hashers, stubs
from kvtool.store.badlist import Copy
from kvtool.store.hasher import Fault, Kind
from kvtool.store.hashers import Hashers
from kvtool.store.store import Store
from kvtool.store.targets import DamagedFile, Everything, Need, Needed, Targets


@dataclass(frozen=True, slots=True)
class Place:
    """Where a snapshot needs a chunk: the snapshot's name in the mount, the offset in it."""

    snapshot: str
    offset: int


@dataclass(frozen=True, slots=True)
class BadChunk:
    """A copy of a chunk that is damaged, or a chunk that is missing; sizes in bytes.

    `pack` (a path) and `offset` in it are null when no pack has the chunk. `places` are those that need it:
    none for an orphan, and for a copy beside a good one.
    """

    kind: Kind
    chunk: str
    length: int
    pack: str | None
    offset: int | None
    reason: str
    places: list[Place]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification looked at, what it found, and how many bad copies a repair has marked.

    `failure` says why it could not mark them.
    """

    chunks: int
    bytes: int
    seconds: float
    bad: list[BadChunk]
    damaged: list[DamagedFile]
    marked: int = 0
    failure: str | None = None


class Verification:
    """One verification of the chunks that these stubs need, or of every chunk in every pack.

    `total` is about how many bytes there are to hash at most. After `run`, `copies` are the bad ones.
    """

    def __init__(self, store: Store, snapshots: Sequence[bytes] | None = None) -> None:
        """`snapshots` are paths of stubs. Raises OSError."""
        self.copies: list[Copy] = []
        self._store = store
        self._targets: Targets = Everything(store) if snapshots is None else Needed(store, snapshots)
        self._suspects: set[Copy] = set()
        self.total = self._targets.total

    def run(
        self, done: Callable[[int], object] = lambda _count: None, processes: int | None = None
    ) -> Verified:
        """Hashes, telling `done` of each number of bytes done with. To be called from the main thread.

        Raises OSError, and KvtoolError when a process died.
        """
        started = time.monotonic()
        chunks = size = spared = 0
        targets = self._targets
        with Hashers(hashers.count_for(self.total) if processes is None else processes) as at_work:
            for job, looked in at_work.run(targets.jobs(), targets.meanwhile()):
                chunks += len(job.table) // ENTRY_SIZE
                size += looked.bytes
                done(looked.bytes + targets.spared - spared)
                spared = targets.spared
                if looked.faults:
                    entries = entries_in(job.table)
                    self._suspects.update(Copy(job.pack, *entries[at][:3]) for at in looked.faults)
        done(targets.spared - spared)
        seconds = time.monotonic() - started
        bad = self._confirmed() if self._suspects or targets.lacking else []
        return Verified(chunks, size, seconds, bad, list(targets.damaged.values()))

    def _confirmed(self) -> list[BadChunk]:
        """Looks at all that looked wrong again, after a look at who needs it."""
        needs = self._targets.lacking | {(copy.chunk, copy.length) for copy in self._suspects}
        places = self._places(needs)
        bad: list[BadChunk] = []
        for need in sorted(needs):
            copy, fault = self._look_again(need)
            if copy is not None:
                self._suspects.discard(copy)
            if fault is not None and (fault.kind != "missing" or need in places):
                bad.append(self._record(need, copy, fault, places.get(need, [])))
        # What is left is no chunk's place, or not any more: a copy beside a good one, or a forgotten one.
        listed = badlist.read(self._store.layout)
        for copy in sorted(self._suspects):
            fault = badlist.look(self._store.layout, copy)
            if fault is not None and fault.kind != "missing" and copy not in listed:
                bad.append(self._record((copy.chunk, copy.length), copy, fault, []))
        return bad

    def _look_again(self, need: Need) -> tuple[Copy | None, Fault | None]:
        """The place of a chunk now, and what is wrong there."""
        chunk_id, length = need
        before = None
        while True:
            location = self._store.catalog.find([chunk_id]).get(chunk_id)
            row = self._store.catalog.pack(location.pack) if location is not None else None
            if location is None or row is None or location.length != length:
                return None, Fault("missing", "no pack has it")
            copy = Copy(row.id, chunk_id, location.offset, length)
            fault = badlist.look(self._store.layout, copy)
            if fault is None or location == before:
                return copy, fault
            before = location  # it may have been moved between the two looks

    def _places(self, needs: set[Need]) -> dict[Need, list[Place]]:
        places: dict[Need, list[Place]] = {}
        layout = self._store.layout
        for path, index in self._targets.needs(stubs.walk(layout)):
            start = 0
            for need in index.chunks():
                if need in needs:
                    places.setdefault(need, []).append(Place(stubs.name_of(layout, path), start))
                start += need[1]
        return places

    def _record(self, need: Need, copy: Copy | None, fault: Fault, places: list[Place]) -> BadChunk:
        path = offset = None
        if copy is not None:
            path, offset = str(self._store.layout.pack(copy.pack)), copy.offset
            if fault.kind != "missing":
                self.copies.append(copy)
        return BadChunk(fault.kind, need[0].hex(), need[1], path, offset, fault.reason, places)
