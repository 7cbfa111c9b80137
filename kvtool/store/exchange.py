"""Snapshots out to a directory that casync and desync read, and in from one.

Out: DIR/NAME.caibx for each snapshot, byte for byte its stub, and DIR/default.castr with each chunk once.
An index is put in place after its chunks, so one that is there can be read, and a repetition writes what is
still absent. In: the bytes are put together from verified chunks and saved like any others, so the chunker's
sizes need not be the same. Both work a chunk at a time.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvtool.core import caibx
from kvtool.core import index as chunk_index
from kvtool.core.caibx import Digest
from kvtool.core.index import Index
from kvtool.errors import ChunkCorrupt, ChunkMissing, Damage, IndexDamaged, UsageError
from kvtool.store import castore, durable, mounts, stubs
from kvtool.store.castore import ChunkDirectory
from kvtool.store.fetch import read_chunk
from kvtool.store.names import NAME_MAX, existing_stub
from kvtool.store.store import Store

SUFFIX = ".caibx"
# Bytes of an import that an interruption costs at most: those before stay as orphans, which the next attempt
# finds and a collection frees.
SEAL_EVERY = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSnapshot:
    """One snapshot in the directory: its index file, and what of it was not there. Sizes in bytes."""

    name: str
    index: str
    size: int
    chunks: int
    new_chunks: int
    new_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotExported:
    """A snapshot that is damaged, so that it got no index in the directory, and what is wrong."""

    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """`kvtool export`: the directory of the chunks, and what was written, or with `dry_run` would be."""

    chunks: str
    snapshots: list[ExportedSnapshot]
    damaged: list[NotExported]
    dry_run: bool


class Export:
    """An export of snapshots to one directory. Reads the store alone, so it works beside a mount.

    With `verify` chunks that are there already are hashed; else their size is enough.
    """

    def __init__(self, store: Store, folder: str, *, verify: bool = False, dry_run: bool = False) -> None:
        """Raises UsageError when `folder` lies in the store, its stub tree or a mount of it."""
        self._store = store
        self._folder = os.fsencode(os.path.abspath(folder))
        self._verify = verify
        self._dry_run = dry_run
        layout = store.layout
        # A mountpoint is not resolved: the kernel's table has it without links, and the mount may hang.
        self._not_in = [
            *(Path(os.path.realpath(place)) for place in (layout.root, layout.stubs)),
            *(each.mountpoint for each in mounts.mounts() if each.store == layout.root),
        ]
        self._present: set[bytes] = set()  # chunks that are in the directory by now, or would be
        self.chunks = ChunkDirectory(os.path.join(self._folder, castore.NAME))
        for place in (self._folder, self.chunks.path):
            self._check_place(place)

    def run(self, name: str, done: Callable[[int], object] = lambda _count: None) -> ExportedSnapshot:
        """Writes one snapshot, telling `done` of each number of bytes done with.

        Raises Damage naming the snapshot, the offset in it and the chunk, and then writes no index;
        UsageError, NoSnapshot, OSError.
        """
        target = self.target(name)
        path = existing_stub(self._store.layout, name)
        while True:
            index = stubs.read_index(path)
            try:
                new = list(self._write_chunks(name, index, done))
                break
            except Damage:
                # A snapshot that was saved again or deleted meanwhile needs those chunks no longer.
                if stubs.read_index(existing_stub(self._store.layout, name)) == index:
                    raise
        if not self._dry_run:
            castore.make_folders(self._folder, os.path.dirname(target))
            if len(index):  # it must not outlive its chunks in a power cut, whoever wrote those and when
                durable.sync_folder(Path(os.fsdecode(self.chunks.path)))
            castore.put(target, chunk_index.encode(index), castore.aside_in(os.path.dirname(target)))
        return ExportedSnapshot(
            name=name,
            index=os.fsdecode(target),
            size=index.size,
            chunks=len(index),
            new_chunks=len(new),
            new_bytes=sum(new),
        )

    def target(self, name: str) -> bytes:
        """Where the index goes. Raises UsageError when it cannot."""
        parts = os.fsencode(name + SUFFIX).split(b"/")
        if parts[0] == castore.NAME:
            raise UsageError(
                f"'{name}' would lie in the chunk directory",
                hint="rename the snapshot's folder, then export it",
            )
        if len(parts[-1]) > NAME_MAX:
            raise UsageError(
                f"'{name}' is too long for an index, which has the suffix {SUFFIX}",
                hint="rename the snapshot, then export it",
            )
        target = os.path.join(self._folder, *parts)
        self._check_place(os.path.dirname(target))
        if os.path.isdir(target):
            raise UsageError(f"{os.fsdecode(target)} is a directory", hint="choose another --to")
        return target

    def _check_place(self, place: bytes) -> None:
        real = Path(os.path.realpath(os.fsdecode(place)))
        for inside in self._not_in:
            if real.is_relative_to(inside):
                raise UsageError(
                    f"{os.fsdecode(place)} lies in {inside}", hint="export to a directory of its own"
                )

    def _write_chunks(self, name: str, index: Index, done: Callable[[int], object]) -> Iterator[int]:
        """The bytes of each chunk that was absent and has been written."""
        start = 0
        for chunk_id, length in index.chunks():
            if chunk_id not in self._present and not self.chunks.has(chunk_id, length, verify=self._verify):
                if not self._dry_run:
                    self.chunks.write(chunk_id, self._read(name, start, chunk_id, length))
                yield length
            self._present.add(chunk_id)
            start += length
            done(length)

    def _read(self, name: str, start: int, chunk_id: bytes, length: int) -> bytes:
        try:
            return read_chunk(self._store, chunk_id, length)
        except (ChunkMissing, ChunkCorrupt) as error:
            text = error.message
            if chunk_id.hex() not in text:
                text = f"chunk {chunk_id.hex()} cannot be read: {text}"
            raise Damage(f"snapshot '{name}' at {start}: {text}", hint="kvtool verify tells of all") from None


class Assembled:
    """The bytes of a foreign index's file, each chunk verified as it is read: a `Source` for a save."""

    def __init__(self, path: str, chunks: str | None) -> None:
        """`path` is a `.caibx` file, `chunks` its chunk directory (None: `default.castr` beside it).

        Raises IndexDamaged, UsageError, OSError.
        """
        self._path = path
        self.index, self._digest = read_foreign(path)
        beside = os.path.join(os.path.dirname(path), os.fsdecode(castore.NAME))
        self._chunks = ChunkDirectory(os.fsencode(beside if chunks is None else chunks))
        self._wanted = self.index.chunks()
        self._start = 0
        self._left = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        """Fills `buffer` as far as there are bytes. Raises Damage, UsageError, OSError."""
        filled = 0
        while filled < len(buffer):
            if not self._left:
                wanted = next(self._wanted, None)
                if wanted is None:
                    break
                self._left = memoryview(self._read(*wanted))
                self._start += wanted[1]
            count = min(len(self._left), len(buffer) - filled)
            buffer[filled : filled + count] = self._left[:count]
            self._left = self._left[count:]
            filled += count
        return filled

    def _read(self, chunk_id: bytes, length: int) -> bytes:
        try:
            return self._chunks.read(chunk_id, length, self._digest)
        except (ChunkMissing, ChunkCorrupt) as error:
            error.message = f"{self._path} at {self._start}: {error.message}"
            raise


def read_foreign(path: str) -> tuple[Index, Digest]:
    """The index in a `.caibx` file of casync, desync or an export, and the digest of its ids.

    Raises IndexDamaged, UsageError for what is not taken in, OSError.
    """
    file = castore.open_regular(os.fsencode(os.path.realpath(path)))
    if file is None:
        raise UsageError(f"{path} is not a regular file", hint="name a .caibx file")
    with file:
        size = os.fstat(file.fileno()).st_size
        try:
            # First both ends: a file that is none may be of any size.
            head = file.read(chunk_index.HEADER_SIZE)
            digest = caibx.check_header(head)
            file.seek(size - chunk_index.TAIL_SIZE)
            chunk_index.check_tail(file.read(), size)
            file.seek(len(head))
            return caibx.decode(head + file.read()), digest
        except IndexDamaged as error:
            text = f"{path} is no .caibx index that can be read: {error.message}"
            raise IndexDamaged(text, hint="copy it again from where it was made") from None
        except UsageError as error:
            raise UsageError(f"{path} {error.message}", hint=error.hint) from None
