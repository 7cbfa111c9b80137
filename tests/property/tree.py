"""The model's tree: names, attributes and extended attributes. `model.py` says what the model is for."""

import errno
import os
from dataclasses import dataclass, field

from tests.property.calls import NAME_MAX, PATH_MAX, UMASK, Look, Stat, Time

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
OWN, LABEL = b"user.kvtool.", b"user.kvtool.label."


@dataclass(frozen=True)
class Quirks:
    """The deliberate differences of a kvtool mount from a plain directory."""

    exchange: bool = True  # RENAME_EXCHANGE works; EINVAL otherwise
    special: bool = True  # link, symlink and mknod work; EPERM otherwise (the model knows only the refusal)
    allocate: bool = True  # fallocate works; EOPNOTSUPP otherwise (likewise)
    xattr_spaces: tuple[bytes, ...] = (b"user.", b"trusted.")  # EOPNOTSUPP for other names
    own_xattrs: bool = False  # user.kvtool.* is read-only but for labels, which a rename over a file keeps
    commit_touches_directory: bool = False  # writing a file may change its directory's mtime later on
    reserved: bytes | None = None  # a name at the root that does not exist and cannot be made (EPERM)


PLAIN = Quirks()
KVTOOL = Quirks(
    exchange=False,
    special=False,
    allocate=False,
    xattr_spaces=(b"user.",),
    own_xattrs=True,
    commit_touches_directory=True,
    reserved=b".kvtool",
)


@dataclass(eq=False)
class Node:
    """What files and directories have in common."""

    mode: int
    parent: "Directory | None" = None
    mtime: int | Time = Time.NOW
    atime: int | None = None
    xattrs: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(eq=False)
class File(Node):
    """A file's bytes."""

    data: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class Directory(Node):
    """A directory's names."""

    entries: dict[bytes, Node] = field(default_factory=dict)

    def put(self, name: bytes, node: Node) -> None:
        self.entries[name] = node
        node.parent = self
        self.mtime = Time.NOW

    def drop(self, name: bytes) -> None:
        self.entries.pop(name).parent = None
        self.mtime = Time.NOW


