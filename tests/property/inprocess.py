"""The file system in this process, without the kernel, as a `Subject`. Its event loop runs in a thread of
its own.
"""

import os
import queue
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import KvtoolError
from kvtool.fs.environment import Environment
from kvtool.fs.inodes import InodeTable
from kvtool.fs.reader import Reader
from kvtool.fs.vfs import Vfs
from kvtool.fs.writer import IngestWorker
from kvtool.store import recover
from kvtool.store.layout import Layout
from tests.property.draws import CHUNK_SIZES
from tests.property.kernel import Kernel
from tests.service import Service, ThreadCollection

LIMIT = 240.0  # seconds that any call may take


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

    def crash(self) -> None:
        """End as a mount does that is killed: nothing is finished, and the lock says so."""
        pid = self.worker.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        trio.from_thread.run_sync(self._stopped.set, trio_token=self._token)
        self._thread.join(LIMIT)
        killed = KeyboardInterrupt()
        self._held.__exit__(type(killed), killed, None)

    async def _serve(self, ready: "queue.SimpleQueue[None]") -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopped = trio.Event()
        async with trio.open_nursery() as nursery:
            store = self._writer.store
            worker = self.worker = IngestWorker(store, 4 << 20, self._writer.lock_fd, nursery)
            reader = Reader(store, nursery, read_ahead=4 << 20, cache=8 << 20, workers=2)
            env = Environment(store, worker, reader, InodeTable(self.layout))
            self.vfs = Vfs(env)
            self.collection = ThreadCollection(env)
            self.service = Service(store, worker, env, self.vfs)
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
