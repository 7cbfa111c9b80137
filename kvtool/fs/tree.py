"""Names and attributes: rename, unlink, mkdir and so on are the same call on the stub, so as atomic as there.

Nothing waits between a check and its act; what waits comes after.
"""

import errno
import os
import shutil
import stat

import trio

from kvtool.fs import xattrs
from kvtool.fs.environment import Environment
from kvtool.fs.files import File
from kvtool.fs.inodes import ROOT, Inode, is_plain
from kvtool.fs.prefetch import Prefetch, Prefetched
from kvtool.fs.types import Attr, Caller, Change, Handle
from kvtool.store import stubs
from kvtool.store.layout import RESERVED, fsync_directory

RENAME_NOREPLACE = 1


class Tree:
    """The names and attributes of a mount. Inodes and handles go by number, names are bytes."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.inodes = env.inodes
        self.prefetch = Prefetch(env.inodes)
        self._handles: dict[int, Handle] = {}
        self._last_handle = 0

    def lookup(self, parent: int, name: bytes) -> Attr:
        """The inode of a name, which the caller now knows once more (see `forget`)."""
        directory = self.inodes[parent]
        status = os.lstat(self.inodes.child_path(directory, name))
        inode = self.inodes.child(directory, name)
        inode.lookups += 1
        return self._attr(inode, status)

    def forget(self, number: int, lookups: int) -> None:
        """The caller no longer knows the inode so many times."""
        try:
            self.inodes.forget(self.inodes[number], lookups)
        except OSError:
            return

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller) -> Attr:
        """A new directory."""
        directory = self.inodes[parent]
        path = self.inodes.child_path(directory, name, creating=True)
        gid, setgid = self._group(directory, caller)
        os.mkdir(path, 0o700)
        if caller.uid is not None and gid is not None:
            os.chown(path, caller.uid, gid)
        os.chmod(path, stat.S_IMODE(mode) | setgid)
        return self.lookup(parent, name)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Removes an empty directory."""
        directory = self.inodes[parent]
        path = self.inodes.child_path(directory, name)
        inode = directory.children.get(name)
        kept = self._keep_directory(inode, path)
        try:
            os.rmdir(path)
        except OSError:
            if kept is not None:
                stubs.drop(kept)
            raise
        if inode is not None:
            self.inodes.unlinked(inode, kept)

    async def unlink(self, parent: int, name: bytes) -> None:
        """Removes a name; who has the file open keeps it."""
        directory = self.inodes[parent]
        path = self.inodes.child_path(directory, name)
        inode = directory.children.get(name)
        if inode is None or inode.file is None or not inode.file.handles:
            os.unlink(path)
            kept = None
        else:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            kept = self.inodes.place_for_unlinked()
            os.rename(path, kept)
        self.env.changes += 1
        if inode is not None:
            await self._lost_its_name(inode, kept)

    async def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0
    ) -> None:
        """rename(2), with RENAME_NOREPLACE. A poisoned file is not renamed (EIO)."""
        if flags & ~RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        source_dir, target_dir = self.inodes[parent], self.inodes[new_parent]
        target = self.inodes.child_path(target_dir, new_name, creating=True)
        await self._commit_before_it_replaces(source_dir, name, target)
        source = self.inodes.child_path(source_dir, name)
        target = self.inodes.child_path(target_dir, new_name, creating=True)
        source_mode = os.lstat(source).st_mode
        target_mode = _mode(target)
        if target_mode is not None and flags & RENAME_NOREPLACE:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        moving = self.inodes.child(source_dir, name)
        if moving.file is not None and moving.file.failed:
            raise OSError(errno.EIO, "an earlier write of this file failed")
        if source == target:
            return
        replaced = target_dir.children.get(new_name)
        kept = None
        if target_mode is not None and is_plain(source_mode) and is_plain(target_mode):
            stubs.inherit(source, target)
            if replaced is not None and replaced.file is not None and replaced.file.handles:
                kept = self.inodes.place_for_unlinked()
                os.link(target, kept)
        elif target_mode is not None and stat.S_ISDIR(target_mode):
            kept = self._keep_directory(replaced, target)
        try:
            os.rename(source, target)
        except OSError:
            if kept is not None:
                stubs.drop(kept)
            raise
        self.env.note(moving)
        if replaced is not None:
            self.inodes.moved(moving, target_dir, new_name)
            await self._lost_its_name(replaced, kept)
        else:
            self.inodes.moved(moving, target_dir, new_name)
        self.inodes.forget(moving)
        if self.env.store.sync:  # a save is often NAME.tmp and a rename
            await trio.to_thread.run_sync(stubs.sync_name, self.env.store.layout, target)

    def opendir(self, number: int) -> int:
        """A handle for listing a directory."""
        inode = self.inodes[number]
        os.stat(self.inodes.path(inode))
        return self._add(Handle(inode))

    def directory(self, handle: int) -> int:
        """The inode of an open directory."""
        return self._handles[handle].inode.number

    def listdir(self, handle: int, *, rewind: bool) -> list[bytes]:
        """The names in an open directory, as they were when the listing was begun."""
        opened = self._handles[handle]
        if rewind or opened.names is None:
            names = os.listdir(self.inodes.path(opened.inode))
            hidden = {RESERVED} if opened.inode.number == ROOT else set()
            opened.names = sorted(name for name in names if name not in hidden)
        return opened.names

    async def fsyncdir(self, handle: int) -> None:
        """Makes the names in a directory survive a power cut."""
        await trio.to_thread.run_sync(fsync_directory, self.inodes.path(self._handles[handle].inode))

    def releasedir(self, handle: int) -> None:
        """Closes a directory."""
        inode = self._handles.pop(handle).inode
        self.inodes.forget(inode)

    def getattr(self, number: int) -> Attr:
        """stat(2), with the live size while a file is being written."""
        inode = self.inodes[number]
        return self._attr(inode, os.lstat(self.inodes.path(inode)))

    async def setattr(self, number: int, change: Change) -> Attr:
        """Mode, owner, size and times; a size alone on a file nobody writes is committed at once."""
        inode = self.inodes[number]
        path = self.inodes.path(inode)
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.EPERM, "a link in the stub tree is not kvtool's")
        if change.uid is not None or change.gid is not None:
            os.chown(path, -1 if change.uid is None else change.uid, -1 if change.gid is None else change.gid)
        if change.mode is not None:
            os.chmod(path, stat.S_IMODE(change.mode))
        if change.size is not None:
            file = self._file(inode, mode)
            self.prefetch.drop(inode, "it is being written")
            await file.truncate(change.size)
            if not file.writers:
                await file.commit()
        if change.atime_ns is not None or change.mtime_ns is not None:
            self._set_times(inode, change)
        return self.getattr(number)

    def getxattr(self, number: int, name: bytes) -> bytes:
        """One attribute of the `user` namespace, kvtool's own among them."""
        inode = self.inodes[number]
        if name == xattrs.PREFETCH:
            return b"%d" % (inode in self.prefetch)
        return xattrs.get(self.inodes.path(inode), name, self._live_size(inode))

    def setxattr(self, number: int, name: bytes, value: bytes) -> None:
        """Sets an attribute; kvtool's own are read-only but for labels and the hint."""
        inode = self.inodes[number]
        path = self.inodes.path(inode)
        if name != xattrs.PREFETCH:
            xattrs.set_(path, name, value)
        elif value == b"0":
            self.prefetch.drop(inode, "it is not wanted any more")
        elif value == b"1":
            self._hint(inode, path)
        else:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def ask_prefetch(self, name: bytes) -> Prefetched:
        """The hint that a file will be restored soon; `name` is a path relative to the mount."""
        inode = self.inodes.root
        path = self.inodes.path(inode)
        try:
            for part in name.split(b"/"):
                path = self.inodes.child_path(inode, part)
                os.lstat(path)
                inode = self.inodes.child(inode, part)
            return self._hint(inode, path)
        finally:
            self.inodes.forget(inode)

    def _hint(self, inode: Inode, path: bytes) -> Prefetched:
        self._file(inode, os.lstat(path).st_mode)
        return self.prefetch.ask(inode)

    def removexattr(self, number: int, name: bytes) -> None:
        """Removes an attribute."""
        xattrs.remove(self.inodes.path(self.inodes[number]), name)

    def listxattr(self, number: int) -> list[bytes]:
        """The names that a copy may carry along: all but kvtool's read-only ones."""
        return xattrs.list_(self.inodes.path(self.inodes[number]))

    def statfs(self) -> os.statvfs_result:
        """The file system that holds the store."""
        return os.statvfs(self.env.store.layout.root)

    def _add(self, handle: Handle) -> int:
        self._last_handle += 1
        self._handles[self._last_handle] = handle
        return self._last_handle

    def _file(self, inode: Inode, mode: int) -> File:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if inode.file is None:
            inode.file = File(self.env, inode)
        return inode.file

    def _live_size(self, inode: Inode) -> int | None:
        return inode.file.size() if inode.file is not None else None

    def _attr(self, inode: Inode, status: os.stat_result) -> Attr:
        size, mtime_ns, ctime_ns = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        nlink = status.st_nlink
        if is_plain(status.st_mode):
            file = self._file(inode, status.st_mode)
            size = file.size()
            nlink = 1 if inode.linked else 0
            if file.mtime_ns is not None:
                mtime_ns, ctime_ns = file.mtime_ns, max(ctime_ns, file.mtime_ns)
        mode = status.st_mode
        if not (is_plain(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            # A pipe, socket or device that somebody has put there: the kernel would serve it by itself.
            mode = stat.S_IFREG | stat.S_IMODE(mode)
        return Attr(
            inode.number,
            mode,
            nlink,
            status.st_uid,
            status.st_gid,
            size,
            status.st_atime_ns,
            mtime_ns,
            ctime_ns,
        )

    def _set_times(self, inode: Inode, change: Change) -> None:
        path = self.inodes.path(inode)
        status = os.lstat(path)
        atime_ns = status.st_atime_ns if change.atime_ns is None else change.atime_ns
        mtime_ns = status.st_mtime_ns if change.mtime_ns is None else change.mtime_ns
        os.utime(path, ns=(atime_ns, mtime_ns))
        if inode.file is not None and inode.file.dirty and change.mtime_ns is not None:
            inode.file.mtime_ns = change.mtime_ns  # holds until the next write; the commit does not touch it

    def _group(self, directory: Inode, caller: Caller) -> tuple[int | None, int]:
        """The group of a new entry, and the setgid bit that a new directory inherits."""
        status = os.stat(self.inodes.path(directory))
        if status.st_mode & stat.S_ISGID:
            return (None if caller.gid is None else status.st_gid), stat.S_ISGID
        return caller.gid, 0

    async def _commit_before_it_replaces(self, directory: Inode, name: bytes, target: bytes) -> None:
        """What is written so far of a file that is still open: else a crash would leave neither of both."""
        moving = directory.children.get(name)
        if moving is not None and moving.file is not None and moving.file.dirty:
            mode = _mode(target)
            if mode is not None and is_plain(mode):
                await moving.file.commit()

    def _keep_directory(self, inode: Inode | None, path: bytes) -> bytes | None:
        """An empty directory aside, like the one at `path`, for who has that open while it is removed."""
        if inode is None or all(handle.inode is not inode for handle in self._handles.values()):
            return None
        kept = self.inodes.place_for_unlinked()
        try:
            os.mkdir(kept, 0o700)
            shutil.copystat(path, kept)
        except OSError:  # a full disk, say: removing is what matters
            return None
        return kept

    async def _lost_its_name(self, inode: Inode, kept: bytes | None) -> None:
        self.prefetch.drop(inode, "it was deleted or replaced")
        self.inodes.unlinked(inode, kept)
        if inode.file is not None and not inode.file.handles:
            await inode.file.discard()
            self.inodes.forget(inode)


def _mode(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None
