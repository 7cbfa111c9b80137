"""What a large store costs: stores whose catalogs stand for 1, 10 and 100 GB in chunks of 64 KiB.

The packs are files as a save makes them, but for the data: where it would be, they have a hole. Start,
look-ups and saves never look at it.
"""

import contextlib
import os
import random
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvtool.core import pack
from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.core.pack import Entry
from kvtool.store import durable, lock, stubs
from kvtool.store import layout as store_layout
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests.bench.results import Plan, Results
from tests.bench.steps import make_forgetful, measure, read, shuffled, write
from tests.mounts import MountedStore
from tests.synth import random_bytes
from tests.timing import drop_caches

GIGABYTES = (1, 10, 100)
CHUNK, CHUNKS = 64 << 10, 1024  # bytes of a chunk; chunks of a pack
START, REBOOT = "Scale: start", "Scale: start on another boot"
OPEN, SAVE, RESTORE = "Scale: open", "Scale: save, new", "Scale: restore, cold"
FIRST_SAVE = "Scale: save, new, with no page of the catalog in the page cache"  # SQLite has 16 MiB of its own
_SIZES = ChunkSizes(16 << 10, 64 << 10, 256 << 10)
_ROUNDS = 3  # of what takes well below a second, in each run


def scale(results: Results, folder: Path, plan: Plan) -> None:
    """Start, open, save and restore, the stores taking turns."""
    data = random_bytes(plan.size // 4, seed=6)
    names = {size: f"{size} GB" for size in GIGABYTES}
    with contextlib.ExitStack() as stack:
        mounts = {}
        for size in GIGABYTES:
            layout = Layout(folder / names[size] / "store", folder / names[size] / "stubs")
            fill(layout, size * 10**9 // (CHUNK * CHUNKS), seed=size)
            mount = MountedStore(folder / names[size], "--store.gc_interval", "0", limit=1800)
            mounts[size] = stack.enter_context(mount)
            write(mount.dir / "kept", shuffled(data, size))
        forget = {size: make_forgetful(mount, cold=False) for size, mount in mounts.items()}
        cold = {size: make_forgetful(mount) for size, mount in mounts.items()}

        def remember(size: int) -> None:
            os.sync()
            Layout(mounts[size].store, mounts[size].stubs).catalog.read_bytes()

        for run in range(plan.runs):

            def each(
                case: str, act: Callable[[int], object], first: Callable[[int], object] = lambda _: os.sync()
            ) -> None:
                turn = results.count(case, names[1])
                for size in GIGABYTES[turn % 3 :] + GIGABYTES[: turn % 3]:
                    step = [(names[size], partial(act, size))]
                    measure(results, case, [step], turn, partial(first, size))

            each(REBOOT, lambda size: mounts[size].start(), lambda size: _stop(mounts[size], reboot=True))
            each(START, lambda size: mounts[size].start(), lambda size: _stop(mounts[size], reboot=False))
            for part in range(_ROUNDS):
                seed = 1000 + 2 * (_ROUNDS * run + part)
                new, newer = shuffled(data, seed), shuffled(data, seed + 1)
                # The functions are called at once.
                each(OPEN, lambda size: _open(mounts[size].dir / "kept"), lambda size: forget[size]())
                each(SAVE, lambda size: write(mounts[size].dir / "new", new), remember)  # noqa: B023
                each(FIRST_SAVE, lambda size: write(mounts[size].dir / "new", newer), _forget)  # noqa: B023
                each(RESTORE, lambda size: read(mounts[size].dir / "kept"), lambda size: cold[size]())
    _hold(results, names[GIGABYTES[0]], names[GIGABYTES[-1]])


def _hold(results: Results, least: str, most: str) -> None:
    for what, case in (("open", OPEN), ("save", SAVE)):
        results.ratio(f"{what}, {most} beside {least}", (case, most), (case, least), 1.2, at_least=False)
    results.hold(f"start, {most}", results.median(START, most), 2, "s")
    results.hold(f"start on another boot, {most}", results.median(REBOOT, most), 2, "s")


def _forget(_size: int) -> None:
    drop_caches()


def _open(path: Path) -> None:
    with path.open("rb", buffering=0):
        pass


def _stop(mount: MountedStore, *, reboot: bool) -> None:
    mount.umount()
    if reboot:
        (mount.store / "lock").write_text("- another-boot\n")
    os.sync()


def fill(layout: Layout, packs: int, seed: int) -> None:
    """A new store with so many packs of 64 MiB, and a snapshot for each."""
    chance, checksum = random.Random(seed), pack.checksum(bytes(CHUNK))
    lengths = array("Q", [CHUNK] * CHUNKS)
    store_layout.make_folder(layout.root)
    held = lock.acquire(layout)
    store_layout.open_or_create(layout, _SIZES)
    store = Store.open(layout, writable=True)
    for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000"):
        store.catalog._db.execute(f"PRAGMA {setting}")
    with store.catalog._transaction():  # add_pack's, once for all
        for number in range(packs):
            pack_id, ids = chance.randbytes(pack.PACK_ID_SIZE), chance.randbytes(32 * CHUNKS)
            entries = [
                Entry(ids[32 * at : 32 * at + 32], pack.HEADER_SIZE + at * CHUNK, CHUNK, checksum)
                for at in range(CHUNKS)
            ]
            size = _write(layout.pack(pack_id), pack_id, entries)
            insert = "INSERT INTO pack (id, size) VALUES (?, ?)"
            key = store.catalog._db.execute(insert, (pack_id, size)).lastrowid
            assert key is not None
            store.catalog._insert(key, entries)
            stub = stubs.prepare(layout, Index(_SIZES).extended(lengths, ids), sync=False)
            stubs.replace(stub, os.fsencode(layout.stubs / f"snapshot-{number}"))
    store.close()
    durable.sync_all(layout, packs)
    held.release()


def _write(path: Path, pack_id: bytes, entries: list[Entry]) -> int:
    end = entries[-1].offset + CHUNK
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("wb") as file:
        file.write(pack.header(pack_id))
        file.seek(end)
        file.write(pack.footer(entries, end))
        size = file.tell()
    os.utime(path, (0, 0))  # long ago: no power cut can have hit it
    return size
