"""What any file system in Python costs here, in turns with kvtool: the floor under restores and saves.

Run as a module (`python -m tests.bench.floor PARENT MOUNTPOINT PLAIN`) it is the least mount there can be
with the same library: one file, `a`, whose reads are one pread of the plain file each, and whose writes are
dropped. It dies with the process PARENT.
"""

import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import TracebackType

import pyfuse3
import trio

from kvtool.core import chunker
from kvtool.store import child
from tests import processes
from tests.bench.results import Plan, Results
from tests.bench.steps import KVTOOL, PLAIN_FILE, Steps, make_forgetful, measure, measure_warm, read, write
from tests.mounts import MountedStore, MountFailed, abort, connection_of
from tests.synth import random_bytes

COLD, WARM, SAVE = "Floor: restore, cold", "Floor: restore, warm", "Floor: save, all known"
BARE_READ, BARE_WRITE = "a bare mount of the plain file", "a bare mount that drops what is written"
HASH = "FastCDC, then SHA-256, of memory on one core"
_NAME = b"a"
_INODE = pyfuse3.InodeT(2)
_LIMIT = 60.0
_READ_AHEAD = 2048  # KiB, as mount.kernel_read_ahead
_PIECE = 2 << 20  # bytes that are cut at once, as in a slot of the worker


def floor(results: Results, folder: Path, plan: Plan) -> None:
    """Restores and saves beside a mount that does nothing but that, and beside the bare chunker and hash."""
    data, plain = random_bytes(plan.size, seed=7), folder / "plain"
    write(plain, data)
    with MountedStore(folder / "kvtool", limit=900) as mount, BareMount(folder / "bare", plain) as bare:
        write(mount.dir / "a", data)
        mount.remount()
        forget = make_forgetful(mount)
        restores: Steps = [
            (KVTOOL, partial(read, mount.dir / "a")),
            (BARE_READ, partial(read, bare.file)),
            (PLAIN_FILE, partial(read, plain)),
        ]
        saves: Steps = [
            (KVTOOL, partial(write, mount.dir / "b", data)),
            (BARE_WRITE, partial(write, bare.file, data)),
            (HASH, partial(_cut_and_hash, data)),
            (PLAIN_FILE, partial(write, folder / "copy", data)),
        ]
        for run in range(2 * plan.runs):
            measure(results, COLD, [restores], run, forget, size=len(data), mounts=[mount, bare])
            measure_warm(results, WARM, restores, run, size=len(data), mounts=[mount, bare])
            measure(results, SAVE, [saves], run, size=len(data), mounts=[mount, bare])


def _cut_and_hash(data: bytes) -> None:
    sizes, view = chunker.ChunkSizes(), memoryview(data)
    for start in range(0, len(data), _PIECE):
        piece, at = view[start : start + _PIECE], 0
        for length in chunker.cut(piece, sizes, final=True):
            hashlib.sha256(piece[at : at + length]).digest()
            at += length


class BareMount:
    """A process that serves the least mount, gone at the end whatever happens; a context manager."""

    def __init__(self, mountpoint: Path, plain: Path) -> None:
        self.dir, self.file = mountpoint, mountpoint / os.fsdecode(_NAME)
        mountpoint.mkdir()
        command = [sys.executable, "-m", "tests.bench.floor", str(os.getpid()), str(mountpoint), str(plain)]
        # Ctrl-C is for us: we unmount.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._watchdog = threading.Timer(900, abort, [mountpoint])

    @property
    def processes(self) -> list[int]:
        """The mount's process."""
        return [self._process.pid]

    def __enter__(self) -> "BareMount":
        self._watchdog.daemon = True
        self._watchdog.start()
        try:
            processes.wait_until(lambda: connection_of(self.dir) is not None, _LIMIT, "the bare mount")
            setting = Path(f"/sys/class/bdi/0:{connection_of(self.dir)}/read_ahead_kb")
            setting.write_text(str(_READ_AHEAD))
        except BaseException:
            self._clear_away()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            subprocess.run(["fusermount3", "-u", str(self.dir)], check=False, timeout=_LIMIT)
            code = self._process.wait(_LIMIT)
        finally:
            self._clear_away()
        if code and kind is None:
            raise MountFailed(f"the bare mount ended with {code}")

    def _clear_away(self) -> None:
        """Whatever happened before: no process, no mount, no watchdog."""
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait(_LIMIT)
        if connection_of(self.dir) is not None:
            subprocess.run(["fusermount3", "-uz", str(self.dir)], check=False, timeout=_LIMIT)


class _Operations(pyfuse3.Operations):
    """As little as a reader of one file can ask for."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, plain: str) -> None:
        super().__init__()
        self._fd = os.open(plain, os.O_RDONLY)

    async def getattr(self, inode: pyfuse3.InodeT, ctx: object) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino, entry.entry_timeout, entry.attr_timeout = inode, 86400.0, 86400.0
        if inode == _INODE:
            entry.st_mode, entry.st_size = stat.S_IFREG | 0o644, os.fstat(self._fd).st_size
        else:
            entry.st_mode = stat.S_IFDIR | 0o755
        return entry

    async def lookup(
        self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, ctx: object
    ) -> pyfuse3.EntryAttributes:
        if name != _NAME:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(_INODE, ctx)

    async def setattr(
        self, inode: pyfuse3.InodeT, attr: object, fields: object, fh: object, ctx: object
    ) -> pyfuse3.EntryAttributes:
        return await self.getattr(inode, ctx)

    async def unlink(self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, ctx: object) -> None:
        pass

    async def open(self, inode: pyfuse3.InodeT, flags: pyfuse3.FlagT, ctx: object) -> pyfuse3.FileInfo:
        writing = bool(flags & os.O_WRONLY)
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(1), keep_cache=not writing, direct_io=writing)

    async def read(self, fh: pyfuse3.FileHandleT, off: int, size: int) -> bytes:
        return os.pread(self._fd, size, off)

    async def write(self, fh: pyfuse3.FileHandleT, off: int, buf: bytes) -> int:
        return len(buf)


def _serve(parent: str, mountpoint: str, plain: str) -> None:
    child.settle(int(parent))
    pyfuse3.init(_Operations(plain), mountpoint, {"default_permissions", "fsname=bare"})
    try:
        trio.run(partial(pyfuse3.main, min_tasks=8, max_tasks=32))
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
