"""A mount from start to end: what runs, how it comes up, and how it goes down with nothing lost."""

import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyfuse3
import trio

from kvtool.core.readplan import SEGMENT_SIZE
from kvtool.core.score import Score
from kvtool.errors import KvtoolError
from kvtool.fs.api import ApiOptions, ApiProcess
from kvtool.fs.collection import Collection
from kvtool.fs.commands import Commands
from kvtool.fs.control import ControlServer
from kvtool.fs.costs import Costs
from kvtool.fs.environment import Environment
from kvtool.fs.history import History
from kvtool.fs.inodes import Inode, InodeTable
from kvtool.fs.logring import LogRing
from kvtool.fs.notify import Notifier
from kvtool.fs.operations import Operations
from kvtool.fs.reader import Reader
from kvtool.fs.vfs import Vfs
from kvtool.fs.writer import IngestWorker
from kvtool.store import child, durable, relay
from kvtool.store import mounts as places
from kvtool.store.collect import newest_pack
from kvtool.store.store import Store

log = logging.getLogger(__name__)
_M_ARENA_MAX = -8  # mallopt(3)
_GRACE = 10.0  # seconds that unfinished saves get to finish when the mount is to end
_APPEND_IDLE = 5.0  # seconds after which what was appended is committed though the file is still open
_MIN_TASKS, _MAX_TASKS = 8, 32  # requests served at once; each task holds a buffer of 1 MiB


@dataclass(frozen=True, slots=True)
class MountOptions:
    """How to mount: sizes in bytes, `gc_interval` in seconds (0 = no collection by itself).

    `settings` is the answer to whoever asks on the control socket which settings this mount has, `log` keeps
    its last lines. `score` is an expression that has been checked. `manager` is told how the mount does.
    """

    mountpoint: Path
    gc_interval: float
    read_ahead: int
    workers: int
    cache: int
    write_queue: int
    kernel_read_ahead: int
    allow_other: bool
    http: ApiOptions | None
    score: str
    settings: Mapping[str, Any]
    log: LogRing
    manager: Notifier


def serve(store: Store, lock_fd: int, options: MountOptions, ready: Callable[[], None]) -> None:
    """Mounts, serves until it is unmounted or told to end, and returns when all is committed.

    The mountpoint has been checked (`mounts.check`); the worker inherits `lock_fd`. `ready` is called once
    requests are served. Raises KvtoolError and OSError.
    """
    _allocate_from_one_arena()
    try:
        trio.run(_Mount(store, lock_fd, options, ready).main)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _allocate_from_one_arena() -> None:
    """Has the C library's threads share their memory: with one each it took 40 MiB more after a while."""
    with suppress(AttributeError):  # a C library that is not glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _first(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that the nurseries wrapped it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _MountedFiles(Environment):
    """The environment of files under a kernel, whose cache can be stale."""

    nursery: trio.Nursery

    def drop_pages_soon(self, inode: Inode) -> None:
        # In a thread, since it waits for pages that the request at hand may have locked.
        self.nursery.start_soon(self.drop_pages, inode)

    async def drop_pages(self, inode: Inode) -> None:
        await self._invalidate(inode.number)

    async def attributes_changed(self, inode: Inode) -> None:
        await self._invalidate(inode.number, attr_only=True)

    async def name_gone(self, directory: Inode, name: bytes, inode: Inode | None) -> None:
        # By numbers: the inodes may be forgotten meanwhile.
        parent, child = directory.number, inode.number if inode is not None else 0
        with suppress(OSError):  # the kernel does not know it any more
            await trio.to_thread.run_sync(pyfuse3.invalidate_entry, parent, name, child)
        # The times of the one have changed, and the number of names of the other.
        await self._invalidate(parent, attr_only=True)
        if child:
            await self._invalidate(child, attr_only=True)

    async def _invalidate(self, number: int, *, attr_only: bool = False) -> None:
        with suppress(OSError):  # the kernel does not know it any more
            await trio.to_thread.run_sync(pyfuse3.invalidate_inode, number, attr_only)


