"""A disk as it may be after a power cut, rebuilt from the record of what was done to it.

The model is a pessimistic ext4, XFS or btrfs:

- The bytes of a file are safe up to its last fsync, fdatasync or syncfs. What was changed since is, for each
  file by lot: there, not there, cut short, zeros, or some pages of 4096 bytes are old, zeros or garbage. So a
  file that was renamed over another without an fsync may be empty, or of the right size and wrong.
- Names (create, rename, link, unlink, mkdir, rmdir) are safe once their directory was fsynced, or syncfs
  called; a file's extended attributes, once it was fsynced. What came later is, by lot, all there, all there
  up to some moment (a journal), or each change by itself there or not; but changes of the same name, of the
  names of the same file, and of its attributes keep their order. So a rename is never half done, and whoever
  sees the new name sees the attributes that were set before. To fsync a directory says nothing of its own
  name: what happened in a new one is safe when that is, too. Nor is a file's name safe once it was fsynced.
- Modes, owners and times are not modelled, nor is what was written through a mapping: SQLite's -shm, which is
  rebuilt.

What lies on the disk at the beginning is safe.
"""

import enum
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.shim import Event

_PAGE = 4096


class Outcome(enum.Enum):
    """What becomes of all that is not safe.

    By lot; or all of it is lost, or all there, as after a kill; or it is lost in the stub tree alone, or
    in the store alone, as if they had disks of their own; or all is there but for one page in the middle of
    every larger file, other than the catalog's.
    """

    CHANCE = 0
    LOST = 1
    THERE = 2
    STUBS_LOST = 3
    STORE_LOST = 4
    PAGE_LOST = 5

    def loses(self, top: str) -> bool:
        """Whether changes in that folder of the disk are lost, for outcomes without a lot."""
        return self is Outcome.LOST or self.name == f"{top.upper()}_LOST"


@dataclass(eq=False)
class Node:
    """A file or directory: as it is, and as much of it as is safe. `top` is the disk's folder it lies in."""

    is_folder: bool
    top: str
    live: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    names: "dict[str, Node]" = field(default_factory=dict)
    safe_names: "dict[str, Node]" = field(default_factory=dict)
    attributes: dict[str, bytes] = field(default_factory=dict)


@dataclass(eq=False)
class Change:
    """A change of names or attributes that is not safe yet.

    `changes` is what it is about and `needs` what earlier changes must not be about if they are lost: names
    (a folder and a name in it), nodes as what names stand for, and a file's attributes. It is safe once one
    of `synced_by` was synced, and all that it needs and the folders it happened `inside` are safe.
    """

    apply: Callable[[], None]
    top: str
    changes: frozenset[object]
    needs: frozenset[object]
    synced_by: frozenset[Node]
    inside: frozenset[Node] = frozenset()
    makes: Node | None = None  # a new folder
    synced: bool = False


