"""SHA-256 of the chunks of a save, on threads of their own while the next bytes are cut.

hashlib lets go of the interpreter lock for each chunk, the chunker never does. So these threads get the lock
back between two chunks that are cut, if whoever cuts hands it over that often: see `_SWITCH`.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

Digests = Callable[[], list[bytes]]

_MOST = 4  # threads: together they are faster than the chunker
_SWITCH = 20e-6  # seconds; to cut a chunk of 64 KiB takes about 60e-6


class Digester:
    """`threads` threads that hash; with none the caller does it. A context manager."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "digests") if threads else None
        self._interval = sys.getswitchinterval()
        if self._pool is not None:
            sys.setswitchinterval(_SWITCH)

    def __enter__(self) -> "Digester":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            sys.setswitchinterval(self._interval)

    def begin(self, pieces: Sequence[memoryview]) -> Digests:
        """Starts to hash pieces, which must not change until what this returns has given their digests."""
        if self._pool is None:
            done = _digests(pieces)
            return lambda: done
        share = -(-len(pieces) // self._threads) or 1
        parts = [self._pool.submit(_digests, pieces[at : at + share]) for at in range(0, len(pieces), share)]
        return lambda: [digest for part in parts for digest in part.result()]


def threads_beside(busy: int) -> int:
    """How many threads are worth while where `busy` other threads and processes keep a core busy each."""
    return max(0, min(len(os.sched_getaffinity(0)) - busy, _MOST))


def _digests(pieces: Sequence[memoryview]) -> list[bytes]:
    return [hashlib.sha256(piece).digest() for piece in pieces]
