"""Packs as files: writing one, sealing it, and reading from sealed ones."""

import os
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvtool.core import pack
from kvtool.core.chunker import Buffer
from kvtool.core.pack import Entry, Trailer
from kvtool.errors import ChunkMissing, PackDamaged
from kvtool.store.catalog import Catalog
from kvtool.store.layout import Layout, fsync_directory

_IOV_MAX = 1024  # buffers of one writev(2)
_OPEN_FILES = 64


class PackWriter:
    """A pack being written in incoming/. Seal it or discard it."""

    def __init__(self, layout: Layout) -> None:
        self.id = secrets.token_bytes(pack.PACK_ID_SIZE)
        self.entries: list[Entry] = []
        self._layout = layout
        self._path = layout.incoming / f"{self.id.hex()}.pack"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._end = 0
        try:
            self._write([pack.header(self.id)])
        except OSError:
            self.discard()
            raise

    def append(self, chunks: Sequence[tuple[bytes, memoryview]]) -> None:
        """Writes the chunks, each (id, data), behind those already there. Raises OSError."""
        position = self._end
        self._write([data for _, data in chunks])
        for chunk_id, data in chunks:
            self.entries.append(Entry(chunk_id, position, len(data), pack.checksum(data)))
            position += len(data)

    def seal(self, *, sync: bool) -> int:
        """Ends the pack, moves it into packs/ and returns its bytes; with `sync` it survives a power cut."""
        self._write([pack.footer(self.entries, self._end)])
        if sync:
            os.fdatasync(self._fd)
        os.close(self._fd)
        self._fd = -1
        target = self._layout.pack(self.id)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        self._path.rename(target)
        self._path = target
        if sync:
            fsync_directory(target.parent)
            fsync_directory(self._layout.packs)  # who made the folder may not have synced
        return self._end

    def discard(self) -> None:
        """Removes the pack, sealed or not; nothing refers to it yet."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._path.unlink(missing_ok=True)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        queue = [memoryview(buffer) for buffer in buffers]
        while queue:
            try:
                written = os.writev(self._fd, queue[:_IOV_MAX])
            except OSError as error:
                error.filename = str(self._layout.incoming)  # which disk is full
                raise
            self._end += written
            done = 0
            while done < len(queue) and written >= len(queue[done]):
                written -= len(queue[done])
                done += 1
            del queue[:done]
            if written:
                queue[0] = queue[0][written:]


class PackFiles:
    """Sealed packs by their catalog keys, with a bounded number of open files; for several threads."""

    def __init__(self, layout: Layout, catalog: Catalog) -> None:
        self._layout = layout
        self._catalog = catalog
        self._lock = threading.Lock()
        self._open: OrderedDict[int, list[int]] = OrderedDict()  # key -> [descriptor, users]

    def path(self, key: int) -> Path:
        """The pack's file. Raises ChunkMissing when the catalog does not know the pack."""
        row = self._catalog.pack(key)
        if row is None:
            raise ChunkMissing(
                f"pack {key} is not in the catalog", hint="delete the snapshot, or save it again"
            )
        return self._layout.pack(row.id)

    @contextmanager
    def lease(self, key: int) -> Iterator[int]:
        """The pack's descriptor, open until the block ends; after an error there the next opens anew.

        Raises ChunkMissing, OSError.
        """
        with self._lock:
            held = self._open.get(key)
            if held is None:
                self._close_idle(_OPEN_FILES - 1)
                held = self._open[key] = [self._open_file(key), 0]
            self._open.move_to_end(key)
            held[1] += 1
        try:
            yield held[0]
        except (ChunkMissing, OSError) as error:
            self.reopen(key)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(self.path(key))
            raise
        finally:
            with self._lock:
                held[1] -= 1
                if not held[1] and self._open.get(key) is not held:
                    os.close(held[0])

    def reopen(self, key: int) -> None:
        """Has the next lease open the pack anew: a good file may have taken the place of a damaged one."""
        with self._lock:
            held = self._open.pop(key, None)
            if held is not None and not held[1]:
                os.close(held[0])

    def data_end(self, key: int) -> int:
        """The offset that no chunk of the pack reaches beyond, by the size of its file; 0 when it is gone."""
        try:
            return os.stat(self.path(key)).st_size - pack.TRAILER_SIZE
        except (FileNotFoundError, ChunkMissing):
            return 0

    def is_whole(self, key: int) -> bool:
        """Whether the pack's file is there with all its bytes."""
        row = self._catalog.pack(key)
        try:
            return row is not None and os.stat(self._layout.pack(row.id)).st_size == row.size
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes what no reader uses."""
        with self._lock:
            self._close_idle(0)

    def _open_file(self, key: int) -> int:
        path = self.path(key)
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would have us wait
        except FileNotFoundError:
            raise ChunkMissing(f"pack {path} is gone", hint="delete the snapshot, or save it again") from None

    def _close_idle(self, keep: int) -> None:
        for key in [key for key, (_, users) in self._open.items() if not users]:
            if len(self._open) <= keep:
                break
            os.close(self._open.pop(key)[0])


def read_entries(path: Path, *, any_header: bool = False) -> tuple[bytes, int, list[Entry]]:
    """Id, bytes and chunks of a sealed pack, from its own footer. Raises PackDamaged, OSError.

    With `any_header` the footer counts, whatever name and header say; the id is then empty.
    """
    pack_id, size, table, trailer = _read_footer(path, any_header=any_header)
    return pack_id, size, pack.decode_footer(table, trailer)


def read_table(path: Path) -> bytes:
    """The footer's table of a sealed pack, as it was sealed. Raises PackDamaged, OSError."""
    _, _, table, trailer = _read_footer(path)
    pack.check_footer(table, trailer)
    return table


