"""A plain copy of a file in the store's staging/ folder, for writes that do not come in order."""

import os
import tempfile

import trio

from kvtool.core.index import Index
from kvtool.fs.writer import SaveStream
from kvtool.store.fetch import read_file
from kvtool.store.slots import DATA_SIZE
from kvtool.store.store import Store


class Staging:
    """The copy: written and read anywhere, saved as a whole at commit. Blocking calls run in threads."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size = size

    @classmethod
    async def create(cls, store: Store, index: Index) -> "Staging":
        """A copy of the file that `index` describes. Raises KvtoolError, OSError."""
        fd = await trio.to_thread.run_sync(_copy, store, index)
        return cls(fd, index.size)

    async def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`."""
        return await trio.to_thread.run_sync(os.pread, self._fd, size, offset)

    async def write(self, offset: int, data: bytes) -> None:
        """Writes all of `data`; a hole before it reads as zeros."""
        await trio.to_thread.run_sync(_write_all, self._fd, data, offset)
        self.size = max(self.size, offset + len(data))

    async def truncate(self, size: int) -> None:
        """Cuts it, or lengthens it with zeros."""
        await trio.to_thread.run_sync(os.ftruncate, self._fd, size)
        self.size = size

    async def send_to(self, stream: SaveStream) -> None:
        """Feeds the whole copy to a save, piece by piece, so that other saves get their turn."""
        position = 0
        while piece := await self.read(position, DATA_SIZE):
            await stream.write(piece)
            position += len(piece)

    async def close(self) -> None:
        """Frees the space."""
        await trio.to_thread.run_sync(os.close, self._fd)


def _copy(store: Store, index: Index) -> int:
    # The file has no name from the start, so nothing of it can outlive the mount.
    fd, path = tempfile.mkstemp(dir=store.layout.staging)
    os.unlink(path)
    try:
        for piece in read_file(store, index):
            _write_all(fd, piece, os.lseek(fd, 0, os.SEEK_CUR))
            os.lseek(fd, len(piece), os.SEEK_CUR)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
