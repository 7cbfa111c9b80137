"""What must hold of a store after a fault."""

import os
from pathlib import Path

from kvtool.errors import Damage
from kvtool.store import collector, control, recover, stubs
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests import stores
from tests.faults.operations import File, Tree
from tests.faults.scenarios import SIZES
from tests.mounts import MountedStore
from tests.property.check import check_collected, check_store, stub_files
from tests.stores import layout_in
from tests.synth import random_bytes

_PROBE = random_bytes(200_000, 77)
_AGAIN = ".again"


def check_after_kill(root: Path, trees: list[Tree], *, sync: bool = False) -> None:
    """The next writer finds exactly one of `trees`, can save, and collects what nothing needs."""
    layout = layout_in(root)
    with recover.writer(layout, sync=sync, create=SIZES) as (store, _, _):
        contents = check_store(layout.root, layout.stubs)
        _check_one_of(_tree_of(contents, layout), trees)
        _check_reading(store, contents)
        _check_saving(store, trees[-1])
    with recover.writer(layout, sync=sync) as (store, _, _):
        contents = check_store(layout.root, layout.stubs)
        collector.run(store)
        check_collected(layout.root, layout.stubs, contents)
        _check_reading(store, contents)


def check_in_mount(root: Path, trees: list[Tree]) -> None:
    """The same through a mount."""
    with MountedStore(root, "--store.gc_interval", "0") as mount:
        contents = check_store(mount.store, mount.stubs)
        _check_one_of(_tree_of(contents, layout_in(root)), trees)
        for name, content in contents.items():
            assert (mount.dir / os.fsdecode(name)).read_bytes() == content
        control.ask(layout_in(root), "gc")
        check_collected(mount.store, mount.stubs, contents)
        (mount.dir / "probe").write_bytes(_PROBE)
        assert (mount.dir / "probe").read_bytes() == _PROBE


def check_unpowered(root: Path, trees: list[Tree], safe: set[bytes]) -> None:
    """After a power cut with durability "process": a name holds what it held at some time, or cannot be read;
    but each of the stubs `safe`, which lay on the disk before, can be. Whatever was lost can be read when it
    is saved again.
    """
    layout = layout_in(root)
    with recover.writer(layout, sync=False, create=SIZES) as (store, _, _):
        damaged = _check_contents(store, trees, safe)
        _check_saving(store, trees[-1])
        assert _check_contents(store, trees, safe) <= damaged
        if not damaged:
            collector.run(store)
            assert not _check_contents(store, trees, safe)


def _tree_of(contents: dict[bytes, bytes], layout: Layout) -> Tree:
    root = os.fsencode(layout.stubs)
    return {
        os.fsdecode(name): File(content, stubs.get(os.path.join(root, name), stubs.LABEL + b"kind"))
        for name, content in contents.items()
    }


def _check_one_of(tree: Tree, trees: list[Tree]) -> None:
    assert tree in trees, f"there is {_brief(tree)}; expected " + " or ".join(map(_brief, trees))


def _brief(tree: Tree) -> str:
    return "{" + ", ".join(f"{name}: {len(file.content)} {file.label!r}" for name, file in tree.items()) + "}"


def _check_reading(store: Store, contents: dict[bytes, bytes]) -> None:
    """The catalog leads to the same bytes as the packs themselves."""
    for name, content in contents.items():
        path = os.path.join(os.fsencode(store.layout.stubs), name)
        assert stores.read(store, stubs.read_index(path)) == content, name


def _check_saving(store: Store, tree: Tree) -> None:
    """Whatever was lost: saved again, it can be read."""
    for name, content in {"probe": _PROBE, **{name: file.content for name, file in tree.items()}}.items():
        index = stores.save(store, content, os.path.basename(name) + _AGAIN)
        assert stores.read(store, index) == content, f"{name} was saved again, and is not what was saved"


def _check_contents(store: Store, trees: list[Tree], safe: set[bytes]) -> set[str]:
    """Returns the names that cannot be read."""
    damaged = set()
    found = {os.fsdecode(name) for name in stub_files(store.layout.stubs)}
    known = {name for tree in trees for name in tree}
    for name in known | {name for name in found if not name.endswith(_AGAIN)}:
        files = [tree.get(name) for tree in trees]
        if name not in found:
            assert None in files, f"{name} is gone"
            continue
        path = stores.stub(store, name)
        try:
            content = stores.read(store, stubs.read_index(path))
        except Damage as error:
            if Path(os.fsdecode(path)).read_bytes() in safe:
                raise AssertionError(f"{name} was safe, and is lost") from error
            damaged.add(name)
        else:
            assert content in [file.content for file in files if file is not None], f"{name} has wrong bytes"
    return damaged
