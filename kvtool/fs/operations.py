"""The adapter between pyfuse3 and `vfs`: translates types and errors, decides nothing.

Only FUSEError may leave a handler: anything else would leave the caller hanging and end the mount.
"""

import errno
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any, ParamSpec, TypeVar, cast

import pyfuse3
from pyfuse3 import (
    ENOATTR,
    EntryAttributes,
    FileHandleT,
    FileInfo,
    FileNameT,
    FlagT,
    FUSEError,
    InodeT,
    ModeT,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    StatvfsData,
    XAttrNameT,
)

from kvtool.errors import KvtoolError
from kvtool.fs.costs import COMPUTED, Costs
from kvtool.fs.types import Attr, Caller, Change
from kvtool.fs.vfs import Vfs

log = logging.getLogger(__name__)
_FOREVER = 86400.0  # seconds: all changes go through the mount, so the kernel may remember
_BLKSIZE = 1 << 20
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _answered(handler: Callable[_P, Coroutine[Any, Any, _R]]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """Turns every exception into the errno that the caller sees, and counts."""
    name = handler.__name__

    @functools.wraps(handler)
    async def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        meters = cast("Operations", args[0]).meters
        began = perf_counter()
        try:
            return await handler(*args, **kwargs)
        except FUSEError:
            raise
        except OSError as error:
            meters.failed(name, error.errno or errno.EIO)
            raise FUSEError(error.errno or errno.EIO) from error
        except KvtoolError as error:
            meters.failed(name, error.errno)
            raise FUSEError(error.errno) from error
        except Exception as error:
            meters.failed(name, errno.EIO)
            log.exception("%s", name)
            raise FUSEError(errno.EIO) from error
        finally:
            meters.answered(name, perf_counter() - began)

    return wrapper


class Operations(pyfuse3.Operations):
    """pyfuse3's request handlers over a `Vfs`. `owned` says that new files belong to who made them."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # it reorders writes and sends pages twice

    def __init__(self, vfs: Vfs, costs: Costs, *, owned: bool) -> None:
        super().__init__()
        self._costs = costs
        self._vfs = vfs
        self.meters = vfs.env.meters
        self._owned = owned

    def _caller(self, ctx: RequestContext) -> Caller:
        return Caller(ctx.uid, ctx.gid) if self._owned else Caller()

    @_answered
    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        return _entry(self._vfs.lookup(parent_inode, name))

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        for inode, lookups in inode_list:
            self._vfs.forget(inode, lookups)

    @_answered
    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        return _entry(self._vfs.getattr(inode))

    @_answered
    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        change = Change(
            size=attr.st_size if fields.update_size else None,
            mode=attr.st_mode if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        return _entry(await self._vfs.setattr(inode, change))

    @_answered
    async def mkdir(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, ctx: RequestContext
    ) -> EntryAttributes:
        return _entry(self._vfs.mkdir(parent_inode, name, mode, self._caller(ctx)))

    @_answered
    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        self._vfs.rmdir(parent_inode, name)

    @_answered
    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        await self._vfs.unlink(parent_inode, name)

    @_answered
    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: FlagT,
        ctx: RequestContext,
    ) -> None:
        await self._vfs.rename(parent_inode_old, name_old, parent_inode_new, name_new, flags)

    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        raise FUSEError(errno.EPERM)

    async def mknod(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        raise FUSEError(errno.EPERM)

    async def symlink(
        self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext
    ) -> EntryAttributes:
        raise FUSEError(errno.EPERM)

    @_answered
    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        return self._vfs.opendir(inode)

    @_answered
    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        inode = self._vfs.directory(fh)
        names = self._vfs.listdir(fh, rewind=start_id == 0)
        for number in range(start_id, len(names)):
            try:
                attr = self._vfs.lookup(inode, names[number])
            except FileNotFoundError:
                continue
            if not pyfuse3.readdir_reply(token, names[number], _entry(attr), number + 1):
                self._vfs.forget(attr.ino, 1)
                return

    @_answered
    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        await self._vfs.fsyncdir(fh)

    @_answered
    async def releasedir(self, fh: FileHandleT) -> None:
        self._vfs.releasedir(fh)

    @_answered
    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, flags: FlagT, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        handle, attr = await self._vfs.create(parent_inode, name, mode, flags, self._caller(ctx))
        return self._opened(handle), _entry(attr)

    @_answered
    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> FileInfo:
        return self._opened(await self._vfs.open(inode, flags, ctx.pid))

    def _opened(self, handle: int) -> FileInfo:
        # The kernel's pages are kept: content changes by writes through the mount, or they are dropped.
        return FileInfo(fh=handle, keep_cache=True, direct_io=self._vfs.is_direct(handle))

    @_answered
    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        return cast(bytes, await self._vfs.read(fh, off, size))  # pyfuse3 takes any contiguous buffer

    @_answered
    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        return await self._vfs.write(fh, off, buf)

    @_answered
    async def flush(self, fh: FileHandleT) -> None:
        await self._vfs.flush(fh)

    @_answered
    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        await self._vfs.fsync(fh)

    @_answered
    async def release(self, fh: FileHandleT) -> None:
        await self._vfs.release(fh)

    @_answered
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        found = self._vfs.statfs()
        data = StatvfsData()
        for name in ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail"):
            setattr(data, f"f_{name}", getattr(found, f"f_{name}"))
        data.f_namemax = 255
        return data

    @_answered
    async def getxattr(self, inode: InodeT, name: XAttrNameT, ctx: RequestContext) -> bytes:
        # Before every write the kernel asks for security.capability: the quickest answer there is.
        if name.startswith(b"security."):
            raise FUSEError(ENOATTR)
        if name in COMPUTED:
            return await self._costs.xattr(inode, name)
        return self._vfs.getxattr(inode, name)

    @_answered
    async def setxattr(self, inode: InodeT, name: XAttrNameT, value: bytes, ctx: RequestContext) -> None:
        self._vfs.setxattr(inode, name, value)

    @_answered
    async def removexattr(self, inode: InodeT, name: XAttrNameT, ctx: RequestContext) -> None:
        self._vfs.removexattr(inode, name)

    @_answered
    async def listxattr(self, inode: InodeT, ctx: RequestContext) -> Sequence[XAttrNameT]:
        return self._vfs.listxattr(inode)


def _entry(attr: Attr) -> EntryAttributes:
    entry = EntryAttributes()
    entry.st_ino = attr.ino
    entry.st_mode = attr.mode
    entry.st_nlink = attr.nlink
    entry.st_uid = attr.uid
    entry.st_gid = attr.gid
    entry.st_size = attr.size
    entry.st_blocks = attr.blocks
    entry.st_blksize = _BLKSIZE
    entry.st_atime_ns = attr.atime_ns
    entry.st_mtime_ns = attr.mtime_ns
    entry.st_ctime_ns = attr.ctime_ns
    entry.entry_timeout = _FOREVER
    entry.attr_timeout = _FOREVER
    return entry
