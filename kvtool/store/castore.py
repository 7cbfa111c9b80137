"""A directory of chunks as casync and desync read it, and kvtool with them: one file a chunk.

DIR/3f9c/3f9c...: the first four digits of the chunk's id, then all 64, without a suffix: the chunk as it is.
A file of the same name with the suffix `.cacnk` would be a compressed chunk; kvtool writes and reads none.
"""

import errno
import hashlib
import os
import stat
import time
from contextlib import suppress
from typing import BinaryIO

from kvtool.core.caibx import Digest
from kvtool.errors import ChunkCorrupt, ChunkMissing, UsageError

# Where casync looks when it is told of no store: beside the index.
NAME = b"default.castr"
_COMPRESSED = b".cacnk"
_ASIDE = b".part"
_LEFT_OVER = 3600  # seconds after which a file aside is one that nobody writes any longer
_AGAIN = "copy the chunk directory again, or export again to it with --verify"


class ChunkDirectory:
    """The chunks below one directory, which need not exist before the first is written."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self._folders: set[bytes] = set()

    def file(self, chunk_id: bytes) -> bytes:
        """Where the chunk belongs."""
        name = chunk_id.hex().encode()
        return os.path.join(self.path, name[:4], name)

    def has(self, chunk_id: bytes, length: int, *, verify: bool = False) -> bool:
        """Whether the chunk is there: a file of so many bytes, and with `verify` of the right ones.

        Raises OSError.
        """
        try:
            if verify:
                self.read(chunk_id, length)
                return True
            found = os.lstat(self.file(chunk_id))
        except (FileNotFoundError, NotADirectoryError, ChunkMissing, ChunkCorrupt, UsageError):
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == length

    def read(self, chunk_id: bytes, length: int, digest: Digest = "sha256") -> bytes:
        """The chunk, verified. Raises ChunkMissing, ChunkCorrupt, UsageError if compressed, OSError."""
        try:
            opened = open_regular(self.file(chunk_id))
        except (FileNotFoundError, NotADirectoryError):
            raise self._absent(chunk_id) from None
        if opened is None:
            raise self._wrong(chunk_id, length)
        with opened as file:
            if os.fstat(file.fileno()).st_size != length:
                raise self._wrong(chunk_id, length)
            data = file.read(length)
        # Python's own constructor of SHA-256 is the quicker one to make for each chunk.
        its = hashlib.sha256(data) if digest == "sha256" else hashlib.new(digest, data)
        if its.digest() != chunk_id:
            raise self._wrong(chunk_id, length)
        return data

    def write(self, chunk_id: bytes, data: bytes) -> None:
        """Puts the chunk in its place, whole or not at all. Raises OSError, UsageError."""
        path = self.file(chunk_id)
        folder = os.path.dirname(path)
        if not self._folders:
            make_folders(self.path, self.path)
            self._drop_leftovers()
        if folder not in self._folders:
            make_folders(self.path, folder)
            self._folders.add(folder)
        put(path, data, aside_in(self.path))

    def _drop_leftovers(self) -> None:
        """Removes what exports that were killed have left aside, but for what is not ours to remove."""
        with suppress(PermissionError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(b".") and entry.name.endswith(_ASIDE):
                    with suppress(FileNotFoundError, PermissionError):
                        if entry.stat(follow_symlinks=False).st_mtime < time.time() - _LEFT_OVER:
                            os.unlink(entry.path)

    def _absent(self, chunk_id: bytes) -> ChunkMissing | UsageError:
        where = os.fsdecode(self.path)
        if os.path.lexists(self.file(chunk_id) + _COMPRESSED):
            return UsageError(
                f"{where} holds compressed chunks (.cacnk), and only uncompressed ones are taken in",
                hint=f"casync extract --store={where} INDEX FILE, then kvtool chunk FILE",
            )
        if not os.path.isdir(self.path):
            return UsageError(f"there is no chunk directory {where}", hint="name it with --store")
        return ChunkMissing(f"chunk {chunk_id.hex()} is missing in {where}", hint=_AGAIN)

    def _wrong(self, chunk_id: bytes, length: int) -> ChunkCorrupt:
        return ChunkCorrupt(chunk_id, length, os.fsdecode(self.path), _AGAIN)


def open_regular(path: bytes) -> BinaryIO | None:
    """The file opened for reading; None for a link and for what is no regular file. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return open(fd, "rb")


def make_folders(top: bytes, folder: bytes) -> None:
    """Makes `folder`, which lies below `top`, and what it lies in; those below `top` must be no links.

    Raises UsageError, OSError.
    """
    with suppress(FileExistsError):
        if folder == top:
            os.makedirs(top, exist_ok=True)
        else:
            make_folders(top, os.path.dirname(folder))
            os.mkdir(folder)
    if not os.path.isdir(folder) or (folder != top and os.path.islink(folder)):
        raise UsageError(
            f"{os.fsdecode(folder)} is no directory", hint="move it away, or choose another --to"
        )


def put(path: bytes, data: bytes, aside: bytes) -> None:
    """Writes a file whole or not at all; `aside` is its name until then. Raises OSError naming `path`."""
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
            file.write(data)
        os.rename(aside, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(aside)
        if isinstance(error, OSError):
            error.filename = path  # a full disk is told without a name
        raise


def aside_in(folder: bytes) -> bytes:
    """A name there for a file that is being written: short, as its own may be as long as names can be.

    Not of the process's id: two containers that write to one directory may have the same.
    """
    return os.path.join(folder, b"." + os.urandom(8).hex().encode() + _ASIDE)
