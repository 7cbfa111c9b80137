"""SHA-256 of the chunks of a save, by a process beside the ingest worker's, where a core is left for it.

A process and no thread, though hashlib lets go of the interpreter lock: the chunker does not, and a thread
that wants the lock back after each chunk waits for it most of the time.
"""

import hashlib
import logging
import mmap
import os
import socket
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from kvtool.core.index import ID_SIZE
from kvtool.store import child, wire

log = logging.getLogger("kvtool.store.digests")
_BUSY = 2  # cores that a save keeps busy without: the mount's, and the worker's that cuts


class Digests:
    """The digests of some pieces of memory, which must not change before they are there."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self.pieces = pieces
        self.found: list[bytes] | None = None

    @property
    def size(self) -> int:
        """Their bytes."""
        return ID_SIZE * len(self.pieces)

    def get(self) -> list[bytes]:
        """The digests in order, hashed here unless that has been done."""
        if self.found is None:
            self.found = [hashlib.sha256(piece).digest() for piece in self.pieces]
        return self.found


class Asked(Digests):
    """Digests that a Digester was asked for."""

    def __init__(self, pieces: Sequence[memoryview], digester: "Digester") -> None:
        super().__init__(pieces)
        self._digester = digester

    def get(self) -> list[bytes]:
        """Waits for them. When the process died they are hashed here."""
        self._digester.receive(self)
        return super().get()


class Digester:
    """The process, which shares the memory `memory_fd` of `size` bytes with us."""

    def __init__(self, memory_fd: int, size: int) -> None:
        """To be called from the main thread, see `child.start`."""
        self._socket, theirs = socket.socketpair()
        self._asked: deque[Asked] = deque()
        with theirs:
            arguments = ["--socket", str(theirs.fileno()), "--memory", str(memory_fd), "--size", str(size)]
            self._process = child.start("kvtool.store.digests", arguments, (theirs.fileno(), memory_fd))

    def begin(self, at: int, pieces: Sequence[memoryview]) -> Digests:
        """Has pieces hashed that follow one another in the shared memory, from `at` on."""
        asked = Asked(pieces, self)
        if self._process.poll() is None:
            lengths = array("Q", map(len, pieces)).tobytes()
            with suppress(BrokenPipeError, ConnectionResetError):  # `receive` finds out
                self._socket.sendall(wire.encode("digest", lengths, at=at))
            self._asked.append(asked)
        return asked

    def receive(self, wanted: Asked) -> None:
        """Receives what was asked for up to these; not all of it may be wanted any more."""
        while wanted in self._asked:
            asked = self._asked.popleft()
            try:
                data = self._socket.recv(asked.size, socket.MSG_WAITALL) if asked.size else b""
            except ConnectionResetError:
                data = b""
            if len(data) == asked.size:
                asked.found = [data[at : at + ID_SIZE] for at in range(0, len(data), ID_SIZE)]
            else:
                log.warning("the process that hashes has ended; saves go on without it")
                self._asked.clear()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def close(self) -> None:
        """Ends the process."""
        self._socket.close()
        self._process.wait()


def is_worth_while() -> bool:
    """Whether there is a core for it."""
    return len(os.sched_getaffinity(0)) > _BUSY


def main() -> None:
    """The process's start; the worker passes the descriptors' numbers."""
    parser = child.parser("digests")
    for name in ("socket", "memory", "size"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = child.begin(parser)
    memory = memoryview(mmap.mmap(args.memory, args.size, prot=mmap.PROT_READ))
    with socket.socket(fileno=args.socket) as connection:
        while frame := wire.receive(connection):
            message, body = frame
            at, digests = message["at"], []
            for length in array("Q", body):
                digests.append(hashlib.sha256(memory[at : at + length]).digest())
                at += length
            connection.sendall(b"".join(digests))


if __name__ == "__main__":
    main()
