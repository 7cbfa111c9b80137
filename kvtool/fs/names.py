"""Deletion and labels asked for on the control socket: as the same calls through the kernel would do them."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kvtool.fs.inodes import Inode
from kvtool.fs.vfs import Vfs
from kvtool.store import labels
from kvtool.store.names import no_snapshot


class Names:
    """A mount's snapshots by their whole names: bytes, relative to the mountpoint."""

    def __init__(self, vfs: Vfs) -> None:
        self._vfs = vfs
        self._inodes = vfs.env.inodes

    async def delete(self, name: bytes) -> None:
        """Removes a snapshot; who has it open keeps it. Raises NoSnapshot, OSError."""
        with self._found(name) as (directory, last):
            known = directory.children.get(last)
            await self._vfs.unlink(directory.number, last)
            await self._vfs.env.name_gone(directory, last, known)

    async def label(self, name: bytes, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Sets labels, or with None removes them, and returns what there is then.

        Nothing waits between this and a commit's look at the attributes, so neither loses the other's.
        Raises NoSnapshot, UsageError, OSError.
        """
        with self._found(name) as (directory, last):
            changed = labels.change(self._inodes.child_path(directory, last), changes)
            if last in directory.children:
                await self._vfs.env.attributes_changed(directory.children[last])
            return changed

    @contextmanager
    def _found(self, name: bytes) -> Iterator[tuple[Inode, bytes]]:
        """The directory of a file that is there, kept in mind meanwhile, and the file's own name."""
        *folders, last = name.split(b"/")
        directory = self._inodes.root
        try:
            for folder in folders:
                if not stat.S_ISDIR(self._mode(directory, folder, name)):
                    raise no_snapshot(self._vfs.env.store.layout, os.fsdecode(name))
                directory = self._inodes.child(directory, folder)
            if not stat.S_ISREG(self._mode(directory, last, name)):
                raise no_snapshot(self._vfs.env.store.layout, os.fsdecode(name))
            yield directory, last
        finally:
            self._inodes.forget(directory)

    def _mode(self, directory: Inode, part: bytes, name: bytes) -> int:
        try:
            return os.lstat(self._inodes.child_path(directory, part)).st_mode
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOTDIR}:
                raise no_snapshot(self._vfs.env.store.layout, os.fsdecode(name)) from None
            raise