def fail(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def join(directory: bytes, name: bytes) -> bytes:
    """The path of `name` in `directory`; b"" is the root."""
    return directory + b"/" + name if directory else name


class Tree:
    """Directories are dicts of nodes; everything that names a path and opens nothing."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self.root = Directory(0o755)

    def _parent(self, path: bytes) -> tuple[Directory, bytes]:
        """The directory that holds the last name of `path`, and that name, which need not exist."""
        if len(path) > PATH_MAX:
            raise fail(errno.ENAMETOOLONG)
        *above, last = path.split(b"/")
        node: Node = self.root
        for name in above:
            node = self._found(node, name)
        if not isinstance(node, Directory):
            raise fail(errno.ENOTDIR)
        return node, last

    def _child(self, parent: Node, name: bytes) -> Node | None:
        if not isinstance(parent, Directory):
            raise fail(errno.ENOTDIR)
        if len(name) > NAME_MAX:
            raise fail(errno.ENAMETOOLONG)
        return parent.entries.get(name)

    def _found(self, parent: Node, name: bytes) -> Node:
        node = self._child(parent, name)
        if node is None:
            raise fail(errno.ENOENT)
        return node

    def node(self, path: bytes) -> Node:
        """The node at `path`."""
        return self._found(*self._parent(path)) if path else self.root

    def _vacant(self, path: bytes) -> tuple[Directory, bytes]:
        """Where a new node of that name goes. Raises EEXIST."""
        parent, name = self._parent(path)
        if self._child(parent, name) is not None:
            raise fail(errno.EEXIST)
        self._allowed(parent, name)
        return parent, name

    def _allowed(self, parent: Directory, name: bytes) -> None:
        if parent is self.root and name == self.quirks.reserved:
            raise fail(errno.EPERM)

    # Attributes

    def _stat(self, node: Node) -> Stat:
        size = len(node.data) if isinstance(node, File) else 0
        return Stat(isinstance(node, Directory), size, node.mode, node.mtime)

    def stat(self, path: bytes) -> Stat:
        return self._stat(self.node(path))

    def atime(self, path: bytes) -> int:
        """Right after `utimens`, the access time it set. (Any read may change it, so it is good for no
        more.)
        """
        atime = self.node(path).atime
        assert atime is not None
        return atime

    def chmod(self, path: bytes, mode: int) -> None:
        self.node(path).mode = mode

    # The tree

    def listdir(self, path: bytes) -> list[bytes]:
        node = self.node(path)
        if not isinstance(node, Directory):
            raise fail(errno.ENOTDIR)
        return sorted(node.entries)

    def mkdir(self, path: bytes, mode: int) -> None:
        parent, name = self._vacant(path)
        parent.put(name, Directory(mode & ~UMASK))

    def rmdir(self, path: bytes) -> None:
        parent, name = self._parent(path)
        node = self._found(parent, name)
        if not isinstance(node, Directory):
            raise fail(errno.ENOTDIR)
        if node.entries:
            raise fail(errno.ENOTEMPTY)
        parent.drop(name)

    def unlink(self, path: bytes) -> None:
        parent, name = self._parent(path)
        if isinstance(self._found(parent, name), Directory):
            raise fail(errno.EISDIR)
        parent.drop(name)

    def rename(self, old: bytes, new: bytes, flags: int) -> None:
        (source, old_name), (target, new_name) = self._parent(old), self._parent(new)
        moved = self._found(source, old_name)
        there = self._child(target, new_name)
        if flags & RENAME_NOREPLACE and there is not None:
            raise fail(errno.EEXIST)
        if flags & RENAME_EXCHANGE and there is None:
            raise fail(errno.ENOENT)
        if self._inside(target, moved):
            raise fail(errno.EINVAL)
        if there is not None and self._inside(source, there):
            raise fail(errno.EINVAL if flags & RENAME_EXCHANGE else errno.ENOTEMPTY)
        if there is moved:
            return
        if flags & RENAME_EXCHANGE:
            self._exchange(source, old_name, target, new_name)
            return
        self._allowed(target, new_name)
        if there is not None:
            self._replaceable(moved, there)
            target.drop(new_name)
        source.drop(old_name)
        target.put(new_name, moved)

    def _inside(self, node: Node | None, ancestor: Node) -> bool:
        """Whether `node` is `ancestor` or lies below it."""
        while node is not None and node is not ancestor:
            node = node.parent
        return node is ancestor

    def _replaceable(self, moved: Node, there: Node) -> None:
        if isinstance(moved, Directory):
            if not isinstance(there, Directory):
                raise fail(errno.ENOTDIR)
            if there.entries:
                raise fail(errno.ENOTEMPTY)
        elif isinstance(there, Directory):
            raise fail(errno.EISDIR)
        elif self.quirks.own_xattrs:
            labels = {key: value for key, value in there.xattrs.items() if key.startswith(LABEL)}
            moved.xattrs = labels | moved.xattrs

    def _exchange(self, source: Directory, old_name: bytes, target: Directory, new_name: bytes) -> None:
        if not self.quirks.exchange:
            raise fail(errno.EINVAL)
        moved, there = source.entries[old_name], target.entries[new_name]
        source.put(old_name, there)
        target.put(new_name, moved)

    def link(self, old: bytes, new: bytes) -> None:
        self.node(old)
        self._refused(new)

    def symlink(self, target: bytes, path: bytes) -> None:
        self._refused(path)

    def mknod(self, path: bytes) -> None:
        self._refused(path)

    def _refused(self, path: bytes) -> None:
        self._vacant(path)
        assert not self.quirks.special
        raise fail(errno.EPERM)

    def walk(self) -> list[tuple[bytes, Node]]:
        """Every path with its node, directories before what is in them; the root, b"", first."""
        found: list[tuple[bytes, Node]] = [(b"", self.root)]
        for path, node in found:
            if isinstance(node, Directory):
                found += [(join(path, name), child) for name, child in node.entries.items()]
        return found

    def tree(self) -> dict[bytes, Look]:
        return {path: self._look(node) for path, node in self.walk()}

    def _look(self, node: Node) -> Look:
        names = sorted(node.entries) if isinstance(node, Directory) else None
        return Look(self._stat(node), dict(node.xattrs), names)

    # Extended attributes

    def _settable(self, key: bytes) -> None:
        if len(key) > NAME_MAX:
            raise fail(errno.ERANGE)
        if not key.startswith(self.quirks.xattr_spaces):
            raise fail(errno.EOPNOTSUPP)
        if self.quirks.own_xattrs and key.startswith(OWN) and not key.startswith(LABEL):
            raise fail(errno.EPERM)

    def setxattr(self, path: bytes, key: bytes, value: bytes, flags: int) -> None:
        xattrs = self.node(path).xattrs
        self._settable(key)
        if flags & os.XATTR_CREATE and key in xattrs:
            raise fail(errno.EEXIST)
        if flags & os.XATTR_REPLACE and key not in xattrs:
            raise fail(errno.ENODATA)
        xattrs[key] = value

    def getxattr(self, path: bytes, key: bytes) -> bytes:
        xattrs = self.node(path).xattrs
        if len(key) > NAME_MAX:
            raise fail(errno.ERANGE)
        if not key.startswith(self.quirks.xattr_spaces):
            raise fail(errno.EOPNOTSUPP)
        if key not in xattrs:
            raise fail(errno.ENODATA)
        return xattrs[key]

    def listxattr(self, path: bytes) -> list[bytes]:
        return sorted(self.node(path).xattrs)

    def removexattr(self, path: bytes, key: bytes) -> None:
        xattrs = self.node(path).xattrs
        self._settable(key)
        if key not in xattrs:
            raise fail(errno.ENODATA)
        del xattrs[key]
