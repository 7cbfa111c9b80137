"""What other callers feel during saves and restores, and what memory a busy mount takes."""

import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import processes
from tests.bench.results import Plan, Results
from tests.bench.steps import shuffled
from tests.mounts import MountedStore
from tests.synth import random_bytes
from tests.timing import MIB, drop_caches, timed

LATENCY = "Latency"
MEMORY = "Memory of all kvtool processes, four restores and two saves at once"
CACHE, QUEUE, REST = 256, 64, 200  # MiB: mount.cache, mount.write_queue, and what else is allowed


def latency(results: Results, folder: Path, plan: Plan) -> None:
    """`stat` and `readdir` in the mount: idle, during a save, and during a save and a restore at once.

    `stat` asks for a name that is not there: the kernel answers for the others from its own cache. What a
    byte takes to `cat` and back is the floor: a process has to wake up for it, and does nothing else.
    """
    source, data = folder / "source", random_bytes(plan.size)
    with MountedStore(folder, limit=900) as mount, _cat() as cat:
        for at in range(20):
            (mount.dir / f"file-{at}").write_bytes(b"x")
        kept = mount.dir / "kept"
        kept.write_bytes(data)
        calls: dict[str, Callable[[], object]] = {
            "stat": lambda: os.path.exists(mount.dir / "absent"),
            "readdir": lambda: os.listdir(mount.dir),
            "a byte to cat and back": cat,
        }
        seconds: dict[str, list[float]] = {}
        for run in range(plan.runs):
            for at, when in enumerate(("idle", "during a save", "during a save and a restore")):
                busy = []
                if at:
                    source.write_bytes(shuffled(data, seed=3 * run + at))  # every save is new
                    os.sync()
                    drop_caches()
                    busy.append(copy(source, mount.dir / "save"))
                if at == 2:
                    busy.append(copy(kept, Path("/dev/null")))
                for _ in range(10_000 if busy else 500):
                    for name, call in calls.items():
                        seconds.setdefault(f"{name} {when}", []).append(timed(call)[0])
                    if busy and any(one.poll() is not None for one in busy):
                        break
                if any(one.wait() for one in busy):
                    raise RuntimeError("a copy failed")
    for what, values in seconds.items():
        p99 = statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]
        results.add(LATENCY, f"{what}, median", statistics.median(values) * 1000, "ms")
        results.add(LATENCY, f"{what}, 99 of 100", p99 * 1000, "ms")
    for name in ("stat", "readdir"):
        what = f"{name} during a save, median"
        results.hold(what, results.median(LATENCY, what), 20, "ms")
    what = "stat during a save and a restore, 99 of 100"
    results.hold(what, results.median(LATENCY, what), 5, "ms")


@contextmanager
def _cat() -> Iterator[Callable[[], object]]:
    """Sends a byte through another process, which has nothing to do but that."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin
        assert process.stdout
        to, back = process.stdin.fileno(), process.stdout.fileno()
        yield lambda: (os.write(to, b"x"), os.read(back, 1))


def memory(results: Results, folder: Path, plan: Plan) -> None:
    """The highest sum of Pss that was seen."""
    sources = [folder / "source-0", folder / "source-1"]
    for seed, source in enumerate(sources):
        source.write_bytes(random_bytes(plan.size, seed))
    for _ in range(plan.runs):
        with MountedStore(folder / "kvtool", limit=600) as mount:
            kept = [mount.dir / f"kept-{at}" for at in range(4)]
            for at, path in enumerate(kept):
                path.write_bytes(random_bytes(plan.size // 2, seed=10 + at))
            mount.remount()
            pids = mount.processes
            results.add(MEMORY, "idle", processes.memory(pids) / MIB, "MiB")
            busy = [copy(path, Path("/dev/null")) for path in kept]
            busy += [copy(source, mount.dir / source.name) for source in sources]
            peak = 0
            while any(one.poll() is None for one in busy):
                peak = max(peak, processes.memory(pids))
            if any(one.wait() for one in busy):
                raise RuntimeError("a copy failed")
            results.add(MEMORY, "peak", peak / MIB, "MiB")
        shutil.rmtree(folder / "kvtool")
    results.hold(
        "memory, cache + queue + 200 MiB", results.median(MEMORY, "peak"), CACHE + QUEUE + REST, "MiB"
    )


def copy(source: Path, target: Path) -> "subprocess.Popen[bytes]":
    """A process of its own that copies in pieces of 1 MiB."""
    command = ["dd", f"if={source}", f"of={target}", "bs=1M", "status=none"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)
