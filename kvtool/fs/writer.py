"""Saves as the mount sees them: bytes go into shared memory, a worker process does the rest.

`IngestWorker` runs the process (see `kvtool.store.worker`) and starts another when it died; `SaveStream` is
one save. A stream copies what it is given into a slot and hands the slot over when it is full, so a small
write costs one copy and no message. The slots are the write queue: who finds none free waits.
"""

import errno
import logging
import socket
import subprocess
from array import array
from collections.abc import Sequence
from typing import Any

import trio
import xxhash

from kvtool.store import badlist, child, digests, wire
from kvtool.store import slots as slot_memory
from kvtool.store.badlist import Copy
from kvtool.store.collect import Collected
from kvtool.store.ingest import Saved
from kvtool.store.store import Store

log = logging.getLogger(__name__)


class SaveStream:
    """One save under way. Its methods are called by one task at a time: the file's lock sees to it."""

    def __init__(self, worker: "IngestWorker", number: int) -> None:
        self.number = number
        self.error: OSError | None = None
        self.saved: Saved | None = None
        self.settled = trio.Event()
        self._worker = worker
        self._digest = xxhash.xxh3_128()
        self._slot: int | None = None
        self.filled = 0

    async def write(self, data: bytes) -> None:
        """Takes the next bytes of the file. Raises the OSError that ended the save once it is known."""
        self._digest.update(data)
        done = 0
        while True:
            if self.error is not None:
                raise self.error
            if done == len(data):
                if self._slot is not None and self._worker.waiting:
                    await self.hand_over()  # we may not come again for long
                return
            if self._slot is None:
                slot = await self._worker.take_slot()
                if self.error is not None:
                    self._worker.give_back(slot)
                    continue
                self._slot, self.filled = slot, 0
            count = min(len(data) - done, slot_memory.DATA_SIZE - self.filled)
            self._worker.fill(self._slot, self.filled, memoryview(data)[done : done + count])
            self.filled += count
            done += count
            if self.filled == slot_memory.DATA_SIZE:
                await self.hand_over()

    async def hand_over(self) -> None:
        """Sends what the slot holds so far to the worker."""
        if self._slot is not None:
            slot, self._slot, filled, self.filled = self._slot, None, self.filled, 0
            await self._worker.send_slot(self.number, slot, filled)

    async def finish(self) -> Saved:
        """Ends the save and waits until all of it is in the store. Raises OSError when it failed."""
        await self.hand_over()
        if self.error is None:
            digest = self._digest.hexdigest()
            await self._worker.send(wire.encode("finish", stream=self.number, digest=digest))
        await self.settled.wait()
        if self.saved is None:
            raise self.error or OSError(errno.EIO, "the save was given up")
        return self.saved

    async def drop(self) -> None:
        """Gives the save up; nothing of it stays."""
        self.fail(OSError(errno.EIO, "the save was given up"))
        await self._worker.forget(self)

    def fail(self, error: OSError) -> None:
        """Notes that the save is lost, and frees its slot."""
        if self.error is None:
            self.error = error
        if self._slot is not None:
            self._worker.give_back(self._slot)
            self._slot, self.filled = None, 0
        self.settled.set()


