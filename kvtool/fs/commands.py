"""What a mount does for others on its control socket (see `kvtool.store.control`)."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import trio

from kvtool import __version__
from kvtool.errors import UsageError
from kvtool.fs.collection import Collection
from kvtool.fs.control import Command
from kvtool.fs.history import History
from kvtool.fs.logring import LogRing
from kvtool.fs.names import Names
from kvtool.fs.notify import summary
from kvtool.fs.vfs import Vfs
from kvtool.store import badlist
from kvtool.store.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The parts of a mount asked. `nursery` runs what nobody waits for, `stopping` ends the mount."""

    vfs: Vfs
    collection: Collection
    log: LogRing
    history: History
    settings: Mapping[str, Any]
    mountpoint: str
    http: str
    started: float
    stopping: trio.Event
    nursery: trio.Nursery

    def table(self) -> dict[str, Command]:
        """The commands by name."""
        return {
            "collection": self.progress,
            "condemn": self.condemn,
            "delete": self.delete,
            "gc": self.gc,
            "history": self.samples,
            "label": self.label,
            "logs": self.logs,
            "meters": self.meters,
            "prefetch": self.prefetch,
            "settings": self.explained,
            "status": self.status,
            "umount": self.umount,
        }

    async def status(self, _request: dict[str, Any]) -> dict[str, Any]:
        """A Status."""
        env = self.vfs.env
        store, worker, reader = env.store, env.worker, env.reader
        packs = await trio.to_thread.run_sync(store.catalog.packs)
        status = Status(
            version=__version__,
            pid=os.getpid(),
            worker_pid=worker.pid,
            mountpoint=self.mountpoint,
            store=str(store.layout.root),
            stubs=str(store.layout.stubs),
            http=self.http,
            seconds=round(time.time() - self.started, 1),
            packs=len(packs),
            pack_bytes=sum(row.size for row in packs),
            chunks=await trio.to_thread.run_sync(store.catalog.chunk_count),
            open_files=self.vfs.open_files(),
            unfinished_saves=self.vfs.unfinished(),
            commits=env.commits,
            bytes_saved=env.bytes_saved,
            bytes_new=env.bytes_new,
            bytes_fetched=reader.bytes_fetched,
            bytes_prefetched=env.background.bytes_fetched,
            prefetching=len(self.vfs.prefetch),
            cache_bytes=reader.bytes_held + env.background.bytes_held,
            queued_slots=worker.queued,
            last_collection=self.collection.last,
            longest_collection_step_ms=round(worker.longest_step * 1000, 1),
        )
        return asdict(status)

    async def summary(self) -> str:
        """What the mount does, in one line; looks at nothing that grows with the chunks."""
        env = self.vfs.env
        packs = await trio.to_thread.run_sync(env.store.catalog.packs)
        return summary(
            stored=sum(row.size for row in packs),
            commits=env.commits,
            saved=env.bytes_saved,
            new=env.bytes_new,
            unfinished=self.vfs.unfinished(),
            open_files=self.vfs.open_files(),
        )

    async def explained(self, _request: dict[str, Any]) -> dict[str, Any]:
        """The settings of this mount and where each came from, secrets as stars."""
        return dict(self.settings)

    async def meters(self, _request: dict[str, Any]) -> dict[str, Any]:
        """What was counted since the start, and the lines of the log by level."""
        return {**self.vfs.env.meters.to_json(), "log_lines": dict(self.log.counts)}

    async def samples(self, _request: dict[str, Any]) -> dict[str, Any]:
        """What was saved and stored over time, up to now."""
        sample = await self.history.sample()
        return {"samples": [asdict(each) for each in [*self.history.samples, sample]]}

    async def logs(self, request: dict[str, Any]) -> dict[str, Any]:
        """The last lines of the log."""
        return self.log.read(
            level=str(request["level"]),
            since=float(request["since"]),
            after=int(request["after"]),
            limit=int(request["limit"]),
        )

    async def gc(self, request: dict[str, Any]) -> dict[str, Any]:
        """A collection; with `"wait": false` its progress, once it has begun."""
        if request.get("wait", True):
            return asdict(await self.collection.run(dry_run=bool(request.get("dry_run"))))
        if not self.collection.progress.stage:
            await self.nursery.start(self.collection.run_logged)
        return asdict(self.collection.progress)

    async def progress(self, _request: dict[str, Any]) -> dict[str, Any]:
        """A Progress."""
        return asdict(self.collection.progress)

    async def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Deletes a snapshot."""
        await Names(self.vfs).delete(_name(request))
        return {}

    async def label(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sets and removes labels."""
        changes = request["changes"]
        if not isinstance(changes, dict) or not all(
            isinstance(each, str | None) for each in changes.values()
        ):
            raise UsageError("changes are an object of texts and nulls")
        return {"labels": await Names(self.vfs).label(_name(request), changes)}

    async def condemn(self, request: dict[str, Any]) -> dict[str, Any]:
        """Has copies of chunks that are damaged forgotten."""
        return {"marked": await self.vfs.env.worker.condemn(badlist.from_json(request["copies"]))}

    async def prefetch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Has a snapshot read into the page cache; with `"wait": true` answers when that has ended."""
        hint = self.vfs.ask_prefetch(_name(request))
        if request.get("wait"):
            await hint.ended.wait()
        return {"ended": hint.ended.is_set(), "trouble": hint.trouble}

    async def umount(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Begins the end."""
        self.stopping.set()
        return {"mountpoint": self.mountpoint}


def _name(request: Mapping[str, Any]) -> bytes:
    name = request["name"]
    if not isinstance(name, str):
        raise UsageError("a name is a text")
    return os.fsencode(name)
