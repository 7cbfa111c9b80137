"""The hint that a snapshot will be restored soon: it is read into the kernel's page cache, after all others.

A process of its own reads the file through the mount (see `kvtool.store.warm`), one file at a time; others
wait in line. It asks before each piece, and gets no answer while other files are being restored; what it
reads goes through a `Reader` of its own, so that nobody waits for its room. It is killed when somebody
reads the same file (who is faster), when the file is written or unlinked, and when the mount ends.

Nothing here waits for that process to end before the kernel's connection is closed: killed or not, it may be
waiting for an answer that only the mount can give.
"""

import errno
import logging
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress

import trio

from kvtool.errors import reason
from kvtool.fs.inodes import Inode, InodeTable
from kvtool.store import child

log = logging.getLogger(__name__)
_QUIET = 0.1  # seconds since the last read of somebody else's after which others count as idle

Start = Callable[[bytes], "subprocess.Popen[bytes]"]  # on a path relative to the mount


class Prefetched:
    """One hint. Once `ended` is set, `trouble` says why the file was not read to its end, None if it was."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.trouble: str | None = None


class Prefetch:
    """The files that are to be read, the first of them being read."""

    def __init__(self, inodes: InodeTable) -> None:
        self._inodes = inodes
        self._wanted: dict[Inode, Prefetched] = {}
        self._asked = trio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: Inode | None = None
        self._last_read = float("-inf")
        self._stopped = False

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, inode: Inode) -> bool:
        return inode in self._wanted

    def ask(self, inode: Inode) -> Prefetched:
        """Has a file read when its turn comes. Raises OSError (EBUSY) for one that is being written."""
        if not _is_settled(inode):
            raise OSError(errno.EBUSY, "it is being written")
        hint = self._wanted.get(inode)
        if hint is None:
            hint = self._wanted[inode] = Prefetched()
            inode.lookups += 1  # known by this number until it is done
            self._asked.set()
            if self._stopped:
                self.drop(inode, "the mount ends")
        return hint

    def drop(self, inode: Inode, trouble: str) -> None:
        """Ends the hint of a file, if there is one."""
        hint = self._wanted.pop(inode, None)
        if hint is not None:
            if self._reading is inode:
                self._kill()
            self._end(inode, hint, trouble)

    def stop(self) -> None:
        """Ends all hints, and takes no more."""
        self._stopped = True
        for inode in list(self._wanted):
            self.drop(inode, "the mount ends")

    def is_reader(self, pid: int) -> bool:
        """Whether the process with that id is the one that reads."""
        return self._process is not None and self._process.pid == pid

    def other_read(self, inode: Inode) -> None:
        """Notes that somebody else reads, and has to wait for it."""
        self._last_read = trio.current_time()
        if self._reading is inode:
            self.drop(inode, "somebody else reads it")

    async def run(self, start: Start) -> None:
        """Reads what is asked for until cancelled. `start` runs the process; this is the main thread."""
        try:
            while True:
                while not self._wanted:
                    self._asked = trio.Event()
                    await self._asked.wait()
                inode = next(iter(self._wanted))
                trouble = "it is being written"
                if _is_settled(inode):
                    trouble = await self._read(inode, start)
                hint = self._wanted.pop(inode, None)
                if hint is not None:
                    self._end(inode, hint, trouble or None)
        finally:
            self._kill()

    async def _read(self, inode: Inode, start: Start) -> str:
        """Reads one file. Returns what ended it early, nothing when all of it was read."""
        try:
            process = start(self._inodes.relative(inode))
        except OSError as error:
            return f"its process cannot be started: {reason(error)}"
        self._process, self._reading = process, inode
        # The threads are left behind when nobody waits any more: they end with the process.
        while (said := await trio.to_thread.run_sync(_next, process, abandon_on_cancel=True)) == b"\n":
            while self._reading is inode and (wait := self._last_read + _QUIET - trio.current_time()) > 0:
                await trio.sleep(wait)
        await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
        self._process = self._reading = None
        return child.failure_in(said) if process.returncode else ""

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._reading = None

    def _end(self, inode: Inode, hint: Prefetched, trouble: str | None) -> None:
        if trouble is not None:
            log.info("prefetch: %s: %s", self._inodes.name(inode), trouble)
        hint.trouble = trouble
        hint.ended.set()
        self._inodes.forget(inode, 1)


def _is_settled(inode: Inode) -> bool:
    file = inode.file
    return inode.linked and (file is None or not (file.dirty or file.writers))


def _next(process: "subprocess.Popen[bytes]") -> bytes:
    """Has the process read a piece; an empty line when there may be more."""
    if process.stdin is None or process.stdout is None:  # pragma: no cover - it was started with both
        return b""
    with suppress(BrokenPipeError):  # it has ended
        os.write(process.stdin.fileno(), b"\n")
    return process.stdout.readline()
