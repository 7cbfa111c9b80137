"""What is done while faults happen: operations in a mount, and commands; what the names hold then."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kvtool.store import control
from kvtool.store.layout import Layout
from tests.stores import layout_in

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
