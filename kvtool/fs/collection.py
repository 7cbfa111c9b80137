"""Collection while the mount serves: nothing that a save, a rename or an open reuses meanwhile can vanish.

The mark reads all stubs in a process of its own. From its start the worker notes the packs that saves use,
and the mount notes every commit and rename. The sweep, a step of the worker between two frames, spares all
of that, whatever an open or unfinished file refers to, and every pack that is younger than the mark.
"""

import json
import logging
import os
import subprocess

import trio

from kvtool.errors import IndexDamaged, KvtoolError
from kvtool.fs.files import Environment
from kvtool.fs.inodes import Inode
from kvtool.store import child, collect, stubs
from kvtool.store.collect import Collected

log = logging.getLogger(__name__)


class Collection:
    """Runs collections, one at a time."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = trio.Lock()
        self.last: Collected | None = None

    async def run(self, *, dry_run: bool = False) -> Collected:
        """One collection. Raises KvtoolError when the mark cannot vouch for every stub, OSError."""
        async with self._lock:
            env = self._env
            env.noted = set()
            try:
                await env.worker.note()
                live = await self._mark()
                live |= await trio.to_thread.run_sync(collect.packs_of, env.store, self._in_use(env.noted))
                freed = await env.worker.sweep(live, dry_run=dry_run)
            finally:
                env.noted = None
            env.store.packs.close()
            if not dry_run:
                self.last = freed
                log.info("collection: %d packs, %d bytes freed", freed.packs, freed.bytes)
            return freed

    async def run_regularly(self, interval: float) -> None:
        """At start and then every `interval` seconds."""
        while True:
            try:
                await self.run()
            except (KvtoolError, OSError) as error:
                log.error("collection: %s", error)
            await trio.sleep(interval)

    async def _mark(self) -> set[int]:
        layout = self._env.store.layout
        arguments = ["--store", str(layout.root), "--stubs", str(layout.stubs)]
        process = child.start("kvtool.store.collect", arguments, stdout=subprocess.PIPE)
        output, errors = await trio.to_thread.run_sync(process.communicate)
        if process.returncode:
            text = errors.decode(errors="replace").strip().splitlines()
            raise KvtoolError(f"nothing is collected: {text[-1] if text else 'the mark failed'}")
        return set(json.loads(output))

    def _in_use(self, noted: set[Inode]) -> set[bytes]:
        """The chunks of open and unfinished files, and what was committed or renamed since the mark."""
        ids: set[bytes] = set()
        for inode in self._env.inodes:
            if inode.file is not None:
                ids |= inode.file.chunk_ids()
        unlinked = {inode for inode in self._env.inodes if inode.detached is not None}
        for inode in noted | unlinked:
            if inode.linked or inode.detached is not None:
                for path in _files_at(self._env.inodes.path(inode)):
                    try:
                        ids.update(chunk_id for chunk_id, _ in stubs.read_index(path).chunks())
                    except (IndexDamaged, FileNotFoundError):
                        continue  # incomplete, or gone again
        return ids


def _files_at(path: bytes) -> list[bytes]:
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
