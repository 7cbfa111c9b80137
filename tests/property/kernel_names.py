"""The half of the kernel's stand-in that deals with paths and attributes; `kernel.py` says what it is for."""

import errno
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from kvtool.fs.inodes import ROOT
from kvtool.fs.types import Attr, Caller, Change
from kvtool.fs.vfs import Vfs
from tests.property.calls import NAME_MAX, PATH_MAX, UMASK, Look, Stat
from tests.property.tree import RENAME_EXCHANGE, RENAME_NOREPLACE, fail, join

CALLER = Caller()


@dataclass
class Found:
    """Where a path leads: the directories on the way (the last holds the name), and what is there, once
    looked at.

    `known` are the inodes looked up so far.
    """

    above: list[int]
    name: bytes
    known: list[int]
    there: Attr | None = None

    @property
    def parent(self) -> int:
        return self.above[-1]

    def look(self, vfs: Vfs) -> None:
        """Look the last name up."""
        if not self.name:
            self.there = vfs.getattr(ROOT)
            return
        with suppress(FileNotFoundError):
            self.there = vfs.lookup(self.parent, self.name)
            self.known.append(self.there.ino)

    def existing(self) -> Attr:
        if self.there is None:
            raise fail(errno.ENOENT)
        return self.there

    def vacant(self) -> None:
        if self.there is not None:
            raise fail(errno.EEXIST)


def is_dir(attr: Attr) -> bool:
    return stat.S_ISDIR(attr.mode)


class Names:
    """The calls on paths."""

    def __init__(self) -> None:
        self.vfs: Vfs | None = None

    def _vfs(self) -> Vfs:
        assert self.vfs is not None
        return self.vfs

    @asynccontextmanager
    async def _walked(self, path: bytes, *, to_the_end: bool = True) -> AsyncIterator[Found]:
        """Looks a path up, unless told not `to_the_end`; everything looked up is forgotten when the block
        ends.
        """
        if len(path) > PATH_MAX:
            raise fail(errno.ENAMETOOLONG)
        vfs = self._vfs()
        *directories, last = path.split(b"/")
        found = Found([ROOT], last, [])
        try:
            for name in directories:
                attr = vfs.lookup(found.parent, name)
                found.known.append(attr.ino)
                if not is_dir(attr):
                    raise fail(errno.ENOTDIR)
                found.above.append(attr.ino)
            if to_the_end:
                found.look(vfs)
            yield found
        finally:
            for number in reversed(found.known):
                vfs.forget(number, 1)

    async def tree(self) -> dict[bytes, Look]:
        found: dict[bytes, Look] = {}
        pending = [b""]
        while pending:
            path = pending.pop()
            status = await self.stat(path)
            xattrs = {key: await self.getxattr(path, key) for key in await self.listxattr(path)}
            names = await self.listdir(path) if status.is_dir else None
            found[path] = Look(status, xattrs, names)
            pending += [join(path, name) for name in names or []]
        return found

    async def truncate(self, path: bytes, size: int) -> None:
        async with self._walked(path) as found:
            if is_dir(found.existing()):
                raise fail(errno.EISDIR)
            await self._vfs().setattr(found.existing().ino, Change(size=size))

    async def stat(self, path: bytes) -> Stat:
        async with self._walked(path) as found:
            return to_stat(self._vfs().getattr(found.existing().ino))

    async def atime(self, path: bytes) -> int:
        async with self._walked(path) as found:
            return found.existing().atime_ns

    async def chmod(self, path: bytes, mode: int) -> None:
        async with self._walked(path) as found:
            await self._vfs().setattr(found.existing().ino, Change(mode=mode))

    async def utimens(self, path: bytes, times: tuple[int, int] | None) -> None:
        async with self._walked(path) as found:
            await self._vfs().setattr(found.existing().ino, to_change(times))

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
            attr = self._vfs().mkdir(found.parent, found.name, mode & ~UMASK, CALLER)
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
        async with (
            self._walked(old, to_the_end=False) as source,
            self._walked(new, to_the_end=False) as target,
        ):
            source.look(self._vfs())
            moved = source.existing()
            target.look(self._vfs())
            there = target.there
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


def to_change(times: tuple[int, int] | None) -> Change:
    if times is None:
        now = time.time_ns()
        return Change(atime_ns=now, mtime_ns=now)
    return Change(atime_ns=times[0], mtime_ns=times[1])


def to_stat(attr: Attr) -> Stat:
    directory = is_dir(attr)
    return Stat(directory, 0 if directory else attr.size, stat.S_IMODE(attr.mode), attr.mtime_ns)