class Disk:
    """These folders below `root`, as they are when this is made; then `play` what was recorded."""

    def __init__(self, root: Path, folders: Iterable[str]) -> None:
        self._root = os.path.realpath(root)
        self._top = Node(is_folder=True, top="")
        self._inodes = {os.stat(root).st_ino: self._top}
        self._pending: list[Change] = []
        for name in folders:
            if (root / name).exists():
                self._top.names[name] = self._load(root / name, name)
        self._top.safe_names = dict(self._top.names)

    def _load(self, path: Path, top: str) -> Node:
        node = self._inodes[path.stat().st_ino] = Node(path.is_dir(), top)
        if node.is_folder:
            node.names = {child.name: self._load(child, top) for child in path.iterdir()}
            node.safe_names = dict(node.names)
        else:
            node.safe = path.read_bytes()
            node.live = bytearray(node.safe)
            node.attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        return node

    def contents(self, folder: str) -> set[bytes]:
        """What the files below a folder hold now."""
        nodes = self._nodes(self._top.names[folder]) if folder in self._top.names else ()
        return {bytes(node.live) for node in nodes if not node.is_folder}

    # -- what was recorded

    def play(self, event: Event) -> None:
        """Takes one change in."""
        handler = getattr(self, f"_{event.op}", None)
        if handler is not None:
            handler(event)

    def _open(self, event: Event) -> None:
        parent, name = self._find(event.path)
        if parent is None or event.number & os.O_TMPFILE == os.O_TMPFILE:
            return
        if name not in parent.names:
            self._inodes[event.inode] = self._new(parent, name, is_folder=False)
        if event.number & os.O_TRUNC:
            parent.names[name].live.clear()

    def _write(self, event: Event) -> None:
        if (node := self._inodes.get(event.inode)) is not None:
            node.live.extend(bytes(max(0, event.number - len(node.live))))
            node.live[event.number : event.number + len(event.data)] = event.data

    def _size(self, event: Event) -> None:
        if (node := self._inodes.get(event.inode)) is not None:
            del node.live[event.number :]
            node.live.extend(bytes(event.number - len(node.live)))

    def _rename(self, event: Event) -> None:
        (old, old_name), (new, new_name) = self._find(event.path), self._find(event.other)
        if old is None or new is None or old_name not in old.names:
            return
        node, replaced = old.names.pop(old_name), new.names.get(new_name)
        new.names[new_name] = node

        def apply() -> None:
            old.safe_names.pop(old_name, None)
            new.safe_names[new_name] = node

        self._pend(apply, {(old, old_name), (new, new_name)}, {node, replaced}, {old, new})

    def _link(self, event: Event) -> None:
        (old, old_name), (new, new_name) = self._find(event.path), self._find(event.other)
        if old is not None and new is not None and old_name in old.names:
            self._name(new, new_name, old.names[old_name])

    def _mkdir(self, event: Event) -> None:
        parent, name = self._find(event.path)
        if parent is not None:
            self._inodes[event.inode] = self._new(parent, name, is_folder=True)

    def _unlink(self, event: Event) -> None:
        parent, name = self._find(event.path)
        if parent is not None and name in parent.names:
            self._name(parent, name, None)

    _rmdir = _unlink

    def _setattr(self, event: Event) -> None:
        key, value = os.fsdecode(event.data[: event.number]), event.data[event.number :]
        self._attribute(event.inode, lambda node: node.attributes.update({key: value}))

    def _rmattr(self, event: Event) -> None:
        self._attribute(event.inode, lambda node: node.attributes.pop(os.fsdecode(event.data), None))

    def _sync(self, event: Event, *, attributes: bool = True) -> None:
        if (node := self._inodes.get(event.inode)) is not None:
            node.safe = bytes(node.live)
            if node.is_folder or attributes:
                self._settle({change for change in self._pending if node in change.synced_by})

    def _datasync(self, event: Event) -> None:
        self._sync(event, attributes=False)

    def _syncfs(self, _event: Event) -> None:
        self._settle(set(self._pending))
        for node in self._nodes(self._top):
            node.safe = bytes(node.live)

    def _new(self, parent: Node, name: str, *, is_folder: bool) -> Node:
        node = Node(is_folder, parent.top or name)
        self._name(parent, name, node)
        return node

    def _name(self, parent: Node, name: str, node: Node | None) -> None:
        """The name comes to stand for `node`, or is gone."""
        old = parent.names.pop(name, None)
        if node is not None:
            parent.names[name] = node

        def apply() -> None:
            parent.safe_names.pop(name, None)
            if node is not None:
                parent.safe_names[name] = node

        is_new = node is not None and node.is_folder
        self._pend(apply, {(parent, name)}, {node, old}, {parent}, makes=node if is_new else None)

    def _pend(
        self,
        apply: Callable[[], None],
        names: set[tuple[Node, str]],
        nodes: set[Node | None],
        folders: set[Node],
        makes: Node | None = None,
    ) -> None:
        there = {node for node in nodes if node is not None}
        changes = frozenset({*names, *there})
        needs = changes | {("attributes", node) for node in there}
        top = next(folder.top or name for folder, name in names)
        inside = frozenset(folders)
        self._pending.append(Change(apply, top, changes, needs, inside, inside, makes))

    def _attribute(self, inode: int, apply: Callable[[Node], object]) -> None:
        if (node := self._inodes.get(inode)) is not None:
            about = frozenset({("attributes", node)})
            self._pending.append(Change(lambda: apply(node), node.top, about, about, frozenset({node})))

    def _settle(self, synced: set[Change]) -> None:
        """These changes were synced, and so was what they build on."""
        needed: set[object] = set()
        for change in reversed(self._pending):
            if change in synced or change.changes & needed:
                change.synced = True
                needed |= change.needs
        self._apply(lambda change: change.synced)

    def _apply(self, chosen: Callable[[Change], bool]) -> None:
        """Makes those of the pending changes safe that are chosen, as far as what they need is."""
        waiting: set[object] = set()
        homeless: set[Node | None] = set()
        left = []
        for change in self._pending:
            if not chosen(change) or change.needs & waiting or change.inside & homeless:
                waiting |= change.changes
                homeless.add(change.makes)
                left.append(change)
            else:
                change.apply()
        self._pending = left

    def _find(self, path: str) -> tuple[Node | None, str]:
        """The directory that a path lies in, None where there is none, and the name there."""
        *folders, name = os.path.relpath(path, self._root).split("/")
        node: Node | None = self._top
        for folder in folders:
            node = node.names.get(folder) if node is not None else None
        return node, name

    def _nodes(self, node: Node) -> Iterator[Node]:
        yield node
        for child in node.names.values():
            yield from self._nodes(child)

    # -- the cut

    def cut(self, outcome: Outcome, lot: random.Random, target: Path) -> None:
        """Writes what is left after a cut now to the folder `target`. Ends this disk's use."""
        how = lot.choice(("all", "journal", "each"))
        if outcome is not Outcome.CHANCE:
            self._apply(lambda change: not outcome.loses(change.top))
        elif how == "each":
            odds = lot.random()
            self._apply(lambda _change: lot.random() < odds)
        else:
            count = len(self._pending)
            journal = set(self._pending[: count if how == "all" else lot.randint(0, count)])
            self._apply(lambda change: change in journal)
        self._write_out(self._top, target, outcome, lot)

    def _write_out(self, node: Node, target: Path, outcome: Outcome, lot: random.Random) -> None:
        if node.is_folder:
            target.mkdir(mode=0o700, exist_ok=True)
            for name, child in sorted(node.safe_names.items()):
                self._write_out(child, target / name, outcome, lot)
            return
        live, safe = bytes(node.live), node.safe
        if live != safe and outcome is Outcome.CHANCE:
            live = _by_lot(live, safe, lot)
        elif outcome.loses(node.top):
            live = safe
        elif live != safe and outcome is Outcome.PAGE_LOST and not target.name.startswith("catalog."):
            middle = len(live) // _PAGE // 2 * _PAGE
            live = live[:middle] + bytes(_PAGE) + live[middle + _PAGE :] if len(live) > 2 * _PAGE else live
        target.write_bytes(live)
        for key, value in node.attributes.items():
            os.setxattr(target, key, value)


def _by_lot(live: bytes, safe: bytes, lot: random.Random) -> bytes:
    """What may be left of a file that holds `live` and held `safe` when it was last synced."""
    fate = lot.choice(("there", "not there", "cut short", "zeros", "mixed", "mixed"))
    if fate in {"there", "not there"}:
        return live if fate == "there" else safe
    if fate == "cut short":
        return live[: lot.randint(min(len(safe), len(live)), len(live))]
    odds = lot.choice((0.03, 0.3, 1.0)) if fate == "mixed" else 1.0
    parts = []
    for start in range(0, len(live), _PAGE):
        new, old = live[start : start + _PAGE], safe[start : start + _PAGE]
        if new != old and lot.random() < odds:
            new = bytes(len(new))
            if fate == "mixed":
                new = lot.choice((old.ljust(len(new), b"\0")[: len(new)], new, lot.randbytes(len(new))))
        parts.append(new)
    return b"".join(parts)
