"""The whole file system without the kernel: names and attributes from `tree`, and here what files hold.

Every call raises OSError or KvtoolError. The write state belongs to the inode, see `files`.
"""

import errno
import logging
import os
import stat

import trio

from kvtool.errors import ChunkCorrupt, KvtoolError
from kvtool.fs.environment import Environment
from kvtool.fs.files import File
from kvtool.fs.inodes import Inode
from kvtool.fs.tree import Tree
from kvtool.fs.types import Attr, Caller, Handle
from kvtool.store import stubs

log = logging.getLogger(__name__)
_BURST = 5.0  # seconds: opens closer together than this are one use
_KEPT_CONTENTS = 16  # closed files whose index stays in memory: a restore opens its file three times


class Vfs(Tree):
    """A mount's semantics. Inodes and handles go by number."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._recent: dict[File, None] = {}

    async def create(
        self, parent: int, name: bytes, mode: int, flags: int, caller: Caller
    ) -> tuple[int, Attr]:
        """Makes and opens a file: its handle and attributes. The caller has looked: there was none."""
        directory = self.inodes[parent]
        path = self.inodes.child_path(directory, name, creating=True)
        gid, _ = self._group(directory, caller)
        stubs.create(self.env.store.layout, path, stat.S_IMODE(mode), caller.uid, gid)
        attr = self.lookup(parent, name)
        inode = self.inodes[attr.ino]
        file = self._file(inode, attr.mode)
        file.created()
        return self._open(inode, file, flags), attr

    async def open(self, number: int, flags: int, pid: int = 0) -> int:
        """A handle. With O_TRUNC the file is emptied, else its content must be readable as a whole.

        `pid` is the process that opens it, as far as it is known.
        """
        inode = self.inodes[number]
        file = self._file(inode, os.lstat(self.inodes.path(inode)).st_mode)
        # Counted first: until it is open, nobody may forget it.
        handle = self._open(inode, file, flags)
        try:
            opened = self._handles[handle]
            writes = opened.writes
            opened.background = self.prefetch.is_reader(pid)
            if writes or flags & os.O_TRUNC:
                self.prefetch.drop(inode, "it is being written")
            if flags & os.O_TRUNC:
                await file.truncate(0)
                if not writes:
                    await file.commit()
            elif writes:
                await file.open_for_writing()
            else:
                await file.open_for_reading()
                if not opened.background:
                    self._count_use(inode, file)
        except BaseException as error:
            if isinstance(error, KvtoolError):
                log.error("opening %s failed: %s", self.inodes.name(inode), error)
            with trio.CancelScope(shield=True):
                await self.release(handle)
            raise
        return handle

    def is_direct(self, handle: int) -> bool:
        """Whether the kernel is to keep no pages of what is written through this handle."""
        return self._handles[handle].direct

    async def read(self, handle: int, offset: int, size: int) -> bytes | memoryview:
        """Up to `size` bytes, fewer only at the end; the result is good until the next `await`."""
        opened = self._handles[handle]
        if not opened.background:
            self.prefetch.other_read(opened.inode)
        try:
            file = self._opened_file(opened)
            return await file.read(opened.position, offset, size, background=opened.background)
        except KvtoolError as error:
            log.error("reading %s failed: %s", self.inodes.name(opened.inode), error)
            if isinstance(error, ChunkCorrupt):
                await self.env.worker.suspect(error.chunk_id, error.length)
            raise

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        """Takes `data` at `offset` and returns its length."""
        opened = self._handles[handle]
        appending = bool(opened.flags & os.O_APPEND)
        file = self._opened_file(opened)
        await file.write(offset, data, appending=appending)
        if opened.direct and file.handles > file.direct:
            await self.env.drop_pages(opened.inode)  # a reader who came later may have filled some
        return len(data)

    async def flush(self, handle: int) -> None:
        """One of the handle's descriptors was closed: what was written is committed.

        Content that is empty and new is not, before the last is closed: a shell that redirects its output
        opens, truncates, and closes a copy of the descriptor before anything is written.
        """
        opened = self._handles[handle]
        if opened.writes and not self._opened_file(opened).blank:
            await self._opened_file(opened).commit()

    async def fsync(self, handle: int) -> None:
        """Commits; how durably is the store's setting."""
        await self._opened_file(self._handles[handle]).commit()

    async def release(self, handle: int) -> None:
        """The last descriptor was closed."""
        opened = self._handles.pop(handle)
        inode, file = opened.inode, self._opened_file(opened)
        file.direct -= opened.direct
        if opened.writes:
            file.writers -= 1
        try:
            if not file.writers and opened.writes:
                # A shared mapping may have written after the flush.
                if inode.linked and not file.failed:
                    await file.commit()
                await file.close_writer()
        finally:
            file.handles -= 1
            if not file.handles:
                if not inode.linked:
                    await file.discard()
                await self._keep_a_while(file)
            self.inodes.forget(inode)

    async def commit_appended(self, idle: float) -> None:
        """Commits what was appended and then left alone for `idle` seconds, so that a log is safe."""
        now = trio.current_time()
        for inode in self.inodes:
            file = inode.file
            if file is not None and file.dirty and file.appending and now - file.last_write >= idle:
                try:
                    await file.commit()
                except OSError:
                    continue  # logged, and the next write says it

    async def finish(self) -> None:
        """The end: appends are committed, unfinished new content is discarded and the last commit stays."""
        await self.commit_appended(0)
        for inode in self.inodes:
            if inode.file is not None:
                unfinished = inode.file.dirty or inode.file.failed
                await inode.file.discard()
                path = self.inodes.path(inode) if inode.linked else inode.detached
                if path is not None and (
                    inode.detached or (unfinished and stubs.get(path, stubs.INCOMPLETE))
                ):
                    stubs.drop(path)

    def unfinished(self) -> int:
        """How many files have new content that is not committed."""
        return sum(1 for inode in self.inodes if inode.file is not None and inode.file.dirty and inode.linked)

    def open_files(self) -> int:
        """How many handles are open."""
        return len(self._handles)

    def _open(self, inode: Inode, file: File, flags: int) -> int:
        # Who only writes fills no pages in the kernel, which then does not ask for `security.capability`
        # before each write. Who comes to a file that others may read from pages keeps these right instead.
        direct = flags & os.O_ACCMODE == os.O_WRONLY and file.handles == file.direct
        handle = Handle(inode, flags, direct)
        file.handles += 1
        file.direct += direct
        file.writers += handle.writes
        self._recent.pop(file, None)
        return self._add(handle)

    def _opened_file(self, handle: Handle) -> File:
        if handle.inode.file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return handle.inode.file

    def _count_use(self, inode: Inode, file: File) -> None:
        now = trio.current_time()
        if now - file.used_at > _BURST and inode.linked:
            self.env.meters.restores += 1
            try:
                stubs.count_use(self.inodes.path(inode))
            except OSError:
                return  # a read-only stub tree can still be read
        file.used_at = now

    async def _keep_a_while(self, file: File) -> None:
        for other in self._recent:
            if other is not file and not other.handles:
                other.rest()  # the room is for those that are read
        self._recent[file] = None
        while len(self._recent) > _KEPT_CONTENTS:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            await oldest.forget_content()
