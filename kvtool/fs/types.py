"""What the floors of the file system hand to each other."""

import os
from dataclasses import dataclass, field

from kvtool.fs.inodes import Inode
from kvtool.fs.reader import Position

_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Attr:
    """What stat(2) says of an inode; times in nanoseconds."""

    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    size: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int

    @property
    def blocks(self) -> int:
        """Blocks of 512 bytes of the logical size, whatever is shared."""
        return -(-self.size // _BLOCK)


@dataclass(frozen=True, slots=True)
class Change:
    """What a setattr is to change; None leaves it."""

    size: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; None keeps the owner that a new stub gets by itself."""

    uid: int | None = None
    gid: int | None = None


@dataclass(eq=False, slots=True)
class Handle:
    """An open file or directory. What is written through a `direct` one passes the kernel's pages by."""

    inode: Inode
    flags: int = 0
    direct: bool = False
    position: Position = field(default_factory=Position)
    names: list[bytes] | None = None
    background: bool = False  # of a prefetch: others go first

    @property
    def writes(self) -> bool:
        """Whether its close commits: it was opened for writing, or it made the file (O_CREAT)."""
        return self.flags & os.O_ACCMODE != os.O_RDONLY or bool(self.flags & os.O_CREAT)