def _read_footer(path: Path, *, any_header: bool = False) -> tuple[bytes, int, bytes, Trailer]:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # reading a pipe would wait for ever
            raise PackDamaged(f"pack {path} is not a regular file", "header")
        size = os.fstat(file.fileno()).st_size
        pack_id = b"" if any_header else pack.decode_header(file.read(pack.HEADER_SIZE))
        if not any_header and path.stem != pack_id.hex():
            raise PackDamaged(f"pack {path} holds the header of pack {pack_id.hex()}", "name")
        file.seek(max(0, size - pack.TRAILER_SIZE))
        trailer = pack.decode_trailer(file.read(pack.TRAILER_SIZE), size)
        file.seek(trailer.footer_offset)
        return pack_id, size, file.read(trailer.footer_size), trailer


def damaged_chunks(path: Path, entries: Iterable[Entry]) -> list[Entry]:
    """Those of `entries` whose data in the pack at `path` does not have the checksum. Raises OSError."""
    with path.open("rb") as file:
        return [
            entry
            for entry in entries
            if pack.checksum(os.pread(file.fileno(), entry.length, entry.offset)) != entry.checksum
        ]


def list_packs(layout: Layout) -> dict[bytes, int]:
    """Every file of packs/ that lies where a pack of its name belongs: its id and bytes."""
    return {pack_id: size for _, pack_id, size in scan(layout) if pack_id is not None}


def scan(layout: Layout) -> Iterator[tuple[Path, bytes | None, int]]:
    """Everything in packs/: its path, and the id and bytes of a pack in its place, None and 0 for others."""
    for folder in os.scandir(layout.packs):
        if not folder.is_dir(follow_symlinks=False):
            yield Path(folder.path), None, 0
            continue
        for entry in os.scandir(folder.path):
            pack_id = _id_in_place(layout, entry)
            try:
                size = entry.stat(follow_symlinks=False).st_size if pack_id is not None else 0
            except FileNotFoundError:
                continue  # deleted by a collection just now
            yield Path(entry.path), pack_id, size


def _id_in_place(layout: Layout, entry: "os.DirEntry[str]") -> bytes | None:
    try:
        pack_id = bytes.fromhex(os.path.splitext(entry.name)[0])
    except ValueError:
        return None
    is_in_place = entry.path == str(layout.pack(pack_id)) and len(pack_id) == pack.PACK_ID_SIZE
    return pack_id if is_in_place and entry.is_file(follow_symlinks=False) else None
