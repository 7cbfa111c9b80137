"""What is done while faults happen: scenarios of a few operations, each with what the names hold afterwards.

A new command is one more line in `SCENARIOS`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.store import control, recover, stubs
from kvtool.store.layout import Layout
from tests import stores
from tests.stores import layout_in
from tests.synth import random_bytes

SIZES = ChunkSizes(16 << 10, 64 << 10, 256 << 10)
LIMIT = 60.0
_PIECE = 1 << 20


@dataclass(frozen=True)
class File:
    """What a name holds: bytes, and the label `kind`."""

    content: bytes
    label: bytes | None = None


Tree = dict[str, File]


@dataclass(frozen=True)
class World:
    """Where a scenario happens: a folder with a store, and a mount of it or the environment for a command."""

    root: Path
    environment: dict[str, str]
    flags: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        return layout_in(self.root)

    @property
    def mount(self) -> Path:
        return self.root / "mnt"


class Operation:
    """One operation. `durable` says that once acknowledged it outlives a power cut (durability "power")."""

    durable = True

    def run(self, world: World) -> None:
        """Does it. Raises OSError or KvtoolError when it fails, Killed when the command was."""
        raise NotImplementedError

    def after(self, tree: Tree) -> Tree:
        """What the names hold afterwards."""
        raise NotImplementedError

    def halfway(self, tree: Tree) -> list[Tree]:
        """What else they may hold when it is interrupted."""
        return []


class Killed(Exception):
    """The command was killed."""


@dataclass(frozen=True)
class Save(Operation):
    """Writes a file from its beginning to its end and closes it."""

    name: str
    content: bytes

    def run(self, world: World) -> None:
        write(world.mount / self.name, self.content, os.O_CREAT | os.O_TRUNC)

    def after(self, tree: Tree) -> Tree:
        return tree | {self.name: replace(tree.get(self.name, File(b"")), content=self.content)}


@dataclass(frozen=True)
class Append(Operation):
    """Opens a file again and writes behind its end, as llama-server does for its checkpoints."""

    name: str
    content: bytes

    def run(self, world: World) -> None:
        write(world.mount / self.name, self.content, os.O_APPEND)

    def after(self, tree: Tree) -> Tree:
        old = tree[self.name]
        return tree | {self.name: replace(old, content=old.content + self.content)}


@dataclass(frozen=True)
class Patch(Operation):
    """Writes into the middle of a file."""

    name: str
    offset: int
    content: bytes

    def run(self, world: World) -> None:
        fd = os.open(world.mount / self.name, os.O_WRONLY)
        try:
            os.pwrite(fd, self.content, self.offset)
        finally:
            os.close(fd)

    def after(self, tree: Tree) -> Tree:
        old = tree[self.name].content
        new = old[: self.offset] + self.content + old[self.offset + len(self.content) :]
        return tree | {self.name: replace(tree[self.name], content=new)}


@dataclass(frozen=True)
class Rename(Operation):
    """Renames a file, which takes over the label of the one it replaces if it has none."""

    old: str
    new: str

    def run(self, world: World) -> None:
        os.rename(world.mount / self.old, world.mount / self.new)

    def after(self, tree: Tree) -> Tree:
        moved = dict(tree)
        file = moved.pop(self.old)
        if file.label is None and self.new in tree:
            file = replace(file, label=tree[self.new].label)
        return moved | {self.new: file}

    def halfway(self, tree: Tree) -> list[Tree]:
        # It gets the label first: the other way round that could be lost.
        return [tree | {self.old: self.after(tree)[self.new]}]


@dataclass(frozen=True)
class Unlink(Operation):
    """Deletes a file; it may be back after a power cut."""

    name: str
    durable = False

    def run(self, world: World) -> None:
        os.unlink(world.mount / self.name)

    def after(self, tree: Tree) -> Tree:
        return {name: file for name, file in tree.items() if name != self.name}


@dataclass(frozen=True)
class Label(Operation):
    """Sets the label; it may be lost in a power cut."""

    name: str
    value: bytes
    durable = False

    def run(self, world: World) -> None:
        os.setxattr(world.mount / self.name, "user.kvtool.label.kind", self.value)

    def after(self, tree: Tree) -> Tree:
        return tree | {self.name: replace(tree[self.name], label=self.value)}


class Unchanging(Operation):
    """An operation after which the names hold what they held."""

    def after(self, tree: Tree) -> Tree:
        return tree


@dataclass(frozen=True)
class MakeFolder(Unchanging):
    """mkdir; the files in it show whether it is there."""

    name: str

    def run(self, world: World) -> None:
        (world.mount / self.name).mkdir()


@dataclass(frozen=True)
class Collect(Unchanging):
    """What `kvtool gc` asks of a running mount."""

    def run(self, world: World) -> None:
        control.ask(world.layout, "gc", dry_run=False)


@dataclass(frozen=True)
class Stop(Unchanging):
    """`kvtool umount`, until all its processes are gone."""

    def run(self, world: World) -> None:
        control.ask(world.layout, "umount", wait_for_end=True)


@dataclass(frozen=True)
class Command(Unchanging):
    """A kvtool command without a mount, all of it under the shim."""

    arguments: tuple[str, ...]

    def run(self, world: World) -> None:
        layout = world.layout
        where = ["--store.path", str(layout.root), "--store.stubs", str(layout.stubs)]
        done = subprocess.run(
            [sys.executable, "-m", "kvtool", *self.arguments, *where, *world.flags],
            env=world.environment,
            cwd=world.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        if done.returncode < 0:
            raise Killed
        if done.returncode:
            raise OSError(done.returncode, done.stderr)


@dataclass(frozen=True)
class Chunk(Command):
    """`kvtool chunk` of a file that `prepare` has put beside the store."""

    content: bytes = b""
    name: str = "file"

    def after(self, tree: Tree) -> Tree:
        return tree | {self.name: replace(tree.get(self.name, File(b"")), content=self.content)}


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


def write(path: Path, content: bytes, flags: int) -> None:
    """Writes as a careful program does. Raises the first OSError of write(2), else that of close(2)."""
    fd = os.open(path, os.O_WRONLY | flags)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest[:_PIECE]) :]
    except OSError as error:
        with suppress(OSError):
            os.close(fd)
        raise error from None
    os.close(fd)


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
