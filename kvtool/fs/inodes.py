"""Inodes: what the kernel knows by number, and the stub each one stands for.

Numbers are our own, since a commit replaces the stub and with it the stub's number. An inode knows its
directory and name, so a rename is one change however much lies beneath. Nothing here waits but the reading
of a stub: what the event loop does between two `await`s is atomic for all requests.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import trio

from kvtool.core.index import Index
from kvtool.errors import IndexDamaged
from kvtool.store import stubs
from kvtool.store.layout import RESERVED, Layout

if TYPE_CHECKING:
    from kvtool.fs.files import File

ROOT = 1
NAME_MAX = 255


class Inode:
    """One name in the tree, or an open file that has lost its name (`parent` is None)."""

    __slots__ = ("children", "detached", "file", "lookups", "name", "number", "parent")

    def __init__(self, number: int, parent: "Inode | None", name: bytes) -> None:
        self.number = number
        self.parent = parent
        self.name = name
        self.lookups = 0
        self.children: dict[bytes, Inode] = {}
        self.file: File | None = None
        self.detached: bytes | None = None

    @property
    def linked(self) -> bool:
        """Whether it has a name."""
        return self.parent is not None or self.number == ROOT


class InodeTable:
    """All inodes that the kernel knows or that are in use."""

    def __init__(self, layout: Layout) -> None:
        self._stub_root = os.fsencode(layout.stubs)
        self._private = os.fsencode(layout.stub_private)
        self._last = ROOT
        self.root = Inode(ROOT, None, b"")
        self._inodes = {ROOT: self.root}

    def __getitem__(self, number: int) -> Inode:
        """Raises OSError (ESTALE) when nobody knows that number."""
        inode = self._inodes.get(number)
        if inode is None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return inode

    def __iter__(self) -> Iterator[Inode]:
        return iter(list(self._inodes.values()))

    def path(self, inode: Inode) -> bytes:
        """Where its stub or directory is.

        Raises OSError: ENOENT for a removed directory, ESTALE for a file that was removed or replaced before
        it was open; the kernel then looks the name up again.
        """
        if inode.detached is not None:
            return inode.detached
        parts: list[bytes] = []
        step = inode
        while step.parent is not None:
            parts.append(step.name)
            step = step.parent
        if step.number != ROOT:
            code = errno.ENOENT if step.file is None else errno.ESTALE
            raise OSError(code, os.strerror(code))
        return b"/".join([self._stub_root, *reversed(parts)])

    async def read_index(self, inode: Inode) -> Index:
        """The content that its stub names. Raises IndexDamaged, OSError."""
        while True:
            path = self.path(inode)
            try:
                index = await trio.to_thread.run_sync(stubs.read_index, path)
            except (IndexDamaged, OSError):
                if path == self.path(inode):
                    raise
            else:
                if path == self.path(inode):  # else it may be of what has replaced it
                    return index

    def relative(self, inode: Inode) -> bytes:
        """Where it is in the mount, relative to its root. Raises OSError (ENOENT)."""
        if inode.detached is not None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.path(inode)[len(self._stub_root) + 1 :]

    def name(self, inode: Inode) -> str:
        """Its path in the mount, for people."""
        try:
            path = b"/" + self.relative(inode)
        except OSError:
            path = b"(unlinked file)" if inode.detached is not None else b"(removed directory)"
        return os.fsdecode(path)

    def child_path(self, parent: Inode, name: bytes, *, creating: bool = False) -> bytes:
        """Where `name` in `parent` is. Raises OSError for names that cannot, or may not, be there."""
        if len(name) > NAME_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if parent.number == ROOT and name == RESERVED:
            code = errno.EPERM if creating else errno.ENOENT
            raise OSError(code, os.strerror(code))
        if b"/" in name or b"\0" in name or name in {b"", b".", b".."}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return self.path(parent) + b"/" + name

    def child(self, parent: Inode, name: bytes) -> Inode:
        """The inode of an existing name, a new one when it was not known."""
        inode = parent.children.get(name)
        if inode is None:
            self._last += 1
            inode = parent.children[name] = self._inodes[self._last] = Inode(self._last, parent, name)
        return inode

    def known(self, path: bytes) -> Inode | None:
        """The inode of the stub at `path`, if it is known."""
        inode: Inode | None = self.root
        for part in path[len(self._stub_root) + 1 :].split(b"/"):
            inode = inode.children.get(part) if inode is not None else None
        return inode

    def forget(self, inode: Inode, lookups: int = 0) -> None:
        """Takes back `lookups`; an inode that nobody knows or uses any more goes."""
        inode.lookups -= lookups
        while inode.number != ROOT and not inode.lookups and not inode.children:
            if inode.file is not None and inode.file.in_use:
                return
            self._inodes.pop(inode.number, None)
            parent = inode.parent
            if inode.detached is not None:
                stubs.drop(inode.detached)
                inode.detached = None
            if parent is None:
                return
            if parent.children.get(inode.name) is inode:
                del parent.children[inode.name]
            inode = parent

    def moved(self, inode: Inode, parent: Inode, name: bytes) -> None:
        """Notes that it now is `name` in `parent`."""
        if inode.parent is not None:
            inode.parent.children.pop(inode.name, None)
        inode.parent, inode.name = parent, name
        parent.children[name] = inode

    def unlinked(self, inode: Inode, kept: bytes | None = None) -> None:
        """Notes that it has lost its name; `kept` is where its stub goes on until the last handle closes."""
        if inode.parent is not None and inode.parent.children.get(inode.name) is inode:
            del inode.parent.children[inode.name]
        inode.parent = None
        inode.detached = kept
        self.forget(inode)

    def place_for_unlinked(self) -> bytes:
        """A new path in the hidden part of the stub tree; what is there after a crash is rubbish."""
        return os.path.join(self._private, b"new-unlinked-" + secrets.token_hex(8).encode())

    def beneath(self, inode: Inode) -> Iterable[Inode]:
        """It and all known inodes below it."""
        pending = [inode]
        while pending:
            step = pending.pop()
            yield step
            pending.extend(step.children.values())


def is_plain(mode: int) -> bool:
    """Whether a mode is that of a regular file, as stubs are."""
    return stat.S_ISREG(mode)
