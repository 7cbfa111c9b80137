"""The file system in this process, without the kernel, as a `Subject`. Its event loop runs in a thread of
its own.
"""

import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import KvtoolError
from kvtool.fs.collection import Collection, Collector
from kvtool.fs.files import Environment
from kvtool.fs.inodes import InodeTable
from kvtool.fs.reader import Reader
from kvtool.fs.vfs import Vfs
from kvtool.fs.writer import IngestWorker
from kvtool.store import collector, recover
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests.property.draws import CHUNK_SIZES
from tests.property.kernel import Kernel

LIMIT = 240.0  # seconds that any call may take


class _Threaded(Collector):
    """The collector in a thread; the mount's is a process, which takes longer to start."""

    def __init__(self, layout: Layout, newest: int) -> None:
        self._steps: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        self._go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(layout, newest), daemon=True)
        self._thread.start()

    def _run(self, layout: Layout, newest: int) -> None:
        def say(step: dict[str, Any]) -> None:
            self._steps.put(step)
            self._go_on.get(timeout=LIMIT)

        self._go_on.get(timeout=LIMIT)
        store = Store.open(layout, writable=False)
        try:
            collector.steps(store, newest, say, dry_run=False)
        except (KvtoolError, OSError) as error:
            self._steps.put(error)
        finally:
            store.close()
        self._steps.put(None)

    async def step(self) -> dict[str, Any] | None:
        self._go_on.put(True)
        step = await trio.to_thread.run_sync(partial(self._steps.get, timeout=LIMIT))
        if isinstance(step, Exception):
            raise step
        return step


class _Collection(Collection):
    @asynccontextmanager
    async def _collector(self, newest: int, *, dry_run: bool) -> AsyncIterator[Collector]:
        yield _Threaded(self._env.store.layout, newest)


class Session:
    """A store below `root` with its worker and a `Vfs`, put together as a mount does it."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root / "store", root / "stubs")
        self.start()

    def start(self) -> None:
        """Open the store, made where there is none, and serve."""
        self._held = ExitStack()
        self._writer = self._held.enter_context(
            recover.writer(self.layout, sync=False, create=ChunkSizes(*CHUNK_SIZES))
        )
        ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(self._serve, ready), daemon=True)
        self._thread.start()
        ready.get(timeout=LIMIT)

    def stop(self) -> None:
        """End as a mount does: what is not committed is discarded."""
        try:
            self.run(self.vfs.finish)
        finally:
            trio.from_thread.run_sync(self._stopped.set, trio_token=self._token)
            self._thread.join(LIMIT)
            self._held.close()

    async def _serve(self, ready: "queue.SimpleQueue[None]") -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopped = trio.Event()
        async with trio.open_nursery() as nursery:
            store = self._writer.store
            worker = IngestWorker(store, 4 << 20, self._writer.lock_fd, nursery)
            reader = Reader(store, nursery, read_ahead=4 << 20, cache=8 << 20, workers=2)
            env = Environment(store, worker, reader, InodeTable(self.layout))
            self.vfs = Vfs(env)
            self.collection = _Collection(env)
            worker.start()
            ready.put(None)
            await self._stopped.wait()
            await worker.stop()
            nursery.cancel_scope.cancel()

    def run(self, function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        """Run something in the event loop and wait for it. Raises what a caller in the mount would see:
        OSError.
        """

        async def limited() -> Any:
            with trio.fail_after(LIMIT):
                return await function(*arguments)

        try:
            return trio.from_thread.run(limited, trio_token=self._token)
        except KvtoolError as error:
            raise OSError(error.errno, str(error)) from error


class VfsSubject:
    """A `Subject` over a session. Each call is the one of `Kernel`."""

    def __init__(self, session: Session) -> None:
        self.name = "vfs"
        self._session = session
        self._kernel = Kernel()
        self._kernel.vfs = session.vfs

    def __getattr__(self, call: str) -> Callable[..., Any]:
        return partial(self._session.run, getattr(self._kernel, call))

    def idle(self) -> None:
        """Some seconds go by."""
        self._session.run(self._session.vfs.commit_appended, 0)

    def collect(self) -> None:
        self._session.run(self._session.collection.run)

    def remount(self) -> None:
        self._session.stop()
        self._session.start()
        self._kernel.vfs = self._session.vfs