class _Mount:
    def __init__(self, store: Store, lock_fd: int, options: MountOptions, ready: Callable[[], None]) -> None:
        self._store = store
        self._place = options.mountpoint
        self._options = options
        self._lock_fd = lock_fd
        self._ready = ready
        self._started = time.time()
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._api = (
            ApiProcess(store.layout, options.http, options.score) if options.http is not None else None
        )

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._options.log.receive, relay.open_receiver(), name="log lines")
            self._assemble(nursery)
            self._attach()
            try:
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._serve, name="requests")
                    serving.start_soon(self._watch_signals, name="signals")
                    serving.start_soon(self._stop_when_told, name="stop")
                    serving.start_soon(self._commit_idle, name="idle appends")
                    serving.start_soon(self._history.run, name="history")
                    serving.start_soon(self._vfs.prefetch.run, self._warm, name="prefetch")
                    commands = self._commands(serving)
                    control = ControlServer(self._store.layout, commands.table())
                    await serving.start(control.serve)
                    if self._options.gc_interval:
                        collecting = self._collection.run_regularly
                        serving.start_soon(collecting, self._options.gc_interval, name="collection")
                    if self._api is not None:
                        serving.start_soon(self._api.run, name="HTTP API")
                        log.info("the HTTP API listens on %s", self._api.url)
                    await trio.to_thread.run_sync(self._raise_read_ahead)
                    self._ready()
                    manager = self._options.manager
                    await manager.say(READY="1", STATUS="serves")
                    serving.start_soon(manager.run, self._answers, commands.summary, name="service manager")
                    await self._ended.wait()
                    serving.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self._vfs.finish()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._detach)
                    await self._worker.stop()
            await trio.to_thread.run_sync(self._write_out)
            nursery.cancel_scope.cancel()

    def _assemble(self, nursery: trio.Nursery) -> None:
        store, options = self._store, self._options
        self._worker = IngestWorker(store, options.write_queue, self._lock_fd, nursery)
        self._reader = Reader(
            store, nursery, read_ahead=options.read_ahead, cache=options.cache, workers=options.workers
        )
        self._background = Reader(store, nursery, read_ahead=SEGMENT_SIZE, cache=2 * SEGMENT_SIZE, workers=1)
        inodes = InodeTable(store.layout)
        env = _MountedFiles(store, self._worker, self._reader, inodes, self._background)
        env.nursery = nursery
        self._env = env
        self._vfs = Vfs(env)
        self._costs = Costs(env, Score(options.score))
        self._collection = Collection(env)
        self._history = History(env)

    def _commands(self, nursery: trio.Nursery) -> Commands:
        return Commands(
            vfs=self._vfs,
            collection=self._collection,
            log=self._options.log,
            history=self._history,
            settings=self._options.settings,
            mountpoint=str(self._place),
            http=self._api.url if self._api is not None else "",
            started=self._started,
            stopping=self._stopping,
            nursery=nursery,
        )

    def _attach(self) -> None:
        options = {"default_permissions", f"fsname={places.fsname(self._store.layout)}", "subtype=kvtool"}
        if self._options.allow_other:
            options.add("allow_other")
        operations = Operations(self._vfs, self._costs, owned=os.geteuid() == 0)
        try:
            pyfuse3.init(operations, str(self._place), options)
        except RuntimeError as error:
            if self._options.allow_other:
                places.check_allow_other()
            hint = "see the line of fusermount3 or libfuse above; is the package fuse3 installed?"
            raise KvtoolError(f"cannot mount on {self._place}: {error}", hint=hint) from error
        self._worker.start()

    def _detach(self) -> None:
        pyfuse3.close(unmount=True)
        # An aborted connection is left mounted by libfuse.
        mounted = places.find(self._place)
        if mounted is not None and mounted.store == self._store.layout.root:
            places.take_down(self._place)

    def _write_out(self) -> None:
        """Has all be on the disk, as the end of any file system does: the next boot need not read it then."""
        try:
            # Without a new pack too: stubs, names and labels may be new.
            durable.sync_all(self._store.layout, newest_pack(self._store))
        except (OSError, KvtoolError) as error:
            log.warning("what was saved may not be on the disk: %s", error)

    async def _serve(self) -> None:
        try:
            await pyfuse3.main(min_tasks=_MIN_TASKS, max_tasks=_MAX_TASKS)
        finally:
            self._ended.set()

    async def _watch_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                log.info("%s: unmounting", signal.Signals(number).name)
                if self._stopping.is_set():
                    pyfuse3.terminate()  # told twice: no grace
                self._stopping.set()

    async def _stop_when_told(self) -> None:
        await self._stopping.wait()
        await self._options.manager.say(STOPPING="1", STATUS="commits what is unfinished")
        self._vfs.prefetch.stop()
        await self._vfs.commit_appended(0)
        with trio.move_on_after(_GRACE):
            while self._vfs.unfinished():
                await trio.sleep(0.02)
        if left := self._vfs.unfinished():
            log.warning("%d unfinished saves are given up", left)
        pyfuse3.terminate()

    async def _commit_idle(self) -> None:
        while True:
            await trio.sleep(1)
            await self._vfs.commit_appended(_APPEND_IDLE)

    def _raise_read_ahead(self) -> None:
        mounted = places.find(self._place)
        if mounted is None:
            return
        setting = Path(f"/sys/class/bdi/{mounted.device}/read_ahead_kb")
        try:
            setting.write_text(f"{self._options.kernel_read_ahead // 1024}\n")
        except OSError as error:
            log.info("the kernel's read-ahead stays as it is, restores are somewhat slower: %s", error)

    async def _answers(self) -> bool:
        """Whether a request goes all the way: to the kernel, from there to us, and back."""
        process = places.ask(self._place)
        try:
            # The thread is left behind when nobody waits any more: it ends with the process.
            return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True) == 0
        finally:
            process.kill()

    def _warm(self, relative: bytes) -> "subprocess.Popen[bytes]":
        path = os.path.join(self._place, os.fsdecode(relative))
        return child.start("kvtool.store.warm", [path], talks=True)
