"""One save: bytes in order go in; they are cut, hashed and looked up, and new chunks go into one pack.

Nothing refers to the pack until `finish` has sealed it and entered it in the catalog; whatever ends a save
before that leaves nothing behind.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import xxhash

from kvtool.core import chunker
from kvtool.store.catalog import Location
from kvtool.store.digests import Digester, Digests
from kvtool.store.fetch import read_chunk
from kvtool.store.packs import PackWriter
from kvtool.store.store import Store

_READ_SIZE = 4 << 20


class Source(Protocol):
    """What a save reads: an open file, or anything else that fills buffers until it gives 0."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fills some of `buffer`, and returns how many bytes."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save gave: its chunks in order (bytes each, ids concatenated), and what of it was new."""

    lengths: "array[int]"
    ids: bytes
    new_chunks: int
    new_bytes: int


class Ingest:
    """One save into a store: `feed` and `settle` each piece, then `finish`.

    Between the two a `digester` is at work, so the next piece is better fed before the last one is settled.
    After any exception, and when it is given up, call `discard`.

    With `resume` the save begins with that chunk's bytes, read back and verified: an append takes the last
    chunk of the file back and cuts it again with what follows, as one pass over all would have.
    """

    def __init__(
        self,
        store: Store,
        *,
        digester: Digester | None = None,
        resume: tuple[bytes, int] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Raises ChunkMissing or ChunkCorrupt when the chunk `resume` (id, bytes) cannot be read back."""
        self._store = store
        self._digester = digester
        self._sizes = store.sizes
        self._dry_run = dry_run
        self._digest = xxhash.xxh3_128()
        self._lengths: array[int] = array("Q")
        self._ids: list[bytes] = []
        self._fresh: set[bytes] = set()
        self._stale: set[bytes] = set()
        self._reach: dict[int, int] = {}  # pack key -> where its data ends at most
        self._writer: PackWriter | None = None
        self._new_bytes = 0
        self._unsettled: deque[Digests] = deque()
        self._carry = read_chunk(store, *resume) if resume else b""

    @property
    def headroom(self) -> int:
        """The bytes that `feed` needs in front of the data."""
        return self._sizes.max_size

    @property
    def ids(self) -> Sequence[bytes]:
        """The chunks that are settled, in order."""
        return self._ids

    @property
    def digest(self) -> bytes:
        """XXH3-128 of all bytes fed."""
        return self._digest.digest()

    def feed(self, buffer: memoryview, start: int, length: int, at: int = 0) -> None:
        """Cuts `length` bytes at `start` of `buffer`, after overwriting the `headroom` before them.

        The buffer must not change until they are settled; with a digester it lies `at` in its memory.
        """
        self._digest.update(buffer[start : start + length])
        begin = start - len(self._carry)
        buffer[begin:start] = self._carry
        pieces = self._cut(buffer[begin : start + length], final=False)
        self._unsettled.append(
            self._digester.begin(at + begin, pieces) if self._digester else Digests(pieces)
        )

    def settle(self) -> None:
        """Stores what is new of the oldest piece fed that is not settled. Raises OSError, such as ENOSPC."""
        digests = self._unsettled.popleft()
        self._store_new(list(zip(digests.get(), digests.pieces, strict=True)))

    def finish(self) -> Saved:
        """Settles the rest, seals the pack and enters it in the catalog. Raises OSError."""
        self._unsettled.append(Digests(self._cut(memoryview(self._carry), final=True)))
        while self._unsettled:
            self.settle()
        self.seal()
        return Saved(self._lengths, b"".join(self._ids), len(self._fresh), self._new_bytes)

    def seal(self) -> None:
        """Seals the pack and enters it in the catalog; what comes next goes into another. Raises OSError.

        What is settled is then found by the next save of the same bytes, also when this one is given up.
        """
        if self._writer is not None:
            size = self._writer.seal(sync=self._store.sync)
            self._store.catalog.add_pack(self._writer.id, size, self._writer.entries, self._stale)
            self._writer = None
            self._stale = set()

    def discard(self) -> None:
        """Gives the save up and removes its pack."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def _cut(self, data: memoryview, *, final: bool) -> list[memoryview]:
        pieces: list[memoryview] = []
        position = 0
        for length in chunker.cut(data, self._sizes, final=final):
            pieces.append(data[position : position + length])
            self._lengths.append(length)
            position += length
        self._carry = bytes(data[position:])
        return pieces

    def _store_new(self, chunks: Sequence[tuple[bytes, memoryview]]) -> None:
        self._ids.extend(chunk_id for chunk_id, _ in chunks)
        known = self._store.catalog.find(chunk_id for chunk_id, _ in chunks)
        new = []
        for chunk_id, piece in chunks:
            if chunk_id in self._fresh:
                continue
            if (location := known.get(chunk_id)) is not None:
                if location.length == len(piece) and self._is_present(location):
                    continue
                self._stale.add(chunk_id)
            self._fresh.add(chunk_id)
            self._new_bytes += len(piece)
            new.append((chunk_id, piece))
        if new and not self._dry_run:
            if self._writer is None:
                self._writer = PackWriter(self._store.layout)
            self._writer.append(new)

    def _is_present(self, location: Location) -> bool:
        """Whether the chunk's pack is there and long enough; each pack is looked at once a save."""
        if location.pack not in self._reach:
            self._reach[location.pack] = self._store.packs.data_end(location.pack)
        return location.offset + location.length <= self._reach[location.pack]


def ingest_file(
    store: Store,
    file: Source,
    *,
    dry_run: bool = False,
    done: Callable[[int], object] = lambda _count: None,
    seal_every: int | None = None,
) -> Saved:
    """Saves what is left to read of `file`, telling `done` of each number of bytes.

    Raises OSError and what reading raises; nothing is left behind then, or with `seal_every` the chunks of
    all but the last so many bytes: orphans, which the next attempt finds.
    """
    ingest = Ingest(store, dry_run=dry_run)
    buffer = memoryview(bytearray(ingest.headroom + _READ_SIZE))
    unsealed = 0
    try:
        while count := file.readinto(buffer[ingest.headroom :]):
            ingest.feed(buffer, ingest.headroom, count)
            ingest.settle()
            done(count)
            unsealed += count
            if seal_every is not None and unsealed >= seal_every:
                ingest.seal()
                unsealed = 0
        return ingest.finish()
    except BaseException:
        ingest.discard()
        raise
