"""A file system in memory, small enough to be read at a sitting: what every sequence of calls must look like.

It does no I/O and answers as Linux does on ext4 for root, errno for errno; tests/property/test_model.py
holds it against a plain directory. Where kvtool differs on purpose, `tree.Quirks` says so, in one place.

A handle number leads to an open file description, which several numbers may share (dup), and which keeps
its node alive after unlink or after a rename over it.
"""

import errno
import os
from dataclasses import dataclass

from tests.property.calls import UMASK, Stat, Time
from tests.property.tree import PLAIN, File, Node, Quirks, Tree, fail


@dataclass(eq=False)
class Description:
    """An open file description: what dup'd handles share."""

    node: Node
    flags: int
    offset: int = 0

    @property
    def readable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_WRONLY

    @property
    def writable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY


@dataclass(eq=False)
class Mapping:
    """A shared mapping; `stored` once something was stored through it, which may reach the file system any
    time later.
    """

    file: File
    writable: bool
    stored: bool = False


class Model(Tree):
    """The whole file system."""

    def __init__(self, quirks: Quirks = PLAIN, name: str = "model") -> None:
        super().__init__(quirks)
        self.name = name
        self.handles: dict[int, Description] = {}
        self.mappings: dict[int, Mapping] = {}
        self._next = 0

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    # Opening and closing

    def open(self, path: bytes, flags: int, mode: int) -> int:
        parent, name = self._parent(path)
        node = self._child(parent, name)
        if node is None:
            if not flags & os.O_CREAT:
                raise fail(errno.ENOENT)
            self._allowed(parent, name)
            node = File(mode & ~UMASK)
            parent.put(name, node)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise fail(errno.EEXIST)
        elif isinstance(node, File):
            if flags & os.O_TRUNC:
                self._changed(node)
                node.data.clear()
        elif flags & (os.O_CREAT | os.O_TRUNC) or flags & os.O_ACCMODE != os.O_RDONLY:
            raise fail(errno.EISDIR)
        number = self._number()
        self.handles[number] = Description(node, flags)
        return number

    def dup(self, handle: int) -> int:
        number = self._number()
        self.handles[number] = self.handles[handle]
        return number

    def close(self, handle: int) -> None:
        del self.handles[handle]

    # Bytes

    def _changed(self, file: File, mtime: Time = Time.NOW) -> None:
        """The content of `file` changes: an explicit modification time holds no longer."""
        file.mtime = mtime
        if self.quirks.commit_touches_directory and file.parent is not None:
            file.parent.mtime = Time.ANY

    def _resize(self, file: File, size: int) -> None:
        if size < len(file.data):
            del file.data[size:]
        else:
            file.data.extend(bytes(size - len(file.data)))

    def _put(self, file: File, data: bytes, offset: int) -> None:
        if offset > len(file.data):
            self._resize(file, offset)
        file.data[offset : offset + len(data)] = data

    def _writer(self, handle: int) -> tuple[Description, File]:
        description = self.handles[handle]
        if not description.writable:
            raise fail(errno.EBADF)
        assert isinstance(description.node, File)
        return description, description.node

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        description = self.handles[handle]
        if not description.readable:
            raise fail(errno.EBADF)
        if not isinstance(description.node, File):
            raise fail(errno.EISDIR)
        return bytes(description.node.data[offset : offset + length])

    def read(self, handle: int, length: int) -> bytes:
        data = self.pread(handle, length, self.handles[handle].offset)
        self.handles[handle].offset += len(data)
        return data

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        description, file = self._writer(handle)
        if data:
            self._changed(file)
            # Linux appends here too, whatever POSIX says of pwrite and O_APPEND.
            self._put(file, data, len(file.data) if description.flags & os.O_APPEND else offset)
        return len(data)

    def write(self, handle: int, data: bytes) -> int:
        description, file = self._writer(handle)
        if data:
            if description.flags & os.O_APPEND:
                description.offset = len(file.data)
            self.pwrite(handle, data, description.offset)
            description.offset += len(data)
        return len(data)

    def seek(self, handle: int, offset: int, whence: int) -> int:
        description = self.handles[handle]
        assert isinstance(description.node, File)
        start = {os.SEEK_SET: 0, os.SEEK_CUR: description.offset, os.SEEK_END: len(description.node.data)}[
            whence
        ]
        if start + offset < 0:
            raise fail(errno.EINVAL)
        description.offset = start + offset
        return description.offset

    def ftruncate(self, handle: int, size: int) -> None:
        description = self.handles[handle]
        if size < 0 or not description.writable:
            raise fail(errno.EINVAL)
        assert isinstance(description.node, File)
        self._changed(description.node)
        self._resize(description.node, size)

    def truncate(self, path: bytes, size: int) -> None:
        node = self.node(path)
        if not isinstance(node, File):
            raise fail(errno.EISDIR)
        self._changed(node, Time.NOW if size != len(node.data) else Time.ANY)
        self._resize(node, size)

    def fsync(self, handle: int) -> None:
        pass

    def fallocate(self, handle: int, size: int) -> None:
        self._writer(handle)
        assert not self.quirks.allocate
        raise fail(errno.EOPNOTSUPP)

    # Mappings

    def map(self, handle: int, writable: bool) -> int:
        description = self.handles[handle]
        if not description.readable or (writable and not description.writable):
            raise fail(errno.EACCES)
        if not isinstance(description.node, File):
            raise fail(errno.ENODEV)
        number = self._number()
        self.mappings[number] = Mapping(description.node, writable)
        return number

    def map_load(self, mapping: int, offset: int, length: int) -> bytes:
        data = self.mappings[mapping].file.data
        assert offset + length <= len(data)
        return bytes(data[offset : offset + length])

    def map_store(self, mapping: int, offset: int, data: bytes) -> None:
        found = self.mappings[mapping]
        assert offset + len(data) <= len(found.file.data)
        found.stored = True
        self._changed(found.file, Time.ANY)
        self._put(found.file, data, offset)

    def unmap(self, mapping: int) -> None:
        del self.mappings[mapping]

    # Attributes

    def fstat(self, handle: int) -> Stat:
        return self._stat(self.handles[handle].node)

    def fchmod(self, handle: int, mode: int) -> None:
        self.handles[handle].node.mode = mode

    def _set_times(self, node: Node, times: tuple[int, int] | None) -> None:
        node.atime, node.mtime = times or (None, Time.NOW)
        if self._unsettled(node):
            node.mtime = Time.ANY

    def _unsettled(self, node: Node) -> bool:
        """Whether something already under way will change the modification time later."""
        if isinstance(node, File):
            return any(mapping.stored and mapping.file is node for mapping in self.mappings.values())
        if not self.quirks.commit_touches_directory:
            return False
        writers = [d.node for d in self.handles.values() if d.writable or d.flags & os.O_TRUNC]
        return any(file.parent is node for file in [*writers, *(m.file for m in self.mappings.values())])

    def utimens(self, path: bytes, times: tuple[int, int] | None) -> None:
        self._set_times(self.node(path), times)

    def futimens(self, handle: int, times: tuple[int, int] | None) -> None:
        self._set_times(self.handles[handle].node, times)

    def idle(self) -> None:
        pass

    def collect(self) -> None:
        pass

    def remount(self) -> None:
        assert not self.handles
        assert not self.mappings
