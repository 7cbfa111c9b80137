"""What the kernel does between a system call and the file system, over a `Vfs`: paths become lookups, lookups are counted
and forgotten, a description is flushed at each close and released at the last, appends go to the present size.

There is no cache: every path is looked up anew and forgotten at once, every read and write goes through. So this is
harder on the file system than the kernel is, which remembers what it knows.
"""

import errno
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from kvtool.fs.inodes import ROOT
from kvtool.fs.types import Attr, Caller, Change
from kvtool.fs.vfs import Vfs
from tests.property.calls import NAME_MAX, PATH_MAX, UMASK, Stat
from tests.property.tree import RENAME_EXCHANGE, RENAME_NOREPLACE, fail

PIECE = 1 << 20  # bytes of a request at most
READ_PIECE = 128 << 10
PAGE = 4096
_CALLER = Caller()


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


@dataclass(frozen=True)
class Found:
    """Where a path leads: the directories on the way (the last holds the name), and what is there."""

    above: tuple[int, ...]
    name: bytes
    there: Attr | None

    @property
    def parent(self) -> int:
        return self.above[-1]

    def existing(self) -> Attr:
        if self.there is None:
            raise fail(errno.ENOENT)
        return self.there

    def vacant(self) -> None:
        if self.there is not None:
            raise fail(errno.EEXIST)


def is_dir(attr: Attr) -> bool:
    return stat.S_ISDIR(attr.mode)


