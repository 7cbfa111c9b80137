"""What the kernel does between a system call and the file system, over a `Vfs`: paths become lookups,
lookups are counted and forgotten, a description is flushed at each close and released at the last, appends
go to the present size.

There is no cache: every path is looked up anew and forgotten at once, every read and write goes through. So
this is harder on the file system than the kernel is, which remembers what it knows.
"""

import errno
import os
from dataclasses import dataclass

from kvtool.fs.types import Change
from tests.property.calls import UMASK, Stat
from tests.property.kernel_names import CALLER, Names, is_dir, to_change, to_stat
from tests.property.tree import fail

PIECE = 1 << 20  # bytes of a request at most
READ_PIECE = 128 << 10
PAGE = 4096


@dataclass(eq=False)
class Description:
    """An open file description, and how many descriptors and mappings hold it."""

    number: int
    inode: int
    flags: int
    is_dir: bool
    offset: int = 0
    holders: int = 1

    @property
    def readable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_WRONLY

    @property
    def writable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY


class Kernel(Names):
    """The calls of `calls.Subject`, each `async`."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: dict[int, Description] = {}
        self.mappings: dict[int, tuple[Description, bool]] = {}
        self._next = 0

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    # Handles

    def _opened(self, number: int, inode: int, flags: int, directory: bool) -> int:
        handle = self._number()
        self.handles[handle] = Description(number, inode, flags, directory)
        return handle

    async def open(self, path: bytes, flags: int, mode: int) -> int:
        vfs = self._vfs()
        async with self._walked(path) as found:
            if found.there is None:
                if not flags & os.O_CREAT:
                    raise fail(errno.ENOENT)
                number, attr = await vfs.create(found.parent, found.name, mode & ~UMASK, flags, CALLER)
                return self._opened(number, attr.ino, flags, directory=False)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise fail(errno.EEXIST)
            directory = is_dir(found.there)
            if directory:
                if flags & (os.O_CREAT | os.O_TRUNC) or flags & os.O_ACCMODE != os.O_RDONLY:
                    raise fail(errno.EISDIR)
                number = vfs.opendir(found.there.ino)
            else:
                number = await vfs.open(found.there.ino, flags & ~(os.O_CREAT | os.O_EXCL))
            # The description keeps the inode known.
            vfs.lookup(found.parent, found.name)
            return self._opened(number, found.there.ino, flags, directory)

    async def dup(self, handle: int) -> int:
        description = self.handles[handle]
        description.holders += 1
        number = self._number()
        self.handles[number] = description
        return number

    async def close(self, handle: int) -> None:
        description = self.handles.pop(handle)
        try:
            if not description.is_dir:
                await self._vfs().flush(description.number)
        finally:
            await self._let_go(description)

    async def _let_go(self, description: Description) -> None:
        description.holders -= 1
        if not description.holders:
            if description.is_dir:
                self._vfs().releasedir(description.number)
            else:
                await self._vfs().release(description.number)
            self._vfs().forget(description.inode, 1)

    async def pread(self, handle: int, length: int, offset: int) -> bytes:
        description = self.handles[handle]
        if not description.readable:
            raise fail(errno.EBADF)
        if description.is_dir:
            raise fail(errno.EISDIR)
        return await self._read(description, length, offset)

    async def _read(self, description: Description, length: int, offset: int) -> bytes:
        parts: list[bytes] = []
        while length:
            # Copied before anything else runs: what `read` returns may be a view of a buffer that is used
            # again.
            part = bytes(await self._vfs().read(description.number, offset, min(length, READ_PIECE)))
            parts.append(part)
            if len(part) < min(length, READ_PIECE):
                break
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    async def read(self, handle: int, length: int) -> bytes:
        data = await self.pread(handle, length, self.handles[handle].offset)
        self.handles[handle].offset += len(data)
        return data

    async def _size(self, description: Description) -> int:
        return self._vfs().getattr(description.inode).size

    async def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        description = self.handles[handle]
        if not description.writable:
            raise fail(errno.EBADF)
        if not data:
            return 0
        if description.flags & os.O_APPEND:
            offset = await self._size(description)
        await self._write(description, data, offset)
        return len(data)

    async def _write(self, description: Description, data: bytes, offset: int) -> None:
        done = 0
        while done < len(data):
            piece = data[done : done + PIECE - (offset + done) % PAGE]
            done += await self._vfs().write(description.number, offset + done, piece)

    async def write(self, handle: int, data: bytes) -> int:
        description = self.handles[handle]
        if description.writable and data and description.flags & os.O_APPEND:
            description.offset = await self._size(description)
        done = await self.pwrite(handle, data, description.offset)
        description.offset += done
        return done

    async def seek(self, handle: int, offset: int, whence: int) -> int:
        description = self.handles[handle]
        start = {os.SEEK_SET: 0, os.SEEK_CUR: description.offset, os.SEEK_END: await self._size(description)}
        if start[whence] + offset < 0:
            raise fail(errno.EINVAL)
        description.offset = start[whence] + offset
        return description.offset

    async def ftruncate(self, handle: int, size: int) -> None:
        if size < 0 or not self.handles[handle].writable:
            raise fail(errno.EINVAL)
        await self._vfs().setattr(self.handles[handle].inode, Change(size=size))

    async def fsync(self, handle: int) -> None:
        description = self.handles[handle]
        if description.is_dir:
            await self._vfs().fsyncdir(description.number)
        else:
            await self._vfs().fsync(description.number)

    async def fstat(self, handle: int) -> Stat:
        return to_stat(self._vfs().getattr(self.handles[handle].inode))

    async def fchmod(self, handle: int, mode: int) -> None:
        await self._vfs().setattr(self.handles[handle].inode, Change(mode=mode))

    async def futimens(self, handle: int, times: tuple[int, int] | None) -> None:
        await self._vfs().setattr(self.handles[handle].inode, to_change(times))

    async def fallocate(self, handle: int, size: int) -> None:
        raise fail(errno.EOPNOTSUPP if self.handles[handle].writable else errno.EBADF)

    # Mappings: what is stored is written back at once, in whole pages, at the place it has whatever the
    # flags say.

    async def map(self, handle: int, writable: bool) -> int:
        description = self.handles[handle]
        if not description.readable or (writable and not description.writable):
            raise fail(errno.EACCES)
        if description.is_dir:
            raise fail(errno.ENODEV)
        description.holders += 1
        number = self._number()
        self.mappings[number] = description, writable
        return number

    async def map_load(self, mapping: int, offset: int, length: int) -> bytes:
        return await self._read(self.mappings[mapping][0], length, offset)

    async def map_store(self, mapping: int, offset: int, data: bytes) -> None:
        description, _ = self.mappings[mapping]
        start, end = offset // PAGE * PAGE, -(-(offset + len(data)) // PAGE) * PAGE
        pages = bytearray(await self._read(description, end - start, start))
        pages[offset - start : offset - start + len(data)] = data
        await self._write(description, bytes(pages), start)

    async def unmap(self, mapping: int) -> None:
        await self._let_go(self.mappings.pop(mapping)[0])
