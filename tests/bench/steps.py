"""Steps that take turns, each with its time and the CPU time of all processes that had a part in it."""

import os
import random
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests import processes
from tests.bench.results import Results, cpu_of
from tests.mounts import MountedStore
from tests.timing import MIB, drop_caches, timed

Steps = Sequence[tuple[str, Callable[[], object]]]

PLAIN_FILE, SYNCED = "plain file", "plain file, then fsync"
KVTOOL, POWER = "kvtool", 'kvtool, durability "power"'
_BLOCK = 8 << 10  # half of the smallest chunk: no chunk of one order is one of another
_REMEMBERED = 20  # files that are opened so that a mount forgets where another one's chunks lie


class Served(Protocol):
    """A mount whose CPU time counts."""

    @property
    def processes(self) -> list[int]:
        """The ids of its processes."""


def measure(
    results: Results,
    case: str,
    groups: Sequence[Steps],
    run: int,
    before: Callable[[], object] = os.sync,
    *,
    size: int = 0,
    mounts: Sequence[Served] = (),
) -> None:
    """Time each step once, after `before`, in another order in each run.

    The steps of a group follow each other at once: what is compared closely belongs into one. With `size`
    (bytes that each step moves) the CPU time of this process, of those it started, and of `mounts` is noted.
    """
    for group in _turned(groups, run):
        for name, action in _turned(group, run):
            before()  # nobody pays for another's dirty pages
            began = _cpu(mounts)
            results.add(case, name, timed(action)[0])
            if size:
                results.add(cpu_of(case), name, (_cpu(mounts) - began) / size * 1e9, "s/GB")


def measure_warm(
    results: Results, case: str, steps: Steps, run: int, *, size: int = 0, mounts: Sequence[Served] = ()
) -> None:
    """The same for one group whose steps find in memory what they read: each is done once before."""
    for _, action in steps:
        action()
    measure(results, case, [steps], run, size=size, mounts=mounts)


def write(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file anew in pieces of 1 MiB."""
    path.unlink(missing_ok=True)
    view = memoryview(data)
    with open(path, "wb", buffering=0) as file:
        for at in range(0, len(data), MIB):
            file.write(view[at : at + MIB])
        if sync:
            os.fsync(file.fileno())


def read(path: Path) -> int:
    """Read a file in pieces of 1 MiB into one buffer. Returns its length."""
    buffer, total = bytearray(MIB), 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            total += got
    return total


def shuffled(data: bytes, seed: int) -> bytes:
    """Other bytes, of which no chunk is one of `data` or of another seed's: ten times as fast as new ones."""
    view = memoryview(data)
    pieces = [view[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)]
    random.Random(seed).shuffle(pieces)
    return b"".join(pieces)


def make_forgetful(mount: MountedStore, *, cold: bool = True) -> Callable[[], None]:
    """What has the mount look a file's chunks up at the next open, and with `cold` all come from the disk.

    The mount is not started anew for that: one that has run for a while has its buffers.
    """
    small = [mount.dir / f"small-{at}" for at in range(_REMEMBERED)]
    for path in small:
        path.write_bytes(b"x")

    def forget() -> None:
        for path in small:
            path.read_bytes()
        if cold:
            drop_caches()

    return forget


def _turned(items: Sequence[object], by: int) -> "list":  # type: ignore[type-arg]
    first = by % max(1, len(items))
    return [*items[first:], *items[:first]]


def _cpu(mounts: Sequence[Served]) -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in spent)
    return own + sum(processes.cpu_seconds(mount.processes) for mount in mounts)
