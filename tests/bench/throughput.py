"""How fast whole files go in and come out again, beside a plain folder and the peers, in turns."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests import processes
from tests.bench.peers import Peer
from tests.bench.results import Plan, Results
from tests.llamaio import write_like_llama
from tests.mounts import MountedStore
from tests.synth import PLAIN, Conversation, random_bytes
from tests.timing import MIB, drop_caches, timed

NEW, AGAIN = "Save, new", "Save, all known"
COLD, WARM = "Restore, cold", "Restore, warm"
SHORT = "Save, V transposed (-fa off)"
PLAIN_FILE = "plain file"

Steps = list[tuple[str, Callable[[], object]]]


def save_and_restore(results: Results, folder: Path, plan: Plan) -> None:
    """Random bytes in 1 MiB writes: new, again, and back from the disk and from memory."""
    data = random_bytes(plan.size)
    source = folder / "source"
    source.write_bytes(data)
    peers = [peer(folder) for peer in plan.peers]
    for run in range(plan.runs):
        with MountedStore(folder / "kvtool", limit=600) as mount:
            _one_run(results, run, mount, peers, source, data)
        shutil.rmtree(folder / "kvtool")
    results.ratio("save, throughput beside casync", (NEW, "casync"), (NEW, "kvtool"), 2, at_least=True)
    results.ratio(
        "saving again, throughput beside casync", (AGAIN, "casync"), (AGAIN, "kvtool"), 1.7, at_least=True
    )
    results.ratio(
        "cold restore beside a plain file", (COLD, "kvtool"), (COLD, PLAIN_FILE), 1.5, at_least=False
    )
    results.ratio(
        "warm restore beside a plain file", (WARM, "kvtool"), (WARM, PLAIN_FILE), 1.25, at_least=False
    )


def _one_run(
    results: Results, run: int, mount: MountedStore, peers: list[Peer], source: Path, data: bytes
) -> None:
    inside, again = mount.dir / "a", mount.dir / "b"
    plain, synced = source.with_name("plain"), source.with_name("synced")
    for peer in peers:
        peer.create()

    with _cpu(results, "save, new", mount, len(data)):
        steps: Steps = [("kvtool", partial(write, inside, data))]
        steps += [(PLAIN_FILE, partial(write, plain, data))]
        steps += [(f"{PLAIN_FILE}, then fsync", partial(write, synced, data, sync=True))]
        steps += [(peer.name, partial(peer.save, source)) for peer in peers]
        measure(results, NEW, steps, run)

    with _cpu(results, "save, all known", mount, len(data)):
        steps = [("kvtool", partial(write, again, data))]
        steps += [(peer.name, partial(peer.save, source)) for peer in peers]
        measure(results, AGAIN, steps, run)

    mount.remount()  # so that nothing is left in the process's own cache either
    with _cpu(results, "restore, cold", mount, len(data)):
        steps = [("kvtool", partial(read, inside)), (PLAIN_FILE, partial(read, plain))]
        steps += [(peer.name, peer.restore) for peer in peers]
        if not measure(results, COLD, steps, run, before=drop_caches):
            results.note("Not root, so the page cache stayed: the cold restores are warm.")

    steps = [("kvtool", partial(read, inside)), (PLAIN_FILE, partial(read, plain))]
    for _, action in steps:
        action()
    measure(results, WARM, steps, run)
    if inside.read_bytes() != data:
        raise AssertionError("a restored file is not what was saved")


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
            steps: Steps = [("kvtool", partial(save, str(small.dir / "a"), buffer=4096))]
            steps += [("kvtool, with the buffer that stdio takes there", partial(save, str(large.dir / "a")))]
            steps += [(PLAIN_FILE, partial(save, str(plain), buffer=4096))]
            steps += [(peer.name, partial(peer.save, source)) for peer in peers]
            measure(results, SHORT, steps, run)
        shutil.rmtree(folder / "4k")
        shutil.rmtree(folder / "8k")
    results.ratio("-fa off, save beside casync", (SHORT, "kvtool"), (SHORT, "casync"), 2.5, at_least=False)


def measure(
    results: Results,
    case: str,
    steps: Steps,
    run: int,
    before: Callable[[], object] = os.sync,
) -> object:
    """Time each step once, another one first in each run. Returns what the last `before` said."""
    first = run % len(steps)
    said: object = None
    for name, action in steps[first:] + steps[:first]:
        said = before()  # nobody pays for another's dirty pages
        results.add(case, name, timed(action)[0])
    return said


@contextmanager
def _cpu(results: Results, what: str, mount: MountedStore, size: int) -> Iterator[None]:
    """Note the CPU time that the mount's processes use meanwhile, by gigabyte."""
    before = processes.cpu_seconds(mount.processes)
    yield
    used = processes.cpu_seconds(mount.processes) - before
    results.add("CPU time of all kvtool processes", what, used / size * 1e9, "s/GB")


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
