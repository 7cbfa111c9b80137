"""Collection while the mount serves: nothing that a save, a rename or an open reuses meanwhile can vanish.

A process of its own reads all stubs, finds what is dead and writes what is left of half-dead packs to new
ones (see `kvtool.store.collector`). From its start on the worker notes the chunks that saves use, and the
mount notes every commit and rename. The worker does each change, in short steps between two frames; packs
with a chunk that was noted, or that an open or unfinished file refers to, are spared, and so is every pack
that is younger than the mark.
"""

import json
import logging
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio

from kvtool.errors import IndexDamaged, KvtoolError, reason
from kvtool.fs.environment import Environment
from kvtool.fs.inodes import Inode
from kvtool.store import child, stubs
from kvtool.store.collect import Collected
from kvtool.store.progress import Progress

log = logging.getLogger(__name__)


class Collection:
    """Runs collections, one at a time."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = trio.Lock()
        self.last: Collected | None = None
        self.progress = Progress()

    async def run(self, *, dry_run: bool = False, begun: Callable[[], None] = lambda: None) -> Collected:
        """One collection; `begun` is called when its turn has come.

        Raises KvtoolError when the mark cannot vouch for every stub, OSError.
        """
        async with self._lock:
            meters = self._env.meters
            began, progress = time.monotonic(), self.progress
            progress.began(dry_run=dry_run)
            begun()
            try:
                freed = await self._run(dry_run=dry_run)
            except (KvtoolError, OSError) as error:
                meters.failed_collections += not dry_run
                progress.failed(reason(error) if isinstance(error, OSError) else str(error))
                raise
            finally:
                progress.ended()
            if not dry_run:
                self.last = progress.last = freed
                meters.collections += 1
                meters.collected_packs += freed.packs
                meters.collected_bytes += freed.bytes
                meters.collection_seconds += time.monotonic() - began
                log.info(
                    "collection: %d packs deleted, %d new, %d bytes freed",
                    freed.packs,
                    freed.rewritten,
                    freed.bytes,
                )
            return freed

    async def run_regularly(self, interval: float) -> None:
        """At start and then every `interval` seconds."""
        while True:
            await self.run_logged()
            await trio.sleep(interval)

    async def run_logged(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One collection that nobody waits for: what goes wrong is logged."""
        try:
            await self.run(begun=task_status.started)
        except (KvtoolError, OSError) as error:
            log.error("collection: %s", error)

    async def _run(self, *, dry_run: bool) -> Collected:
        env = self._env
        noted = env.noted = set()
        try:
            newest = await env.worker.note()
            async with self._collector(newest, dry_run=dry_run) as collector:
                freed = await self._work(collector, noted, dry_run=dry_run)
            await env.worker.forget_notes()
        finally:
            env.noted = None
        return freed

    async def _work(self, collector: "Collector", noted: set[Inode], *, dry_run: bool) -> Collected:
        first = await collector.step()
        if first is None:
            return Collected()
        if dry_run:
            return Collected(first["packs"], first["rewritten"], first["bytes"])
        env, progress = self._env, self.progress
        progress.stage, progress.packs_to_write = "deleting", first["rewritten"]
        freed = await self._drop(first["dead"], noted)
        progress.stage = "rewriting"
        while (step := await collector.step()) is not None:
            for chunk_id, length in step["damaged"]:
                log.warning("collection: chunk %s is damaged, its pack is left alone", chunk_id)
                await env.worker.suspect(bytes.fromhex(chunk_id), length)
            freed += Collected(rewritten=1, bytes=-await env.worker.adopt(step["pack"]))
            freed += await self._drop(step["sources"], noted)
            progress.packs_written += 1
            for inode in env.inodes:
                if inode.file is not None:
                    inode.file.moved()
        return freed

    async def _drop(self, keys: Iterable[int], noted: set[Inode]) -> Collected:
        env = self._env

        def needed_packs() -> set[int]:
            return {place.pack for place in env.store.catalog.find(in_use).values()}

        in_use = self._in_use(noted)
        spared = await trio.to_thread.run_sync(needed_packs)
        freed = await env.worker.drop_packs([key for key in keys if key not in spared])
        env.store.packs.close()  # the space of a deleted file is free when nobody has it open
        return freed

    @asynccontextmanager
    async def _collector(self, newest: int, *, dry_run: bool) -> AsyncIterator["Collector"]:
        layout = self._env.store.layout
        arguments = ["--store", str(layout.root), "--stubs", str(layout.stubs), "--newest", str(newest)]
        if dry_run:
            arguments.append("--dry-run")
        process = child.start("kvtool.store.collector", arguments, talks=True)
        try:
            yield Collector(process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(process.communicate)

    def _in_use(self, noted: set[Inode]) -> set[bytes]:
        """The chunks of open and unfinished files, and what was committed or renamed since the mark."""
        ids: set[bytes] = set()
        for inode in self._env.inodes:
            if inode.file is not None:
                ids |= inode.file.chunk_ids()
        for inode in noted:
            if inode.linked:
                for path in _files_at(self._env.inodes.path(inode)):
                    try:
                        ids.update(chunk_id for chunk_id, _ in stubs.read_index(path).chunks())
                    except (IndexDamaged, FileNotFoundError):
                        continue  # incomplete, or gone again
        return ids


class Collector:
    """The process, of which each step is asked for in turn."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._asked = False

    async def step(self) -> dict[str, Any] | None:
        """The next step, None after the last. Raises KvtoolError when the process failed."""
        # The thread is left behind when nobody waits any more: it ends with the process.
        line = await trio.to_thread.run_sync(self._next, abandon_on_cancel=True)
        step: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None  # or cut short
        if step is not None and "failed" not in step:
            return step
        if await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True):
            raise KvtoolError(f"the collection stops: {child.failure_in(line)}")
        return None

    def _next(self) -> bytes:
        process = self._process
        if process.stdin is None or process.stdout is None:  # pragma: no cover - it was started with both
            return b""
        if self._asked:
            process.stdin.write(b"\n")
            process.stdin.flush()
        self._asked = True
        return process.stdout.readline()


def _files_at(path: bytes) -> list[bytes]:
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
