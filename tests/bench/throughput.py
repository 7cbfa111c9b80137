"""How fast whole files go in and come out again, beside a plain folder and the peers, in turns."""

import os
import shutil
from functools import partial
from pathlib import Path

from tests import processes
from tests.bench.peers import Peer
from tests.bench.results import Plan, Results, cpu_of
from tests.bench.steps import (
    KVTOOL,
    PLAIN_FILE,
    POWER,
    SYNCED,
    Steps,
    make_forgetful,
    measure,
    measure_warm,
    read,
    write,
)
from tests.llamaio import write_like_llama
from tests.mounts import MountedStore
from tests.synth import PLAIN, Conversation, random_bytes
from tests.timing import MIB, drop_caches

NEW, AGAIN = "Save, new", "Save, all known"
COLD, WARM, TOUCHED = "Restore, cold", "Restore, warm", "Restore, warm, after a new mtime"
SHORT = "Save, V transposed (-fa off)"
PEAK = "Peak memory of the processes, new save and cold restore"
SMALL = "kvtool, in writes of 4 KiB"
_ROUNDS = 3  # of what takes well below a second, in each run


def save_and_restore(results: Results, folder: Path, plan: Plan) -> None:
    """Random bytes in 1 MiB writes: new, again, and back from the disk and from memory."""
    data = random_bytes(plan.size)
    source = folder / "source"
    source.write_bytes(data)
    peers = [peer(folder) for peer in plan.peers]
    for run in range(plan.runs):
        power = MountedStore(folder / "power", "--store.durability", "power", limit=900)
        with MountedStore(folder / "kvtool", limit=900) as mount, power:
            _one_run(results, run, mount, power, peers, source, data)
        for store in ("kvtool", "power"):
            shutil.rmtree(folder / store)
    _hold(results)


def _hold(results: Results) -> None:
    for what, case, peer, bound in (
        ("save beside casync", NEW, "casync", 2.8),
        ("save beside borg", NEW, "borg", 1.8),
        ("saving again beside casync", AGAIN, "casync", 2.5),
    ):
        results.ratio(f"{what}, throughput", (case, peer), (case, KVTOOL), bound, at_least=True)
    for what, case, name, plain, bound in (
        ('save, "power", beside plain and fsync', NEW, POWER, SYNCED, 2),
        ('saving again, "power", beside plain and fsync', AGAIN, POWER, SYNCED, 1.4),
        ("cold restore beside a plain file", COLD, KVTOOL, PLAIN_FILE, 1),
        ("warm restore beside a plain file", WARM, KVTOOL, PLAIN_FILE, 1.05),
        ("warm restore after a new mtime beside a plain file", TOUCHED, KVTOOL, PLAIN_FILE, 1.05),
    ):
        results.ratio(what, (case, name), (case, plain), bound, at_least=False)
    for what, case, bound in (
        ("saved, new", NEW, 2),
        ("saved, known", AGAIN, 2),
        ("restored, cold", COLD, 0.8),
    ):
        results.hold(f"CPU of all processes per GB {what}", results.median(cpu_of(case), KVTOOL), bound, "s")


def _one_run(
    results: Results,
    run: int,
    mount: MountedStore,
    power: MountedStore,
    peers: list[Peer],
    source: Path,
    data: bytes,
) -> None:
    plain, synced = source.with_name("plain"), source.with_name("synced")
    mounts, size = [mount, power], len(data)
    for peer in peers:
        peer.create()

    def saves(name: str) -> list[Steps]:
        into_sync = [
            (POWER, partial(write, power.dir / name, data)),
            (SYNCED, partial(write, synced, data, sync=True)),
        ]
        into_cache = [
            (KVTOOL, partial(write, mount.dir / name, data)),
            (PLAIN_FILE, partial(write, plain, data)),
        ]
        return [into_cache, into_sync, *([(peer.name, partial(peer.save, source))] for peer in peers)]

    for case, name in ((NEW, "a"), (AGAIN, "b")):
        measure(results, case, saves(name), run, size=size, mounts=mounts)
    inside = mount.dir / "a"
    mount.remount()  # so that nothing is left in the process's own cache either
    forget = make_forgetful(mount)
    pair: Steps = [(KVTOOL, partial(read, inside)), (PLAIN_FILE, partial(read, plain))]
    for turn in range(_ROUNDS):
        measure(results, COLD, [pair], run + turn, forget, size=size, mounts=[mount])
    if not drop_caches():
        results.note("Not root, so the page cache stayed: the cold restores are warm.")
    measure(results, COLD, [[(peer.name, peer.restore)] for peer in peers], run, drop_caches, size=size)

    for turn in range(_ROUNDS):
        measure_warm(results, WARM, pair, run + turn, size=size, mounts=[mount])
        for path in (inside, plain):
            os.utime(path)
        measure(results, TOUCHED, [pair], run + turn, size=size, mounts=[mount])
    if inside.read_bytes() != data:
        raise AssertionError("a restored file is not what was saved")
    results.add(PEAK, KVTOOL, processes.peak_memory(mount.processes) / MIB, "MiB")
    for peer in peers:
        results.add(PEAK, peer.name, peer.peak_memory / MIB, "MiB")


def short_writes(results: Results, folder: Path, plan: Plan) -> None:
    """The server without flash attention: 16,000 writes of 4-12 KiB. Always 138 MB, whatever the size."""
    snapshot = Conversation(PLAIN.without_flash_attention(), seed=1).turn(4200).snapshot()
    source, plain = folder / "source", folder / "plain"
    write_like_llama(str(source), snapshot)
    peers = [peer(folder) for peer in plan.peers]
    for run in range(plan.runs):
        with MountedStore(folder / "4k", limit=600) as small, MountedStore(folder / "8k", limit=600) as large:
            for peer in peers:
                peer.create()
            save = partial(write_like_llama, snapshot=snapshot)
            steps: Steps = [
                (KVTOOL, partial(save, str(large.dir / "a"))),
                (SMALL, partial(save, str(small.dir / "a"), buffer=4096)),
                (PLAIN_FILE, partial(save, str(plain))),
            ]
            groups: list[Steps] = [steps, *([(peer.name, partial(peer.save, source))] for peer in peers)]
            measure(results, SHORT, groups, run, size=snapshot.size, mounts=[small, large])
        for store in ("4k", "8k"):
            shutil.rmtree(folder / store)
    results.ratio("-fa off, save beside casync", (SHORT, KVTOOL), (SHORT, "casync"), 1.3, at_least=False)
    results.ratio(
        "-fa off in writes of 4 KiB, save beside casync",
        (SHORT, SMALL),
        (SHORT, "casync"),
        1.3,
        at_least=False,
    )
