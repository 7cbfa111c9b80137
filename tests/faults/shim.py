"""The shim (shim.c) as tests use it: compiled, preloaded into processes, and told what to do.

    with Shim(tmp / "control", tree=root) as shim:
        mount = MountedStore(root, env=shim.environment)    # all its processes are under the shim
        shim.watch(CHANGES)                                 # number these calls from 1
        ...
        count = shim.stop()

`watch` takes what to do at a number: `kill`, `kill_halfway`, `fail` or `shorten`; `record` logs all changes.
Processes under the shim are not disturbed before `watch` and after `stop`.
"""

import enum
import mmap
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_SOURCE = Path(__file__).with_name("shim.c")
_CONTROL = struct.Struct("<4I3QiIIiII64i256s256s512s")
_RECORD = struct.Struct("<8sQqIIQ")


class Kind(enum.IntFlag):
    """The kinds of calls: OPEN of what is there, CREATE (or empty) a file, and so on."""

    OPEN = 1
    CREATE = 2
    READ = 4
    WRITE = 8
    RENAME = 16
    NAME = 32
    SIZE = 64
    SYNC = 128
    ATTR = 256


CHANGES = Kind.CREATE | Kind.WRITE | Kind.RENAME | Kind.NAME | Kind.SIZE | Kind.ATTR


class Action(enum.IntEnum):
    """What happens at a number; killing halfway writes one half of the bytes before."""

    COUNT = 0
    KILL = 1
    KILL_HALFWAY = 2
    FAIL = 3
    SHORTEN = 4


class Event(NamedTuple):
    """One change as it was made: paths, the file's number, an offset or size or flags, and the bytes."""

    op: str
    inode: int
    number: int
    path: str
    other: str
    data: bytes


def compile_shim(folder: Path) -> Path:
    """The shared object, made by the machine's gcc."""
    library = folder / "shim.so"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(library), str(_SOURCE), "-ldl"], check=True, timeout=60)
    return library


class Shim:
    """One control file; a new one for every start of a mount. `tree` is what is watched."""

    def __init__(self, library: Path, tree: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvtool-faults-")
        control, self._log = (Path(self._folder.name) / name for name in ("control", "log"))
        self._log.touch()
        with control.open("w+b") as file:
            file.truncate(_CONTROL.size)
            self._memory = mmap.mmap(file.fileno(), _CONTROL.size)
        self.environment = {"LD_PRELOAD": str(library), "FAULTS_CONTROL": str(control)}
        blank = [0] * 13 + [0] * 64
        _CONTROL.pack_into(self._memory, 0, *blank, os.fsencode(tree), os.fsencode(self._log), b"")

    def __enter__(self) -> "Shim":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.close()
        self._folder.cleanup()

    def watch(
        self,
        kinds: Kind = CHANGES,
        action: Action = Action.COUNT,
        at: int = 0,
        *,
        until: int | None = None,
        error: int = 0,
    ) -> None:
        """From here on calls of these kinds are numbered; `action` is for those from `at` to `until`."""
        struct.pack_into("<2QQiI", self._memory, 16, at, at if until is None else until, 0, error, 0)
        struct.pack_into("<3I", self._memory, 4, 0, kinds, action)
        struct.pack_into("<I", self._memory, 0, 1)

    def record(self) -> None:
        """From here on every change is logged."""
        struct.pack_into("<3I", self._memory, 4, 1, 0, Action.COUNT)
        struct.pack_into("<I", self._memory, 0, 1)

    def stop(self) -> int:
        """Watches no more; how many calls there were."""
        struct.pack_into("<I", self._memory, 0, 0)
        return int(struct.unpack_from("<Q", self._memory, 32)[0])

    @property
    def fired(self) -> int:
        """How many calls were acted upon."""
        return int(struct.unpack_from("<I", self._memory, 44)[0])

    @property
    def what(self) -> str:
        """The first call that was acted upon."""
        return _CONTROL.unpack_from(self._memory)[-1].rstrip(b"\0").decode(errors="replace")

    @property
    def pids(self) -> list[int]:
        """All processes that were under the shim."""
        fields = _CONTROL.unpack_from(self._memory)
        return [pid for pid in fields[13:77] if pid]

    def mark(self, text: str) -> None:
        """Notes in the log what the test has done, behind all changes that led to it."""
        data = text.encode()
        with self._log.open("ab") as file:
            file.write(_RECORD.pack(b"mark", 0, 0, 0, 0, len(data)) + data)

    def events(self) -> Iterator[Event]:
        """The log."""
        content, position = self._log.read_bytes(), 0
        while position < len(content):
            op, inode, number, *sizes = _RECORD.unpack_from(content, position)
            position += _RECORD.size
            path, other, data = (
                content[position + sum(sizes[:i]) : position + sum(sizes[: i + 1])] for i in range(3)
            )
            position += sum(sizes)
            yield Event(op.rstrip(b"\0").decode(), inode, number, os.fsdecode(path), os.fsdecode(other), data)
