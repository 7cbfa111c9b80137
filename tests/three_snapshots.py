"""A store of three snapshots, a, b and c, each with a pack of its own, and what of it can be read."""

from pathlib import Path

from kvtool.errors import KvtoolError
from kvtool.store import recover, stubs
from kvtool.store.layout import Layout
from tests.stores import SIZES, layout_in, opened, read, save, stub
from tests.synth import random_bytes

FILES = {name: random_bytes(4000, seed) for seed, name in enumerate("abc")}


def make(root: Path) -> Layout:
    """The store below `root`, stopped cleanly."""
    layout = layout_in(root)
    with recover.writer(layout, sync=False, create=SIZES) as (store, _, _):
        for name, data in FILES.items():
            save(store, data, name)
    return layout


def pack_of(layout: Layout, name: str) -> Path:
    with opened(layout) as store:
        index = stubs.read_index(stub(store, name))
        return store.packs.path(store.catalog.place(index).packs[0])


def readable(layout: Layout) -> str:
    """The names of the snapshots that can be read, each with its bytes."""
    names = ""
    with opened(layout) as store:
        for name, data in FILES.items():
            try:
                assert read(store, stubs.read_index(stub(store, name))) == data
            except (KvtoolError, OSError):
                continue
            names += name
    return names
