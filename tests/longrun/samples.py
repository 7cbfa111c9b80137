"""What a mount's processes hold, sample by sample, and whether it grew from the first tenth to the last."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from tests import processes

MiB = 1 << 20
PARTS = 20  # rows of the table


@dataclass(frozen=True)
class Sample:
    """One look at a mount's processes: `minutes` since the start, `steps` done, bytes of memory (of the
    mount's own process, and of all), open descriptors of packs and of all else, threads and processes of all,
    and bytes in packs.
    """

    minutes: float
    steps: int
    mount: int
    memory: int
    packs: int
    fds: int
    threads: int
    processes: int
    stored: int


_MOST_PACKS = 128  # the mount keeps up to 64 open, and so does the worker

# SQLite's page cache fills as the store is used: up to 16 MiB in each process that has the catalog open.
_PAGE_CACHE = 16 * MiB

# What must not grow: its name, how it is read, and by how much the last tenth may exceed the first.
_LIMITS: list[tuple[str, Callable[[Sample], int], Callable[[float], float]]] = [
    ("memory of the mount's process", lambda sample: sample.mount, lambda first: 0.1 * first + _PAGE_CACHE),
    (
        "memory of all its processes",
        lambda sample: sample.memory,
        lambda first: 0.1 * first + 2 * _PAGE_CACHE,
    ),
    ("open packs", lambda sample: sample.packs, lambda first: _MOST_PACKS - first),
    ("other open descriptors", lambda sample: sample.fds, lambda first: 12),
    ("threads", lambda sample: sample.threads, lambda first: 8),
    ("processes", lambda sample: sample.processes, lambda first: 0),
]


def take(pid: int, minutes: float, steps: int, stored: int) -> Sample:
    """A look at the mount with that process id, while none of its clients does anything."""
    family = processes.family(pid)
    packs = fds = threads = 0
    for one in family:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            links = [_target(f"/proc/{one}/fd/{fd}") for fd in os.listdir(f"/proc/{one}/fd")]
            packs += sum("/packs/" in link for link in links)
            fds += sum("/packs/" not in link for link in links)
            threads += len(os.listdir(f"/proc/{one}/task"))
    mount, memory = processes.memory([pid]), processes.memory(family)
    return Sample(minutes, steps, mount, memory, packs, fds, threads, len(family), stored)


def growth(samples: Sequence[Sample]) -> list[str]:
    """What grew by more than it may, from the median of the first tenth to that of the last."""
    tenth = max(1, len(samples) // 10)
    grown = []
    for what, value, allowed in _LIMITS:
        first = median(map(value, samples[:tenth]))
        last = median(map(value, samples[-tenth:]))
        if last > first + allowed(first):
            grown.append(
                f"{what}: {_plain(what, first)} in the first tenth, {_plain(what, last)} in the last"
            )
    return grown


def rows(samples: Sequence[Sample]) -> list[list[str]]:
    """A table's heading and rows: medians of each part of the run, evenly spread."""
    size = max(1, -(-len(samples) // PARTS))
    parts = [samples[start : start + size] for start in range(0, len(samples), size)]
    return [_HEADER] + [
        [
            f"{part[-1].minutes:.1f}",
            str(part[-1].steps),
            *(f"{median(getattr(one, name) for one in part) / MiB:.0f}" for name in ("mount", "memory")),
            *(
                f"{median(getattr(one, name) for one in part):g}"
                for name in ("packs", "fds", "threads", "processes")
            ),
            f"{part[-1].stored / MiB:.0f}",
        ]
        for part in parts
    ]


_HEADER = [
    "minutes",
    "steps",
    "mount MiB",
    "all MiB",
    "packs",
    "descriptors",
    "threads",
    "processes",
    "stored MiB",
]


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return ""


def _plain(what: str, value: float) -> str:
    return f"{value / MiB:.1f} MiB" if what.startswith("memory") else f"{value:g}"
