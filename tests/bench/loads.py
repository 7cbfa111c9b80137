"""What other callers feel during a save, what memory a busy mount takes, what each turn stores."""

import importlib.util
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests import processes
from tests.bench.results import Plan, Results
from tests.llamaio import save_like_proxy
from tests.mounts import MountedStore
from tests.synth import HYBRID, PLAIN, Conversation, random_bytes
from tests.timing import MIB, timed

MEMORY = "Memory of all kvtool processes, four restores and two saves at once"
CACHE, QUEUE, REST = 256, 64, 200  # MiB: mount.cache, mount.write_queue, and what else is allowed


def latency(results: Results, folder: Path, plan: Plan) -> None:
    """`stat` and `readdir` in the mount, idle and while a file is being saved.

    `stat` asks for a name that is not there: the kernel answers for the others from its own cache.
    """
    source = folder / "source"
    with MountedStore(folder, limit=600) as mount:
        for at in range(20):
            (mount.dir / f"file-{at}").write_bytes(b"x")
        calls: dict[str, Callable[[], object]] = {
            "stat": lambda: os.path.exists(mount.dir / "absent"),
            "readdir": lambda: os.listdir(mount.dir),
        }
        for when in ("idle", "during a save"):
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for run in range(plan.runs):
                source.write_bytes(random_bytes(plan.size, seed=run))  # every save is new
                busy = copy(source, mount.dir / f"save-{run}") if when != "idle" else None
                for _ in range(10_000 if busy else 500):
                    for name, call in calls.items():
                        seconds[name].append(timed(call)[0])
                    if busy and busy.poll() is not None:
                        break
                if busy and busy.wait():
                    raise RuntimeError("the save failed")
            for name, values in seconds.items():
                results.add("Latency", f"{name} {when}, median", statistics.median(values) * 1000, "ms")
                p99 = statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]
                results.add("Latency", f"{name} {when}, 99 of 100", p99 * 1000, "ms")
        for name in calls:
            during = results.median("Latency", f"{name} during a save, median")
            results.hold(f"{name} during a save, median", during, 20, "ms")


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


def turns(results: Results, folder: Path, plan: Plan) -> None:
    """The share of new bytes in each save of a conversation, made up in the layout of real ones."""
    for name, shape in (("plain", PLAIN), ("hybrid", HYBRID)):
        with MountedStore(folder / name, limit=600) as mount:
            first = Conversation(shape, seed=1).turn(4200)
            other = first.branch(2500, seed=2).turn(1700).snapshot()
            saves = [("first", first.snapshot()), ("next turn", first.turn(600).snapshot())]
            for what, snapshot in [*saves, ("other conversation", other), ("the same again", other)]:
                before = mount.pack_bytes
                save_like_proxy(str(mount.dir), what, snapshot)
                share = (mount.pack_bytes - before) / snapshot.size * 100
                results.add("New bytes, made-up snapshots", f"{name}, {what}", share, "%")


def llama(results: Results, folder: Path, plan: Plan) -> None:
    """The same with the real server and full-size models: takes minutes."""
    if importlib.util.find_spec("xllamacpp") is None:
        results.note("xllamacpp is not installed: the real server was left out.")
        return
    from tests.e2e import models, scenario

    case = "New bytes, real llama.cpp server"
    for name, model in (("plain", models.PLAIN), ("hybrid", models.HYBRID)):
        path = models.write_model(str(folder / f"{name}.gguf"), model)
        with MountedStore(folder / name, limit=1800) as mount:
            outcome = scenario.run(path, mount.dir, 4200, stored=lambda: mount.pack_bytes, limit=900)
        sizes = [*outcome.written.values(), outcome.written[scenario.NAMES[-1]]]
        for at, what in enumerate(("first", "next turn", "other conversation", "the same again")):
            share = (outcome.stored[at + 1] - outcome.stored[at]) / sizes[at] * 100
            results.add(case, f"{name}, {what}", share, "%")
    results.hold("hybrid, next turn, new bytes", results.median(case, "hybrid, next turn"), 40, "%")
    results.hold("hybrid, the same again, new bytes", results.median(case, "hybrid, the same again"), 0, "%")
