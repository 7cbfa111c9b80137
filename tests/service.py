"""The file system in this process with a real worker, for tests that run in its event loop."""

import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import KvtoolError
from kvtool.fs.collection import Collection, Collector
from kvtool.fs.environment import Environment
from kvtool.fs.inodes import ROOT, InodeTable
from kvtool.fs.reader import Reader
from kvtool.fs.types import Attr, Caller
from kvtool.fs.vfs import Vfs
from kvtool.fs.writer import IngestWorker
from kvtool.store import collector, recover, slots
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests.stores import SIZES, layout_in

LIMIT = 60.0
_NOBODY = Caller()


@dataclass
class Service:
    """A `Vfs` with what is below it, and calls by name as a kernel makes them."""

    store: Store
    worker: IngestWorker
    env: Environment
    vfs: Vfs

    def lookup(self, name: bytes, parent: int = ROOT) -> Attr:
        """The attributes of a name, without keeping it known."""
        attr = self.vfs.lookup(parent, name)
        self.vfs.forget(attr.ino, 1)
        return attr

    async def create(self, name: bytes, parent: int = ROOT, flags: int = 1) -> int:
        handle, attr = await self.vfs.create(parent, name, 0o644, flags, _NOBODY)
        self.vfs.forget(attr.ino, 1)
        return handle

    async def open(self, name: bytes, flags: int = 0, parent: int = ROOT) -> int:
        attr = self.vfs.lookup(parent, name)
        try:
            return await self.vfs.open(attr.ino, flags)
        finally:
            self.vfs.forget(attr.ino, 1)

    async def close(self, handle: int) -> None:
        try:
            await self.vfs.flush(handle)
        finally:
            await self.vfs.release(handle)

    async def put(self, name: bytes, data: bytes, parent: int = ROOT) -> None:
        handle = await self.create(name, parent)
        await self.vfs.write(handle, 0, data)
        await self.close(handle)

    async def get(self, name: bytes, parent: int = ROOT) -> bytes:
        handle = await self.open(name, parent=parent)
        try:
            return bytes(await self.vfs.read(handle, 0, 1 << 30))
        finally:
            await self.close(handle)


@asynccontextmanager
async def serving(
    root: Path, *, count: int = 4, sync: bool = False, sizes: ChunkSizes = SIZES
) -> AsyncIterator[Service]:
    """A mount's inside on the store below `root`, with so many slots; ends as a mount does."""
    queue = count * (sizes.max_size + slots.DATA_SIZE)
    with recover.writer(layout_in(root), sync=sync, create=sizes) as (store, _, lock_fd):
        async with trio.open_nursery() as nursery:
            worker = IngestWorker(store, queue, lock_fd, nursery)
            reader = Reader(store, nursery, read_ahead=4 << 20, cache=16 << 20, workers=2)
            background = Reader(store, nursery, read_ahead=1 << 20, cache=2 << 20, workers=1)
            env = Environment(store, worker, reader, InodeTable(store.layout), background)
            service = Service(store, worker, env, Vfs(env))
            try:
                yield service
            finally:
                with trio.CancelScope(shield=True):
                    await service.vfs.finish()
                    await worker.stop()
                nursery.cancel_scope.cancel()


def serve(root: Path, act: Callable[[Service], Awaitable[None]], **options: object) -> None:
    """Runs `act` on a service; the time limit is for what would hang."""

    async def main() -> None:
        with trio.fail_after(LIMIT):
            async with serving(root, **options) as service:  # type: ignore[arg-type]
                await act(service)

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from group


class ThreadCollection(Collection):
    """A collection whose collector runs in a thread; the mount's is a process, which takes longer to start.

    `meanwhile` is called before each step of the collector is handled, with that step.
    """

    async def meanwhile(self, step: dict[str, Any] | None) -> None:
        """Nothing, unless a test replaces it."""

    @asynccontextmanager
    async def _collector(self, newest: int, *, dry_run: bool) -> AsyncIterator[Collector]:
        collector = _InThread(self, self._env.store.layout, newest, dry_run=dry_run)
        try:
            yield collector
        finally:
            collector.end()


class _Ended(Exception):
    """Nobody asks for more steps."""


class _InThread(Collector):
    def __init__(self, collection: ThreadCollection, layout: Layout, newest: int, *, dry_run: bool) -> None:
        self._collection = collection
        self._steps: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        self._go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(layout, newest, dry_run), daemon=True).start()

    def _run(self, layout: Layout, newest: int, dry_run: bool) -> None:
        def say(step: dict[str, Any]) -> None:
            self._steps.put(step)
            if not self._go_on.get(timeout=LIMIT):
                raise _Ended

        self._go_on.get(timeout=LIMIT)
        try:
            store = Store.open(layout, writable=False)
            try:
                collector.steps(store, newest, say, dry_run=dry_run)
            finally:
                store.close()
            self._steps.put(None)
        except (KvtoolError, OSError) as error:
            self._steps.put(error)
        except _Ended:
            pass

    def end(self) -> None:
        """Has the thread end at its next step."""
        self._go_on.put(False)

    async def step(self) -> dict[str, Any] | None:
        self._go_on.put(True)
        step = await trio.to_thread.run_sync(partial(self._steps.get, timeout=LIMIT))
        if isinstance(step, Exception):
            raise step
        await self._collection.meanwhile(step)
        return step
