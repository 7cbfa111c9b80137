"""Hashing stored chunks on all cores: a process for each, since threads would share one interpreter lock.

Forked, which takes a hundredth of the time of a start by exec. So only for commands that hold nothing which a
copy must not keep open, as a mount does.
"""

import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kvtool.core.pack import entries_in
from kvtool.errors import KvtoolError
from kvtool.store import child, wire
from kvtool.store.hasher import Fault, Looked, look_at

_WORTH_ONE = 64 << 20  # bytes for which a process of its own is started
_QUEUED = 3  # jobs that each has been given and has not answered


@dataclass(frozen=True, slots=True)
class Job:
    """Chunks of one pack, in the order in which they lie there, as a footer's table."""

    pack: bytes
    path: Path
    table: bytes


@dataclass(eq=False, slots=True)
class _Hasher:
    pid: int
    socket: socket.socket
    jobs: deque[Job] = field(default_factory=deque)


class Hashers:
    """A context manager; no process is left when it ends."""

    def __init__(self, count: int) -> None:
        """Starts `count` processes, from the main thread; with 0 the work is done in this one."""
        self._hashers: list[_Hasher] = []
        try:
            for _ in range(count):
                self._hashers.append(_start())
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> "Hashers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, jobs: Iterable[Job], meanwhile: Iterator[None]) -> Iterator[tuple[Job, Looked]]:
        """Each job with what was found, in no order. While there is time `meanwhile` is taken further.

        Raises KvtoolError when a process died.
        """
        queue = iter(jobs)
        if not self._hashers:
            for job in queue:
                yield job, look_at(job.path, entries_in(job.table))
        with selectors.DefaultSelector() as selector:
            for hasher in self._hashers:
                selector.register(hasher.socket, selectors.EVENT_READ, hasher)
            for hasher in self._hashers * _QUEUED:
                _give(hasher, queue)
            is_idle = True
            while any(hasher.jobs for hasher in self._hashers):
                ready = selector.select(0 if is_idle else None)
                if not ready:
                    is_idle = next(meanwhile, self) is not self
                for key, _ in ready:
                    hasher = key.data
                    looked = _answer(hasher)
                    job = hasher.jobs.popleft()
                    _give(hasher, queue)
                    yield job, looked
        for _ in meanwhile:
            pass

    def _end(self) -> None:
        for hasher in self._hashers:
            os.kill(hasher.pid, signal.SIGKILL)
            hasher.socket.close()
        for hasher in self._hashers:
            os.waitpid(hasher.pid, 0)
        self._hashers.clear()


def count_for(size: int) -> int:
    """How many processes are worth while for `size` bytes: one for each core that we may use at most."""
    return min(len(os.sched_getaffinity(0)), size // _WORTH_ONE)


def _start() -> _Hasher:
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    with theirs:
        pid = os.fork()
        if not pid:
            try:
                child.settle(parent)
                _serve(theirs)
            finally:
                os._exit(1)  # nothing of the parent's is to be cleaned up here
    return _Hasher(pid, ours)


def _serve(connection: socket.socket) -> None:
    while frame := wire.receive(connection):
        message, table = frame
        size, faults = look_at(Path(message["pack"]), entries_in(table))
        rows = [[number, *fault] for number, fault in faults.items()]
        connection.sendall(wire.encode("looked", bytes=size, faults=rows))


def _give(hasher: _Hasher, queue: Iterator[Job]) -> None:
    job = next(queue, None)
    if job is not None:
        hasher.jobs.append(job)
        try:
            hasher.socket.sendall(wire.encode("look", job.table, pack=str(job.path)))
        except (BrokenPipeError, ConnectionResetError):
            raise _died(hasher) from None


def _answer(hasher: _Hasher) -> Looked:
    try:
        frame = wire.receive(hasher.socket)
    except ConnectionResetError:
        frame = None
    if frame is None:
        raise _died(hasher)
    message, _ = frame
    return Looked(message["bytes"], {number: Fault(*fault) for number, *fault in message["faults"]})


def _died(hasher: _Hasher) -> KvtoolError:
    return KvtoolError(
        f"the process that read pack {hasher.jobs[0].path} ended unasked",
        hint="see what the kernel says (dmesg), and run it again",
    )
