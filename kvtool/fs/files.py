"""A file's live content: the committed one, or the one being written. All handles of a file see the same.

The content is an index of sealed chunks (`_index`), and on top of it either nothing, a save under way
(`_stream`: bytes in order), or a plain copy (`_staging`: anything else). Reading what is still being saved
seals it first, so there is one way to read. Nothing is visible after a crash until `commit` replaces the
stub.

A save that failed poisons the content: until it is truncated to nothing or unlinked, everything is EIO.
Clients ignore what close(2) says; without this one would append to the old content, or rename the failed
file over a good one.
"""

import errno
import logging
import os
import time
from contextlib import suppress

import trio

from kvtool.core.index import Index
from kvtool.core.readplan import ReadPlan
from kvtool.errors import ChunkCorrupt, IndexDamaged, KvtoolError, reason
from kvtool.fs.environment import Environment
from kvtool.fs.inodes import Inode
from kvtool.fs.reader import Position
from kvtool.fs.staging import Staging
from kvtool.fs.writer import SaveStream
from kvtool.store import fetch, stubs

log = logging.getLogger(__name__)
SIZE_MAX = (16 << 40) - 4096  # ext4's; what is refused here leaves the file as it was


class File:
    """The content and write state of one inode. Its methods raise OSError and KvtoolError."""

    def __init__(self, env: Environment, inode: Inode) -> None:
        self.handles = 0
        self.writers = 0
        self.direct = 0  # handles that pass the kernel's pages by
        self.dirty = False
        self.appending = False
        self.blank = False  # new and empty: created or truncated, and nothing written since
        self.last_write = 0.0
        self.mtime_ns: int | None = None
        self.used_at = float("-inf")
        self._env = env
        self._inode = inode
        self._lock = trio.Lock()
        self._index: Index | None = None
        self._plan: ReadPlan | None = None
        self._stream: SaveStream | None = None
        self._streamed = 0
        self._staging: Staging | None = None
        self._failed = False
        self._full = 0  # the errno when it was for want of room
        self._stale = False  # chunks may lie elsewhere by now: moved, or stored anew as one was damaged
        self._known_size: int | None = None

    @property
    def in_use(self) -> bool:
        """Whether it must stay known: open, not yet committed, or poisoned under its name."""
        return self.handles > 0 or self.dirty or (self._failed and self._inode.linked)

    @property
    def failed(self) -> bool:
        """Whether the content is poisoned."""
        return self._failed

    def size(self) -> int:
        """The live size in bytes."""
        if self._staging is not None:
            return self._staging.size
        if self._index is not None:
            return self._index.size + self._streamed
        if self._known_size is None:
            self._known_size = self._committed_size()
        return self._known_size

    def chunk_ids(self) -> set[bytes]:
        """The chunks that the live content refers to, for a collection to spare."""
        return set(self._index.id_list()) if self._index is not None else set()

    def created(self) -> None:
        """Begins the life of a new, empty file."""
        self._index = Index(self._env.store.sizes)
        self.dirty = self.blank = True
        self.appending = False

    def moved(self) -> None:
        """Notes that chunks have moved: whoever opens the file next looks their places up anew."""
        self._stale = True

    async def open_for_reading(self) -> None:
        """Looks every chunk up. Raises ChunkMissing, IndexDamaged, OSError (EIO when poisoned)."""
        async with self._lock:
            self._check()
            await self._load()
            if self._stream is None and self._staging is None:
                await self._plan_reading()

    async def open_for_writing(self) -> None:
        """Raises what makes writing impossible."""
        async with self._lock:
            self._check()
            await self._load()

    async def read(
        self, position: Position, offset: int, size: int, *, background: bool = False
    ) -> bytes | memoryview:
        """Up to `size` bytes at `offset`; the result is good until the next `await`."""
        while self._plan is None or self._failed:
            async with self._lock:
                self._check()
                await self._load()
                if self._staging is not None:
                    return await self._staging.read(offset, size)
                await self._seal()
                await self._plan_reading()
        reader, plan = self._env.background if background else self._env.reader, self._plan
        try:
            return await reader.read(plan, position, offset, size)
        except ChunkCorrupt:
            self._stale = True
            raise
        except OSError as error:
            # EIO for a client, whatever it was: the pack's own errno would be taken for one of this file.
            raise KvtoolError(reason(error)) from error
        finally:
            if plan is not self._plan:
                reader.forget(plan)  # it was dropped meanwhile

    async def write(self, offset: int, data: bytes, *, appending: bool = False) -> None:
        """Takes `data` at `offset`. Raises OSError: the real reason once, EIO afterwards."""
        if self._lock.locked():
            await self._lock.acquire()
        else:
            self._lock.acquire_nowait()  # no trip through the scheduler for each small write
        try:
            self._check(writing=True)
            await self._load()
            _check_size(offset + len(data))
            try:
                if self._staging is None and offset != self.size():
                    await self._stage()
                if self._staging is not None:
                    await self._staging.write(offset, data)
                else:
                    await self._append(data)
            except (OSError, KvtoolError) as error:
                await self._fail(error)
                raise
            self._touched(appending=appending)
        finally:
            self._lock.release()

    async def truncate(self, size: int) -> None:
        """Makes the file `size` bytes long. To nothing: whatever was there, damaged or poisoned, is gone."""
        async with self._lock:
            if size == 0:
                await self._reset(Index(self._env.store.sizes))
                self._failed = False
            else:
                self._check()
                await self._load()
                _check_size(size)
                if size != self.size():
                    try:
                        await (await self._stage()).truncate(size)
                    except (OSError, KvtoolError) as error:
                        await self._fail(error)
                        raise
            self._touched(appending=False)

    async def commit(self) -> None:
        """Makes the live content what survives: seals it and replaces the stub. Raises OSError."""
        async with self._lock:
            self._check()
            if not self.dirty or not self._inode.linked:
                return
            began = time.monotonic()
            try:
                await self._commit()
                self._env.meters.commit_times.observe(time.monotonic() - began)
            except (OSError, KvtoolError) as error:
                await self._fail(error)
                raise

    async def close_writer(self) -> None:
        """After the last handle for writing is closed: a committed plain copy has done its duty."""
        async with self._lock:
            if self._staging is not None and not self.dirty and not self.writers:
                await self._drop_staging()

    async def discard(self) -> None:
        """Gives up what is not committed."""
        async with self._lock:
            await self._reset(None)
            self.dirty = False

    def rest(self) -> None:
        """Lets go of what was brought for readers: who reads on has it brought again."""
        if self._plan is not None:
            self._env.reader.forget(self._plan)
            self._env.background.forget(self._plan)

    async def forget_content(self) -> None:
        """Frees the memory that a closed file's content takes."""
        if not self.handles and not self.dirty and not self._lock.locked():
            self._drop_plan()
            if self._index is not None:
                self._known_size = self._index.size
            self._index = None

    def _check(self, *, writing: bool = False) -> None:
        if self._failed:
            # The kernel cuts a large write in two: when the second half fails, the writer is told of fewer
            # bytes, and sees the reason only when it writes again.
            code = self._full if writing and self._full else errno.EIO
            raise OSError(code, "an earlier write of this file failed")

    def _committed_size(self) -> int:
        path = self._env.inodes.path(self._inode)
        text = stubs.get(path, stubs.SIZE)
        if text is not None and text.isdigit():
            return int(text)
        with suppress(IndexDamaged):
            return stubs.read_index(path).size
        return os.lstat(path).st_size

    async def _load(self) -> None:
        """Reads the committed index unless there is a live content already."""
        if self._index is None:
            self._index = await self._env.inodes.read_index(self._inode)

    async def _plan_reading(self) -> None:
        if self._plan is None or self._stale:
            self._stale = False  # what moves from here on counts again
            try:
                plan = await trio.to_thread.run_sync(fetch.plan_file, self._env.store, self._require_index())
            except BaseException:
                self._stale = True  # and the old plan stays, for who reads by it
                raise
            self._drop_plan()
            self._plan = plan

    def _drop_plan(self) -> None:
        self.rest()
        self._plan = None

    async def _append(self, data: bytes) -> None:
        if self._stream is None:
            index = self._require_index()
            resume = None
            if len(index):
                last = len(index) - 1
                resume = (index.id(last), index.length(last))
                index = index.head(last)
            self._stream = await self._env.worker.begin(resume)
            self._index, self._streamed = index, resume[1] if resume else 0
            self._drop_plan()
        await self._stream.write(data)
        self._streamed += len(data)

    async def _seal(self) -> None:
        """Ends the save under way: its chunks join the index."""
        if self._stream is not None:
            try:
                saved = await self._stream.finish()
            except OSError as error:
                await self._fail(error)
                raise
            self._env.bytes_saved += self._streamed
            self._env.bytes_new += saved.new_bytes
            self._index = self._require_index().extended(saved.lengths, saved.ids)
            self._stream, self._streamed = None, 0

    async def _stage(self) -> Staging:
        """Turns to a plain copy, for writes out of order."""
        if self._staging is None:
            await self._seal()
            staging = await Staging.create(self._env.store, self._require_index())
            self._staging = staging
            self._drop_plan()
        return self._staging

    async def _commit(self) -> None:
        store = self._env.store
        if self._staging is not None:
            stream = await self._env.worker.begin(None)
            try:
                await self._staging.send_to(stream)
                saved = await stream.finish()
            except BaseException:
                with trio.CancelScope(shield=True):
                    await stream.drop()
                raise
            self._env.bytes_saved += self._staging.size
            self._env.bytes_new += saved.new_bytes
            self._index = Index(store.sizes).extended(saved.lengths, saved.ids)
        else:
            await self._seal()
        index = self._require_index()
        aside = await trio.to_thread.run_sync(lambda: stubs.prepare(store.layout, index, sync=store.sync))
        # From here on there is no `await` until the rename: name, mode and attributes cannot change under it.
        if not self._inode.linked:
            stubs.drop(aside)
            return
        path = self._env.inodes.path(self._inode)
        stubs.replace(aside, path, self.mtime_ns)
        self.dirty, self.mtime_ns = False, None
        self._env.note(self._inode)
        self._env.commits += 1
        if store.sync:
            await trio.to_thread.run_sync(stubs.sync_name, store.layout, path)
        if not self.writers and self._staging is not None:
            await self._drop_staging()

    async def _fail(self, error: OSError | KvtoolError) -> None:
        if not self._failed:
            self._failed = True
            self._full = error.errno if error.errno in {errno.ENOSPC, errno.EDQUOT} else 0
            self._env.meters.failed_saves += 1
            log.error("saving %s failed: %s", self._env.inodes.name(self._inode), error)
            await self._reset(None)
            self.dirty = False
            self._env.drop_pages_soon(self._inode)

    async def _reset(self, index: Index | None) -> None:
        """Drops everything that is not committed; the live content is `index`, or the committed one."""
        stream, self._stream, self._streamed = self._stream, None, 0
        self._drop_plan()
        self._index, self._known_size = index, None
        if self._staging is not None:
            await self._drop_staging()
        if stream is not None:
            await stream.drop()

    async def _drop_staging(self) -> None:
        staging, self._staging = self._staging, None
        if staging is not None:
            await staging.close()

    def _touched(self, *, appending: bool) -> None:
        # New content that is abandoned half-way is not committed; a log that is only ever appended to is.
        self.appending = appending or (self.appending if self.dirty else False)
        self.dirty = True
        self.blank = self.size() == 0
        self.mtime_ns = time.time_ns()
        self.last_write = trio.current_time()

    def _require_index(self) -> Index:
        if self._index is None:
            raise OSError(errno.EIO, "the file has no content")
        return self._index


def _check_size(size: int) -> None:
    if size > SIZE_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
