"""The ingest worker: a process that cuts, hashes, looks up and stores what the mount is given to save.

A process, since the chunker never lets go of the interpreter lock, and the mount must answer meanwhile. It is
started by exec (a forked child would keep /dev/fuse open, and a killed mount would hang its users until the
child died too), takes one frame at a time from its socket (see `wire`), and ends when the mount does. It
inherits the store's lock, so the store stays locked until it too is gone.
"""

import errno
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvtool.errors import KvtoolError, reason
from kvtool.store import badlist, child, collect, compact, wire
from kvtool.store.collect import Collected
from kvtool.store.digests import Digester
from kvtool.store.ingest import Ingest
from kvtool.store.layout import Layout
from kvtool.store.slots import Slots
from kvtool.store.store import Store

log = logging.getLogger("kvtool.store.worker")
_STEP = 0.01  # seconds after which a step of a collection lets saves go first, when its last part is done


class Worker:
    """The saves under way, by stream number, and what is noted for a collection."""

    def __init__(self, store: Store, slots: Slots, digester: Digester | None = None) -> None:
        self._store = store
        self._slots = slots
        self._digester = digester
        self._unsettled: tuple[int, int] | None = None  # the stream and the slot of the last data
        self._streams: dict[int, Ingest] = {}
        self._noted: set[bytes] | None = None
        self._adopting: compact.Adoption | None = None

    def handle(self, message: dict[str, Any]) -> list[bytes]:
        """Does what one frame asks, and returns the frames to answer with."""
        operation = message.pop("op")
        if operation == "data":
            # What came before is settled after this has been cut: until then it is being hashed.
            before, self._unsettled = self._unsettled, (message["stream"], message["slot"])
            return [*self._guard(self._data, **message), *self._settled(before)]
        return [*self.settle(), *self._do(operation, message)]

    def settle(self) -> list[bytes]:
        """Stores what is still being hashed: to be called when nothing else waits. Returns frames too."""
        last, self._unsettled = self._unsettled, None
        return self._settled(last)

    def _settled(self, what: tuple[int, int] | None) -> list[bytes]:
        if what is None:
            return []
        stream, slot = what
        return [*self._guard(self._settle, stream=stream), wire.encode("free", slot=slot)]

    def _do(self, operation: str, message: dict[str, Any]) -> list[bytes]:
        if operation in {"begin", "finish"}:
            return self._guard(getattr(self, f"_{operation}"), **message)
        if operation == "drop":
            self._drop(message["stream"])
            return []
        if operation == "suspect":
            self._suspect(bytes.fromhex(message["id"]), message["length"])
            return []
        if operation in {"note", "forget", "adopt", "delete"}:
            step = getattr(self, f"_{operation}")
            return [self._answered(operation, lambda: step(**message))]
        if operation == "condemn":
            copies = badlist.from_json(message["copies"])
            return [self._answered("condemned", lambda: {"marked": badlist.condemn(self._store, copies)})]
        raise ValueError(f"unknown operation {operation!r}")

    def _guard(self, action: Any, *, stream: int, **fields: Any) -> list[bytes]:
        """Runs one step of a save; whatever goes wrong ends that save and nothing else."""
        try:
            return action(stream, **fields)  # type: ignore[no-any-return]
        except KvtoolError as error:
            code, text = error.errno, str(error)
        except OSError as error:
            code, text = error.errno or errno.EIO, reason(error)
        except Exception as error:
            log.exception("save %d", stream)
            code, text = errno.EIO, repr(error)
        self._drop(stream)
        return [wire.encode("failed", stream=stream, errno=code, message=text)]

    def _begin(self, stream: int, resume: tuple[str, int] | None = None) -> list[bytes]:
        taken_back = (bytes.fromhex(resume[0]), resume[1]) if resume else None
        self._streams[stream] = Ingest(self._store, digester=self._digester, resume=taken_back)
        return []

    def _data(self, stream: int, slot: int, length: int) -> list[bytes]:
        ingest = self._streams.get(stream)
        if ingest is not None:
            slots = self._slots
            ingest.feed(slots.slot(slot), slots.headroom, length, slots.position(slot))
        return []

    def _settle(self, stream: int) -> list[bytes]:
        ingest = self._streams.get(stream)
        if ingest is not None:
            ingest.settle()
        return []

    def _finish(self, stream: int, digest: str) -> list[bytes]:
        ingest = self._streams.get(stream)
        if ingest is None:
            return []
        if ingest.digest.hex() != digest:
            raise OSError(errno.EIO, "the bytes that arrived in the worker are not those that were written")
        saved = ingest.finish()
        if self._noted is not None:
            self._noted.update(ingest.ids)
        del self._streams[stream]
        body = saved.lengths.tobytes() + saved.ids
        return [
            wire.encode("saved", body, stream=stream, new_chunks=saved.new_chunks, new_bytes=saved.new_bytes)
        ]

    def _drop(self, stream: int) -> None:
        ingest = self._streams.pop(stream, None)
        if ingest is not None:
            ingest.discard()

    def _suspect(self, chunk_id: bytes, length: int) -> None:
        """Condemns a chunk that is damaged on disk: who saves its bytes again heals all that need it."""
        try:
            badlist.suspect(self._store, chunk_id, length)
        except (KvtoolError, OSError) as error:
            log.warning("chunk %s cannot be condemned: %s", chunk_id.hex(), error)

    def _note(self) -> dict[str, Any]:
        """A mark begins: what is used from here on is spared."""
        self._noted, self._adopting = set(), None
        return {"newest": collect.newest_pack(self._store)}

    def _forget(self) -> dict[str, Any]:
        """The collection is over."""
        self._noted = None
        return {}

    def _adopt(self, pack: str) -> dict[str, Any]:
        """Has chunks move to the new pack, for a short while; `more` says whether to come again."""
        adoption = self._adopting or compact.Adoption(self._store, bytes.fromhex(pack))
        self._adopting = None
        end = time.monotonic() + _STEP
        more = adoption.step()
        while more and time.monotonic() < end:
            more = adoption.step()
        if more:
            self._adopting = adoption
        return {"bytes": adoption.size, "more": more}

    def _delete(self, keys: list[int]) -> dict[str, Any]:
        """Deletes packs that nothing uses, for a short while; the rest of the keys is `left`."""
        if self._noted is None:
            raise OSError(errno.EIO, "the worker that noted what is used is gone")
        needed = self._noted.union(*(ingest.ids for ingest in self._streams.values()))
        end = time.monotonic() + _STEP
        freed, done = Collected(), 0
        while done < len(keys) and time.monotonic() < end:
            freed = sum(collect.drop(self._store, [keys[done]], needed), freed)
            done += 1
        return {"packs": freed.packs, "bytes": freed.bytes, "left": keys[done:]}

    def _answered(self, op: str, action: Callable[[], dict[str, Any]]) -> bytes:
        """The frame that answers a step of a collection, with what went wrong if something did."""
        began = time.monotonic()
        try:
            answer = action()
        except KvtoolError as error:
            return wire.encode(op, errno=error.errno, message=str(error))
        except OSError as error:
            return wire.encode(op, errno=error.errno or errno.EIO, message=reason(error))
        return wire.encode(op, **answer, seconds=time.monotonic() - began)


def serve(worker: Worker, connection: socket.socket) -> None:
    """Handles frames until the mount closes its end."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    while True:
        if not waiting.poll(0):
            connection.sendall(b"".join(worker.settle()))
        frame = wire.receive(connection)
        if frame is None:
            return
        connection.sendall(b"".join(worker.handle(frame[0])))


def main() -> None:
    """The process's start; the mount passes the descriptors' numbers."""
    parser = child.parser("worker")
    for name in ("socket", "memory", "headroom", "slots"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--stubs", type=Path, required=True)
    for flag in ("sync", "digester"):
        parser.add_argument(f"--{flag}", action="store_true")
    args = child.begin(parser)
    layout = Layout(args.store, args.stubs)
    with suppress(FileNotFoundError):
        for name in os.listdir(layout.incoming):
            os.unlink(layout.incoming / name)  # of a worker before this one that was killed
    store = Store.open(layout, writable=True, sync=args.sync)
    store.catalog.checkpoint_aside()
    slots = Slots(args.memory, args.headroom, args.slots)
    digester = Digester(args.memory, slots.size) if args.digester else None
    with socket.socket(fileno=args.socket) as connection:
        try:
            serve(Worker(store, slots, digester), connection)
        except (BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    main()
