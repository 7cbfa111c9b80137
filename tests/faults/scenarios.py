"""Scenarios of a few operations while which faults happen, and the stores they begin with.

A new command is one more line in `SCENARIOS`.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.store import recover, stubs
from kvtool.store.exchange import Export
from tests import stores
from tests.faults.operations import (
    Append,
    Chunk,
    Collect,
    Command,
    File,
    Label,
    MakeFolder,
    Operation,
    Patch,
    Rename,
    Save,
    Stop,
    Tree,
    Unlink,
)
from tests.stores import layout_in
from tests.synth import random_bytes

SIZES = ChunkSizes(16 << 10, 64 << 10, 256 << 10)


@dataclass(frozen=True)
class Scenario:
    """A store that `prepare` makes, and operations: all in a mount, or one command without one.

    `steps` is about how many changes they make, rather less.
    """

    name: str
    operations: tuple[Operation, ...]
    prepare: Callable[[Path], Tree]
    steps: int
    is_repair: bool = False  # after a fault it is repaired again before anything else

    @property
    def is_mounted(self) -> bool:
        return not isinstance(self.operations[0], Command)


_A, _B, _C, _D = (random_bytes(size, seed) for seed, size in enumerate((300_000, 200_000, 100_000, 150_000)))
_LARGE = random_bytes((2 << 20) + 200_000, 9)  # more than the worker is sent at once
_NEW = random_bytes(400_000, 10)
SOMETHING: Tree = {
    "a": File(_A, b"first"),
    "b": File(_A[:150_000] + _B),
    "c": File(_C),
    "d": File(_C + _D),
}


def nothing(root: Path) -> Tree:
    """No store."""
    (root / "file").write_bytes(_NEW)
    return {}


def something(root: Path) -> Tree:
    """A store with a few snapshots that share chunks, stopped cleanly."""
    with recover.writer(layout_in(root), sync=False, create=SIZES) as (store, _, _):
        for name, file in SOMETHING.items():
            stores.save(store, file.content, name)
            if file.label is not None:
                os.setxattr(stores.stub(store, name), stubs.LABEL + b"kind", file.label)
    (root / "file").write_bytes(_NEW)
    return SOMETHING


def with_export(root: Path) -> Tree:
    """The same beside what another store has exported."""
    with stores.open_store(root / "other") as store:
        stores.save(store, _NEW, "new")
        Export(store, str(root / "usb")).run("new")
    shutil.rmtree(root / "other")
    return something(root)


def with_orphans(root: Path) -> Tree:
    """The same where two snapshots were deleted, whose packs nothing needs but for a part of one."""
    tree = something(root)
    for name in ("b", "d"):
        os.unlink(layout_in(root).stubs / name)
    return {name: file for name, file in tree.items() if name not in {"b", "d"}}


def half_dead(root: Path) -> Tree:
    """The same where half of a pack is dead, so that a collection rewrites it."""
    with recover.writer(layout_in(root), sync=False, create=SIZES) as (store, _, _):
        stores.save(store, _D + _NEW, "whole")
        stores.save(store, _D, "part")
        os.unlink(stores.stub(store, "whole"))
    return something(root) | {"part": File(_D)}


def damaged(root: Path) -> Tree:
    """The same with a pack cut short, a footer with a flipped bit, a row gone, a wrong size, and leftovers:
    nothing that a repair cannot mend.
    """
    tree = half_dead(root)
    layout = layout_in(root)
    with stores.open_store(root) as store:
        first, second, *_, last = [row.key for row in store.catalog.packs()]
        cut, flipped = store.packs.path(first), store.packs.path(second)
        os.truncate(cut, cut.stat().st_size - 20)
        stores.flip(flipped, flipped.stat().st_size - 60)
        store.catalog.forget_chunk(store.catalog.entries(last)[0].id)
        os.setxattr(stores.stub(store, "a"), stubs.SIZE, b"7")
    (layout.incoming / "half.pack").write_bytes(b"x")
    return tree


def crashed(root: Path) -> Tree:
    """The same after a kill: half-written files of every kind, and a pack the catalog does not know."""
    tree = with_orphans(root)
    layout = layout_in(root)
    with stores.open_store(root) as store:
        store.catalog.drop_packs([store.catalog.packs()[0].key])
    stubs.create(layout, os.fsencode(layout.stubs / "unfinished"), 0o600, None, None)
    for path in (layout.incoming / "half.pack", layout.staging / "copy", layout.stub_private / "new-0"):
        path.write_bytes(b"x")
    layout.lock.write_text(f"1 {Path('/proc/sys/kernel/random/boot_id').read_text()}")
    return tree


def in_mount(name: str, steps: int, *operations: Operation) -> Scenario:
    return Scenario(name, operations, something, steps)


def offline(name: str, steps: int, prepare: Callable[[Path], Tree], operation: Operation) -> Scenario:
    return Scenario(name, (operation,), prepare, steps)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        in_mount("save", 30, Save("new", _LARGE)),
        in_mount("overwrite", 24, Save("a", _NEW)),
        in_mount("replace", 32, Save("a.tmp", _NEW), Rename("a.tmp", "a")),
        in_mount("append", 66, Save("new", _B), Append("new", _D), Append("a", _D)),
        in_mount("patch", 28, Patch("a", 1000, _D)),
        in_mount("names", 7, Rename("b", "a"), Unlink("c"), MakeFolder("f"), Rename("d", "f/d")),
        in_mount("folder", 30, MakeFolder("f"), Save("f/new", _NEW), Label("f/new", b"x"), Label("a", b"y")),
        in_mount("collect", 30, Unlink("d"), Save("c", _D), Collect()),
        in_mount("stop", 40, Save("new", _NEW), Stop()),
        offline("gc", 34, with_orphans, Command(("gc",))),
        offline("compact", 50, half_dead, Command(("gc",))),
        Scenario("compact in a mount", (Unlink("c"), Collect()), half_dead, 44),
        offline("mend", 46, crashed, Command(("gc",))),
        offline("chunk", 50, something, Chunk(("chunk", "file", "--name", "a"), _NEW, "a")),
        offline("import", 40, with_export, Chunk(("import", "usb/new.caibx", "--name", "a"), _NEW, "a")),
        offline("create", 90, nothing, Chunk(("chunk", "file", "--name", "f/new"), _NEW, "f/new")),
        Scenario("repair", (Command(("fsck", "--repair")),), damaged, 90, is_repair=True),
    )
}

# All that is done in a mount, in one go: what takes long is to start one.
DAY = in_mount(
    "day",
    200,
    Save("new", _LARGE),
    Save("a.tmp", _NEW),
    Rename("a.tmp", "a"),
    Append("new", _D),
    Append("b", _B),
    Unlink("d"),
    Save("c", _D),
    Collect(),
    Patch("a", 1000, _B),
    MakeFolder("f"),
    Rename("b", "f/b"),
    Save("f/new", _NEW[:200_000]),
    Label("f/new", b"x"),
    Save("f/b", _NEW[200_000:]),
    Stop(),
)
