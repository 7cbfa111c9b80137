"""Restores under way at once, and restores of what was asked for in advance."""

import subprocess
from functools import partial
from pathlib import Path

from kvtool.store import control
from kvtool.store.layout import Layout
from tests import processes
from tests.bench.results import Plan, Results
from tests.bench.steps import KVTOOL, PLAIN_FILE, make_forgetful, measure, read, write
from tests.mounts import MountedStore
from tests.synth import random_bytes

READERS = 4
AT_ONCE = f"Restore, cold, {READERS} at once"
SHARED = f"Restore, cold, one snapshot by {READERS} readers at once"
READ_ONCE = "Bytes read beside the snapshots' size, four cold restores at once"
HINT = "Restore, cold or after a prefetch"
WHILE = f"{KVTOOL}, the prefetch itself"
AFTER = f"{KVTOOL}, after the prefetch"
_LIMIT = 120.0


def four(results: Results, folder: Path, plan: Plan) -> None:
    """Four readers, of a snapshot each or all of the same; and how often each chunk was read."""
    data = random_bytes(plan.size, seed=4)
    part = len(data) // READERS
    names = [f"part-{at}" for at in range(READERS)]
    plain = folder / "plain"
    plain.mkdir()
    with MountedStore(folder / "kvtool", limit=600) as mount:
        for at, name in enumerate(names):
            for place in (mount.dir, plain):
                write(place / name, data[at * part : (at + 1) * part])
        mount.remount()
        forget = make_forgetful(mount)
        for case, chosen in ((AT_ONCE, names), (SHARED, names[:1] * READERS)):
            pair = [
                (KVTOOL, partial(_counted, results, mount, case, chosen, part)),
                (PLAIN_FILE, partial(_read_at_once, plain, chosen)),
            ]
            for run in range(2 * plan.runs):
                measure(results, case, [pair], run, forget)
    for case, what in ((AT_ONCE, "four cold restores at once"), (SHARED, "one snapshot, four readers")):
        results.ratio(f"{what}, beside plain files", (case, KVTOOL), (case, PLAIN_FILE), 1.25, at_least=False)
        fetched = results.median(READ_ONCE, f"{case}: from packs")
        results.hold(f"{what}: chunks read from packs", fetched, 1, "x")


def _read_at_once(place: Path, names: list[str]) -> None:
    readers = [
        subprocess.Popen(["dd", f"if={place / name}", "of=/dev/null", "bs=1M", "status=none"])
        for name in names
    ]
    if any(reader.wait(_LIMIT) for reader in readers):
        raise RuntimeError("a reader failed")


def _counted(results: Results, mount: MountedStore, case: str, names: list[str], part: int) -> None:
    """The readers' work, and what the mount read for it from packs and from the disk."""
    layout, size = Layout(mount.store, mount.stubs), part * len(set(names))
    before = control.ask(layout, "status")["bytes_fetched"], processes.bytes_from_disk(mount.pid)
    _read_at_once(mount.dir, names)
    after = control.ask(layout, "status")["bytes_fetched"], processes.bytes_from_disk(mount.pid)
    for what, value in zip(("from packs", "from the disk"), map(int.__sub__, after, before), strict=True):
        results.add(READ_ONCE, f"{case}: {what}", value / size, "x")


def prefetch(results: Results, folder: Path, plan: Plan) -> None:
    """A cold restore, one after the hint, and what the hint itself takes."""
    data, plain = random_bytes(plan.size, seed=5), folder / "plain"
    write(plain, data)
    with MountedStore(folder / "kvtool", limit=600) as mount:
        inside, layout = mount.dir / "a", Layout(mount.store, mount.stubs)
        write(inside, data)
        mount.remount()
        forget = make_forgetful(mount)

        def ask() -> None:
            answer = control.ask(layout, "prefetch", name="a", wait=True)
            if answer["trouble"]:
                raise RuntimeError(answer["trouble"])

        for run in range(plan.runs):
            measure(
                results,
                HINT,
                [[(KVTOOL, partial(read, inside)), (PLAIN_FILE, partial(read, plain))]],
                run,
                forget,
            )
            forget()
            measure(results, HINT, [[(WHILE, ask)]], run, lambda: None, size=len(data), mounts=[mount])
            read(plain)
            warm = [(AFTER, partial(read, inside)), (f"{PLAIN_FILE}, warm", partial(read, plain))]
            measure(results, HINT, [warm], run, lambda: None)
    what = "what a prefetch gains: a cold restore beside one after it"
    results.ratio(what, (HINT, KVTOOL), (HINT, AFTER), 1, at_least=True)