class Kernel:
    """The calls of `calls.Subject`, each `async`. Below `top`, a directory at the file system's root ("" for the root)."""

    def __init__(self, top: bytes = b"") -> None:
        self.vfs: Vfs | None = None
        self.top = top
        self.handles: dict[int, Description] = {}
        self.mappings: dict[int, tuple[Description, bool]] = {}
        self._next = 0

    def _vfs(self) -> Vfs:
        assert self.vfs is not None
        return self.vfs

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    # Lookups

    @asynccontextmanager
    async def _walked(self, path: bytes) -> AsyncIterator[Found]:
        """Looks a path up; everything looked up is forgotten at the end."""
        if len(path) > PATH_MAX:
            raise fail(errno.ENAMETOOLONG)
        vfs = self._vfs()
        known: list[int] = []
        try:
            above = [ROOT]
            *directories, last = [part for part in (self.top, path) if part] or [b""]
            names = b"/".join([*directories, last]).split(b"/")
            for name in names[:-1]:
                attr = vfs.lookup(above[-1], name)
                known.append(attr.ino)
                if not is_dir(attr):
                    raise fail(errno.ENOTDIR)
                above.append(attr.ino)
            there = None
            if names[-1]:
                try:
                    there = vfs.lookup(above[-1], names[-1])
                    known.append(there.ino)
                except FileNotFoundError:
                    pass
            else:
                there = vfs.getattr(ROOT)
            yield Found(tuple(above), names[-1], there)
        finally:
            for number in reversed(known):
                vfs.forget(number, 1)

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
                number, attr = await vfs.create(found.parent, found.name, mode & ~UMASK, flags, _CALLER)
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
            # Copied before anything else runs: what `read` returns may be a view of a buffer that is used again.
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
        return _stat(self._vfs().getattr(self.handles[handle].inode))

    async def fchmod(self, handle: int, mode: int) -> None:
        await self._vfs().setattr(self.handles[handle].inode, Change(mode=mode))

    async def futimens(self, handle: int, times: tuple[int, int] | None) -> None:
        await self._vfs().setattr(self.handles[handle].inode, _times(times))

    async def fallocate(self, handle: int, size: int) -> None:
        raise fail(errno.EOPNOTSUPP if self.handles[handle].writable else errno.EBADF)

    # Mappings: what is stored is written back at once, in whole pages, at the place it has whatever the flags say.

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

    # Paths

    async def truncate(self, path: bytes, size: int) -> None:
        async with self._walked(path) as found:
            if is_dir(found.existing()):
                raise fail(errno.EISDIR)
            await self._vfs().setattr(found.existing().ino, Change(size=size))

    async def stat(self, path: bytes) -> Stat:
        async with self._walked(path) as found:
            return _stat(self._vfs().getattr(found.existing().ino))

    async def atime(self, path: bytes) -> int:
        async with self._walked(path) as found:
            return found.existing().atime_ns

    async def chmod(self, path: bytes, mode: int) -> None:
        async with self._walked(path) as found:
            await self._vfs().setattr(found.existing().ino, Change(mode=mode))

    async def utimens(self, path: bytes, times: tuple[int, int] | None) -> None:
        async with self._walked(path) as found:
            await self._vfs().setattr(found.existing().ino, _times(times))

    async def listdir(self, path: bytes) -> list[bytes]:
        async with self._walked(path) as found:
            if not is_dir(found.existing()):
                raise fail(errno.ENOTDIR)
            number = self._vfs().opendir(found.existing().ino)
            try:
                return sorted(self._vfs().listdir(number, rewind=True))
            finally:
                self._vfs().releasedir(number)

    async def mkdir(self, path: bytes, mode: int) -> None:
        async with self._walked(path) as found:
            found.vacant()
            attr = self._vfs().mkdir(found.parent, found.name, mode & ~UMASK, _CALLER)
            self._vfs().forget(attr.ino, 1)

    async def rmdir(self, path: bytes) -> None:
        async with self._walked(path) as found:
            if not is_dir(found.existing()):
                raise fail(errno.ENOTDIR)
            self._vfs().rmdir(found.parent, found.name)

    async def unlink(self, path: bytes) -> None:
        async with self._walked(path) as found:
            if is_dir(found.existing()):
                raise fail(errno.EISDIR)
            await self._vfs().unlink(found.parent, found.name)

    async def rename(self, old: bytes, new: bytes, flags: int) -> None:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(self._walked(old))
            target = await stack.enter_async_context(self._walked(new))
            moved, there = source.existing(), target.there
            if flags & RENAME_NOREPLACE and there is not None:
                raise fail(errno.EEXIST)
            if flags & RENAME_EXCHANGE and there is None:
                raise fail(errno.ENOENT)
            if moved.ino in target.above:
                raise fail(errno.EINVAL)
            if there is not None and there.ino in source.above:
                raise fail(errno.EINVAL if flags & RENAME_EXCHANGE else errno.ENOTEMPTY)
            if there is not None and there.ino == moved.ino:
                return
            if there is not None and not flags & RENAME_EXCHANGE and is_dir(moved) != is_dir(there):
                raise fail(errno.ENOTDIR if is_dir(moved) else errno.EISDIR)
            await self._vfs().rename(source.parent, source.name, target.parent, target.name, flags)

    async def link(self, old: bytes, new: bytes) -> None:
        async with self._walked(old) as found:
            found.existing()
        await self._refuse(new)

    async def symlink(self, target: bytes, path: bytes) -> None:
        await self._refuse(path)

    async def mknod(self, path: bytes) -> None:
        await self._refuse(path)

    async def _refuse(self, path: bytes) -> None:
        """The adapter refuses these, so there is nothing to ask."""
        async with self._walked(path) as found:
            found.vacant()
            raise fail(errno.EPERM)

    # Extended attributes: XATTR_CREATE and XATTR_REPLACE are looked after by pyfuse3.

    async def setxattr(self, path: bytes, key: bytes, value: bytes, flags: int) -> None:
        async with self._walked(path) as found:
            inode = found.existing().ino
            if len(key) > NAME_MAX:
                raise fail(errno.ERANGE)
            if flags & os.XATTR_CREATE:
                try:
                    self._vfs().getxattr(inode, key)
                except OSError as error:
                    if error.errno != errno.ENODATA:
                        raise
                else:
                    raise fail(errno.EEXIST)
            elif flags & os.XATTR_REPLACE:
                self._vfs().getxattr(inode, key)
            self._vfs().setxattr(inode, key, value)

    async def getxattr(self, path: bytes, key: bytes) -> bytes:
        async with self._walked(path) as found:
            inode = found.existing().ino
            if len(key) > NAME_MAX:
                raise fail(errno.ERANGE)
            return self._vfs().getxattr(inode, key)

    async def listxattr(self, path: bytes) -> list[bytes]:
        async with self._walked(path) as found:
            return sorted(self._vfs().listxattr(found.existing().ino))

    async def removexattr(self, path: bytes, key: bytes) -> None:
        async with self._walked(path) as found:
            inode = found.existing().ino
            if len(key) > NAME_MAX:
                raise fail(errno.ERANGE)
            self._vfs().removexattr(inode, key)


def _times(times: tuple[int, int] | None) -> Change:
    if times is None:
        now = time.time_ns()
        return Change(atime_ns=now, mtime_ns=now)
    return Change(atime_ns=times[0], mtime_ns=times[1])


def _stat(attr: Attr) -> Stat:
    directory = is_dir(attr)
    return Stat(directory, 0 if directory else attr.size, stat.S_IMODE(attr.mode), attr.mtime_ns)
