"""Snapshots in the layout of real ones: what each turn of a conversation stores, and how long it takes."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.results import Plan, Results
from tests.bench.steps import (
    KVTOOL,
    PLAIN_FILE,
    POWER,
    SYNCED,
    make_forgetful,
    measure,
    read,
    write,
)
from tests.llamaio import save_like_proxy, write_like_llama
from tests.mounts import MountedStore
from tests.synth import HYBRID, PLAIN, Conversation, Snapshot

SHARE = "New bytes, made-up snapshots"
TURNS = 3  # of a conversation, after the first
FIFTY = "Restore, cold, of a snapshot after 50 turns"
COLLECTED = f"{KVTOOL}, after a collection"


def turns(results: Results, folder: Path, plan: Plan) -> None:
    """What is new in each save of a conversation; and the next turns as the server writes and reads them."""
    for name, shape in (("plain", PLAIN), ("hybrid", HYBRID)):
        talk = Conversation(shape, seed=1).turn(4200)
        other = talk.branch(2500, seed=2).turn(1700).snapshot()
        first = talk.snapshot()
        later = [talk.turn(600).snapshot() for _ in range(TURNS)]
        with MountedStore(folder / name, limit=600) as mount:
            saves = [("first", first), ("next turn", later[0])]
            for what, snapshot in [*saves, ("other conversation", other), ("the same again", other)]:
                before = mount.pack_bytes
                save_like_proxy(str(mount.dir), what, snapshot)
                share = (mount.pack_bytes - before) / snapshot.size * 100
                results.add(SHARE, f"{name}, {what}", share, "%")
        shutil.rmtree(folder / name)
        _in_turns(results, folder, plan, name, first, later)
    case, what = "Next turn, hybrid model, saved", 'next turn, hybrid, "power", beside plain and fsync'
    results.ratio(what, (case, POWER), (case, SYNCED), 1, at_least=False)


def _in_turns(
    results: Results, folder: Path, plan: Plan, name: str, first: Snapshot, later: list[Snapshot]
) -> None:
    plain = folder / "plain"
    plain.mkdir(exist_ok=True)
    for run in range(plan.runs):
        power = MountedStore(folder / "power", "--store.durability", "power", limit=600)
        with MountedStore(folder / "kvtool", limit=600) as mount, power:
            for place in (mount.dir, power.dir, plain):
                save_like_proxy(str(place), "slot", first)
            for number, snapshot in enumerate(later):
                save = partial(_save, name="slot", snapshot=snapshot)
                groups: list[list[tuple[str, Callable[[], object]]]] = [
                    [(KVTOOL, partial(save, mount.dir)), (PLAIN_FILE, partial(save, plain))],
                    [(POWER, partial(save, power.dir)), (SYNCED, partial(save, plain, sync=True))],
                ]
                measure(results, f"Next turn, {name} model, saved", groups, run + number)
            forget = make_forgetful(mount)
            pair = [(KVTOOL, partial(read, mount.dir / "slot")), (PLAIN_FILE, partial(read, plain / "slot"))]
            for number in range(TURNS):
                measure(results, f"Next turn, {name} model, cold restore", [pair], run + number, forget)
            if (mount.dir / "slot").read_bytes() != (plain / "slot").read_bytes():
                raise AssertionError("a restored snapshot is not what was saved")
        for store in ("kvtool", "power"):
            shutil.rmtree(folder / store)


def _save(place: Path, *, name: str, snapshot: Snapshot, sync: bool = False) -> None:
    """As a proxy does: under another name, and then renamed."""
    write_like_llama(str(place / f"{name}.tmp"), snapshot, sync=sync)
    os.rename(place / f"{name}.tmp", place / name)


def fifty(results: Results, folder: Path, plan: Plan) -> None:
    """A conversation saved 50 times under one name, without a collection: it lies all over the store."""
    talk = Conversation(PLAIN, seed=3).turn(1000)
    plain = folder / "plain"
    with MountedStore(folder / "kvtool", "--store.gc_interval", "0", limit=900) as mount:
        for _ in range(50):
            data = talk.turn(50).snapshot().data
            write(mount.dir / "slot.tmp", data)
            os.rename(mount.dir / "slot.tmp", mount.dir / "slot")
        write(plain, data)
        for name in (KVTOOL, COLLECTED):
            if name == COLLECTED:
                mount.kvtool("gc", limit=300)
            said = mount.json("inspect", "slot")
            results.note(f"After 50 turns, {name}: {said['packs']} packs, {said['runs']} runs.")
            mount.remount()
            forget = make_forgetful(mount)
            pair = [(name, partial(read, mount.dir / "slot")), (PLAIN_FILE, partial(read, plain))]
            for run in range(2 * plan.runs):
                measure(results, FIFTY, [pair], run, forget, size=len(data), mounts=[mount])
        if (mount.dir / "slot").read_bytes() != data:
            raise AssertionError("a restored file is not what was saved")
    for name, what in ((KVTOOL, "50 turns"), (COLLECTED, "50 turns and a collection")):
        results.ratio(
            f"cold restore after {what} beside a plain file",
            (FIFTY, name),
            (FIFTY, PLAIN_FILE),
            1.25,
            at_least=False,
        )
