"""What upkeep costs: a collection of a large store, and what is left of a store after a month of use."""

import io
import os
import random
import shutil
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from kvtool.core.index import Index
from kvtool.store import collect, stubs
from kvtool.store import layout as store_layout
from kvtool.store.ingest import ingest_file
from kvtool.store.layout import Layout
from kvtool.store.lock import acquire
from kvtool.store.store import Store
from tests import processes
from tests.bench.results import Plan, Results
from tests.bench.steps import measure, read, write
from tests.bench.throughput import COLD
from tests.mounts import MountedStore
from tests.synth import Conversation, Shape
from tests.timing import MIB, drop_caches, timed

SNAPSHOTS, REFERENCES = 1000, 1000  # chunk references of each
LARGE = "Collection of 1,000 snapshots, 2,000 packs, 1,000,000 chunk references"
MONTH = "A month: 200 turns of a conversation, 20 that branch off, the oldest deleted"
_SMALL = ["--chunk.min_size", "64", "--chunk.avg_size", "256", "--chunk.max_size", "1024"]


def collection(results: Results, folder: Path, plan: Plan) -> None:
    """Mark and survey in a process of their own, and what saves wait for the rest of it."""
    with MountedStore(folder, *_SMALL):
        pass  # makes the store
    layout = Layout(folder / "store", folder / "stubs")
    made, _ = timed(partial(_fill, layout))
    results.add(LARGE, "making the store, offline", made)
    for _ in range(plan.runs):
        command = [sys.executable, "-m", "tests.bench.upkeep", str(layout.root), str(layout.stubs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        seconds, peak, references = done.stdout.split()
        results.add(LARGE, "mark and survey", float(seconds))
        results.add("Memory of mark and survey", f"{references} references", float(peak), "MiB")
        listing = [sys.executable, "-m", "kvtool", "inspect", "--store.path", str(layout.root)]
        listing += ["--store.stubs", str(layout.stubs)]
        took, _ = timed(partial(subprocess.run, listing, stdout=subprocess.DEVNULL, check=True, timeout=600))
        results.add(LARGE, "kvtool inspect, all of it", took)
    results.hold("mark and survey", results.median(LARGE, "mark and survey"), 10, "s")
    results.hold("kvtool inspect lists them", results.median(LARGE, "kvtool inspect, all of it"), 2, "s")
    peak_memory = results.median("Memory of mark and survey", f"{SNAPSHOTS * REFERENCES} references")
    results.hold("memory of mark and survey", peak_memory, 300, "MiB")
    with MountedStore(folder, "--store.gc_interval", "0", limit=900) as mount:
        for when in ("idle", "during a collection"):
            if when != "idle":
                for number in range(0, SNAPSHOTS, 2):
                    (mount.dir / f"snapshot-{number}").unlink()
            command = [sys.executable, "-m", "kvtool", "gc", *mount.settings]
            busy = subprocess.Popen(command, stdout=subprocess.PIPE) if when != "idle" else None
            waits = []
            for turn in range(100_000 if busy else 500):
                waits.append(timed(partial(_save, mount.dir / "small", turn))[0] * 1000)
                if busy and busy.poll() is not None:
                    break
            if busy:
                results.note(f"the collection of half of it: {busy.communicate()[0].decode().strip()}")
            case = "A save of 4 KiB, from create to close"
            for name, value in (("median", statistics.median(waits)), ("longest", max(waits))):
                results.add(case, f"{name} {when}", value, "ms")
        longest = mount.json("status")["longest_collection_step_ms"]
        results.hold("longest step of a collection, for which saves wait", longest, 50, "ms")


def month(results: Results, folder: Path, plan: Plan) -> None:
    """Each turn is saved under the conversation's name; a collection runs every ten saves."""
    shape = Shape(layers=8, row=256)
    chance = random.Random(1)
    main = Conversation(shape, seed=1).turn(1500)
    others: list[Conversation] = []
    names: list[str] = []  # the least recently saved first
    worst = 0.0
    saves = 0
    with MountedStore(folder / "month", "--store.gc_interval", "0", limit=1800) as mount:
        for turn in range(200):
            todo = [("main", main.turn(100))]
            if turn % 10 == 5:
                others.append(main.branch(chance.randrange(len(main.tokens)), seed=2 + turn))
            todo += [
                (f"other-{at}", other.turn(100)) for at, other in enumerate(others) if chance.random() < 0.1
            ]
            for name, conversation in todo:
                write(mount.dir / f"{name}.tmp", conversation.snapshot().data)
                os.rename(mount.dir / f"{name}.tmp", mount.dir / name)
                names = [each for each in names if each != name] + [name]
                if len(names) > 12:
                    (mount.dir / names.pop(0)).unlink()
                saves += 1
            if turn % 10 == 9:
                mount.kvtool("gc", limit=600)
                worst = max(worst, mount.pack_bytes / _live_bytes(mount))
        results.add(MONTH, "saves", saves, "number")
        results.add(MONTH, "store beside live bytes after a collection, at worst", worst, "number")
        results.hold("store beside live bytes after a collection", worst, 1.35, "x")
        data = (mount.dir / "main").read_bytes()
        with MountedStore(folder / "fresh", limit=1800) as fresh:
            (fresh.dir / "main").write_bytes(data)
            fresh.remount()
            mount.remount()
            steps = [("after a month", partial(read, mount.dir / "main"))]
            steps += [("fresh store", partial(read, fresh.dir / "main"))]
            case = f"{COLD}, {len(data) // 1_000_000} MB, after a month"
            for run in range(plan.runs):
                measure(results, case, [steps], run, before=drop_caches)
        packs, runs = (mount.json("inspect", "main")[key] for key in ("packs", "runs"))
        results.note(f"after a month the snapshot lies in {packs} packs, in {runs} runs")
        results.ratio(
            "cold restore after a month beside a fresh store",
            (case, "after a month"),
            (case, "fresh store"),
            1.3,
            at_least=False,
        )
    shutil.rmtree(folder / "month")


def _fill(layout: Layout) -> None:
    """1,000 snapshots of 1,000 chunks, each in two packs of its own and with 400 chunks of the one before."""
    held = acquire(layout)
    store = Store.open(layout, writable=True)
    store.catalog._db.execute("PRAGMA synchronous = OFF")  # 2,000 commits, of which none matters
    chance = random.Random(7)
    before = Index(store.sizes)
    for number in range(SNAPSHOTS):
        index = before.part(max(0, len(before) - 400), len(before))
        for part in (1, 2):
            want = (REFERENCES - len(index)) // (2 if part == 1 else 1)
            while want > 0:
                saved = ingest_file(store, io.BytesIO(chance.randbytes(want * 320)))
                lengths, ids = saved.lengths[:want], saved.ids[: 32 * want]
                index = index.extended(lengths, ids)
                want = 0 if len(lengths) == want else want - len(lengths)
        name = os.path.join(os.fsencode(layout.stubs), b"snapshot-%d" % number)
        stubs.replace(stubs.prepare(layout, index, sync=False), name)
        before = index
    store.close()
    held.release()


def _save(path: Path, turn: int) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(turn.to_bytes(8, "little") * 512)


def _live_bytes(mount: MountedStore) -> int:
    layout = Layout(mount.store, mount.stubs)
    store = Store.open(layout, writable=False)
    try:
        survey = collect.survey(store, collect.mark(store), collect.newest_pack(store))
        return sum(use.bytes for use in survey.uses)
    finally:
        store.close()


def main() -> None:
    """Mark and survey one store: prints seconds, the peak of memory in MiB, and the references read."""
    layout = Layout(Path(sys.argv[1]), Path(sys.argv[2]))
    store_layout.open_existing(layout)
    store = Store.open(layout, writable=False)
    seconds, ids = timed(partial(collect.mark, store))
    more, _ = timed(partial(collect.survey, store, ids, collect.newest_pack(store)))
    references = sum(len(stubs.read_index(path)) for path in stubs.walk(layout))
    print(seconds + more, processes.peak_memory([os.getpid()]) / MIB, references)


if __name__ == "__main__":
    main()