class IngestWorker:
    """The worker process and the streams it serves."""

    def __init__(self, store: Store, queue: int, lock_fd: int, nursery: trio.Nursery) -> None:
        """`queue` is the bound on bytes written and not yet taken; `lock_fd` is inherited by the process."""
        headroom = store.sizes.max_size
        self._store = store
        self._lock_fd = lock_fd
        self._nursery = nursery
        self._memory_fd, self._slots = slot_memory.create(headroom, slot_memory.count_for(queue, headroom))
        self._free_send, self._free = trio.open_memory_channel[int](self._slots.count)
        self._streams: dict[int, SaveStream] = {}
        self._sent: set[int] = set()  # slots that the worker has and will free
        self._last_number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: trio.SocketStream | None = None
        self._sending = trio.Lock()
        self._asking = False
        self.longest_step = 0.0  # seconds that a save may have waited for a collection
        self._one_question = trio.Lock()
        self._answer_send, self._answers = trio.open_memory_channel[dict[str, Any]](1)
        for slot in range(self._slots.count):
            self._free_send.send_nowait(slot)

    def start(self) -> None:
        """Starts the process. Called from the main thread, see `child.start`."""
        ours, theirs = socket.socketpair()
        command = ["--socket", str(theirs.fileno()), "--memory", str(self._memory_fd)]
        command += ["--headroom", str(self._store.sizes.max_size), "--slots", str(self._slots.count)]
        command += ["--store", str(self._store.layout.root), "--stubs", str(self._store.layout.stubs)]
        if self._store.sync:
            command.append("--sync")
        if digests.is_worth_while():
            command.append("--digester")
        with theirs:
            inherited = (theirs.fileno(), self._memory_fd, self._lock_fd)
            self._process = child.start("kvtool.store.worker", command, inherited)
        self._socket = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self._nursery.start_soon(self._receive, self._socket, self._process, name="ingest worker")

    @property
    def pid(self) -> int | None:
        """The process's id, None while there is none."""
        return self._process.pid if self._process is not None else None

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for a slot."""
        return self._free.statistics().tasks_waiting_receive > 0

    @property
    def queued(self) -> int:
        """How many slots are in use."""
        return self._slots.count - self._free.statistics().current_buffer_used

    async def begin(self, resume: tuple[bytes, int] | None) -> SaveStream:
        """A new save; with `resume` after the chunk (id, bytes) that is taken back."""
        if self._process is None:
            self.start()
        self._last_number += 1
        stream = SaveStream(self, self._last_number)
        self._streams[stream.number] = stream
        taken_back = [resume[0].hex(), resume[1]] if resume else None
        await self.send(wire.encode("begin", stream=stream.number, resume=taken_back))
        return stream

    async def suspect(self, chunk_id: bytes, length: int) -> None:
        """Has the worker look at a chunk that was found damaged."""
        await self.send(wire.encode("suspect", id=chunk_id.hex(), length=length))

    async def note(self) -> int:
        """Has the worker note the chunks used from now on: a mark begins. Returns the key of the newest
        pack. Raises OSError.
        """
        return int((await self._ask(wire.encode("note")))["newest"])

    async def forget_notes(self) -> None:
        """Ends what `note` began."""
        await self._ask(wire.encode("forget"))

    async def adopt(self, pack_id: str) -> int:
        """Has the chunks of a new pack lie there from now on; returns its bytes. Raises OSError."""
        while True:
            answer = await self._ask(wire.encode("adopt", pack=pack_id))
            if not answer["more"]:
                return int(answer["bytes"])

    async def drop_packs(self, keys: Sequence[int]) -> Collected:
        """Deletes packs, but for those that were used since the mark began. Raises OSError."""
        freed = Collected()
        while keys:
            answer = await self._ask(wire.encode("delete", keys=keys))
            freed += Collected(packs=answer["packs"], bytes=answer["bytes"])
            keys = answer["left"]
        return freed

    async def condemn(self, copies: list[Copy]) -> int:
        """Has those copies of chunks that are damaged forgotten for good. Raises OSError."""
        answer = await self._ask(wire.encode("condemn", copies=badlist.to_json(copies)))
        return int(answer["marked"])

    async def stop(self) -> None:
        """Ends the process and waits until it is gone."""
        if self._socket is not None:
            await self._socket.aclose()
        if self._process is not None:
            await trio.to_thread.run_sync(self._process.wait)

    async def take_slot(self) -> int:
        """A free slot. While there is none, what idle saves hold in half-filled slots is handed over."""
        try:
            return self._free.receive_nowait()
        except trio.WouldBlock:
            fullest = max(self._streams.values(), key=lambda stream: stream.filled, default=None)
            if fullest is not None and fullest.filled:
                await fullest.hand_over()
            return await self._free.receive()

    def give_back(self, slot: int) -> None:
        """Frees a slot."""
        self._free_send.send_nowait(slot)

    def fill(self, slot: int, position: int, data: memoryview) -> None:
        """Copies `data` to `position` in the slot's data."""
        start = self._slots.headroom + position
        self._slots.slot(slot)[start : start + len(data)] = data

    async def send_slot(self, stream: int, slot: int, length: int) -> None:
        """Hands a slot with `length` bytes of data over to the worker, which frees it."""
        if self._process is None:
            self.give_back(slot)
            return
        self._sent.add(slot)
        await self.send(wire.encode("data", stream=stream, slot=slot, length=length))

    async def send(self, frame: bytes) -> None:
        """Sends one frame; when the worker is dead, the streams learn it from `_receive`."""
        addressee = self._socket
        async with self._sending:
            if addressee is None or addressee is not self._socket:
                return  # it died meanwhile; its successor knows nothing of what this is about
            try:
                with trio.CancelScope(shield=True):  # half a frame would be the end of all talk
                    await addressee.send_all(frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def forget(self, stream: SaveStream) -> None:
        """Tells the worker to drop a save that failed here."""
        if self._streams.pop(stream.number, None) is not None:
            await self.send(wire.encode("drop", stream=stream.number))

    async def _ask(self, frame: bytes) -> dict[str, Any]:
        async with self._one_question:
            if self._process is None:
                self.start()
            self._asking = True
            await self.send(frame)
            answer = await self._answers.receive()
            self._asking = False
        if answer["op"] == "died":
            raise OSError(errno.EIO, "the ingest worker died")
        if "errno" in answer:
            raise OSError(answer["errno"], answer["message"])
        self.longest_step = max(self.longest_step, answer["seconds"])
        return answer

    async def _receive(self, source: trio.SocketStream, process: subprocess.Popen[bytes]) -> None:
        """Handles the frames of one worker process until it ends."""
        received = bytearray()
        need = wire.PREFIX.size
        with trio.CancelScope(shield=True):
            while True:
                while len(received) >= need:
                    sizes = wire.PREFIX.unpack_from(received)
                    end = wire.PREFIX.size + sum(sizes)
                    if len(received) < end:
                        need = end
                        break
                    body_start = wire.PREFIX.size + sizes[0]
                    message = wire.decode(bytes(received[wire.PREFIX.size : body_start]))
                    self._handle(message, bytes(received[body_start:end]))
                    del received[:end]
                    need = wire.PREFIX.size
                try:
                    piece = await source.receive_some(1 << 20)
                except trio.BrokenResourceError:
                    piece = b""
                except trio.ClosedResourceError:
                    return  # stop() closed it
                if not piece:
                    break
                received += piece
            await self._died(source, process)

    def _handle(self, message: dict[str, Any], body: bytes) -> None:
        operation = message["op"]
        if operation == "free":
            self._sent.discard(message["slot"])
            self.give_back(message["slot"])
        elif operation in {"saved", "failed"}:
            stream = self._streams.pop(message["stream"], None)
            if stream is None:
                return
            if operation == "failed":
                stream.fail(OSError(message["errno"], message["message"]))
                return
            count = len(body) // 40
            lengths = array("Q", body[: 8 * count])
            stream.saved = Saved(lengths, body[8 * count :], message["new_chunks"], message["new_bytes"])
            stream.settled.set()
        else:
            self._answer_send.send_nowait(message)

    async def _died(self, source: trio.SocketStream, process: subprocess.Popen[bytes]) -> None:
        """Fails what was under way; the next save starts another process."""
        log.error(
            "the ingest worker (process %d) ended unasked: %d saves under way are lost",
            process.pid,
            len(self._streams),
        )
        self._process = self._socket = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(OSError(errno.EIO, "the ingest worker died"))
        # No stream holds a slot now, so those that are not free were on their way to the worker.
        for slot in self._sent:
            self.give_back(slot)
        self._sent.clear()
        if self._asking and not self._answers.statistics().current_buffer_used:
            self._answer_send.send_nowait({"op": "died"})
        await source.aclose()
        await trio.to_thread.run_sync(process.wait)
