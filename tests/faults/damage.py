"""Damage to what is stored: every region of every kind of file, flipped, cut off and zeroed.

A store of two snapshots as a kill leaves it, with the catalog's log not yet written back.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kvtool.core import index as chunk_index
from kvtool.core import pack
from kvtool.errors import KvtoolError
from kvtool.store import lock, recover, stubs
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests import stores
from tests.stores import SIZES, flip, layout_in
from tests.synth import random_bytes

CONTENTS = {"a": random_bytes(6_000, 1), "b": random_bytes(6_000, 1)[:3_000] + random_bytes(4_000, 2)}

Range = tuple[int, int]
FileOf = Callable[[Layout, str], Path]


class Region(NamedTuple):
    """A part of one file of the store: which file, by the snapshot it is for, and the part's range in it.

    `found_by` are the commands that must name the file when any byte of the part is wrong.
    """

    name: str
    file: FileOf
    part: Callable[[bytes], Range]
    found_by: frozenset[str] = frozenset()


def _footer_of(content: bytes) -> int:
    return pack.decode_trailer(content[-pack.TRAILER_SIZE :], len(content)).footer_offset


def _pack(layout: Layout, name: str) -> Path:
    """The pack that holds the snapshot's first chunk."""
    store = Store.open(layout, writable=False)
    first = stubs.read_index(stores.stub(store, name)).head(1)
    try:
        return store.packs.path(store.catalog.place(first).packs[0])
    finally:
        store.close()


def _stub(layout: Layout, name: str) -> Path:
    return layout.stubs / name


def _catalog(suffix: str) -> FileOf:
    return lambda layout, _name: layout.catalog.with_name(layout.catalog.name + suffix)


def _all(content: bytes) -> Range:
    return 0, len(content)


_HEADER, _TRAILER = pack.HEADER_SIZE, pack.TRAILER_SIZE
_STUB_HEADER, _STUB_TAIL = chunk_index.HEADER_SIZE, chunk_index.file_size(0) - chunk_index.HEADER_SIZE

_FSCK, _VERIFY = frozenset({"fsck"}), frozenset({"verify"})

PACK_AND_STUB = [
    Region("pack header", _pack, lambda content: (0, _HEADER), _FSCK | _VERIFY),
    Region("pack data", _pack, lambda content: (_HEADER, _footer_of(content)), _VERIFY),
    Region(
        "pack footer", _pack, lambda content: (_footer_of(content), len(content) - _TRAILER), _FSCK | _VERIFY
    ),
    Region("pack trailer", _pack, lambda content: (len(content) - _TRAILER, len(content)), _FSCK | _VERIFY),
    Region("stub header", _stub, lambda content: (0, _STUB_HEADER), _FSCK),
    Region("stub table", _stub, lambda content: (_STUB_HEADER, len(content) - _STUB_TAIL), _FSCK | _VERIFY),
    Region("stub tail", _stub, lambda content: (len(content) - _STUB_TAIL, len(content)), _FSCK | _VERIFY),
]
REGIONS = [
    *PACK_AND_STUB,
    Region("catalog", _catalog(""), _all),  # SQLite does not look at every byte
    Region("catalog log", _catalog("-wal"), _all),  # SQLite passes over what is wrong in it
    Region("store.toml", lambda layout, _name: layout.format, _all),  # it may still be a store.toml
    Region("store id", lambda layout, _name: layout.stub_store_id, lambda content: (0, 32), _FSCK),
    Region("lock", lambda layout, _name: layout.lock, _all),
]


def make(root: Path) -> None:
    """The store, in a folder of its own."""
    made = root / "made"
    with stores.open_store(made, SIZES) as store:
        lock.acquire(store.layout).abandon()
        for name, content in CONTENTS.items():
            stores.save(store, content, name)
        shutil.copytree(made, root, dirs_exist_ok=True)
    shutil.rmtree(made)


def damage(path: Path, manner: str, start: int, end: int) -> None:
    """Flips the byte at `start`, cuts the file off there, or has zeros from there to `end`."""
    if manner == "flip":
        flip(path, start)
    elif manner == "cut":
        os.truncate(path, start)
    else:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(bytes(end - start))


def check_readers(root: Path) -> bool:
    """Who only reads, and the next writer, get right bytes or an error. Returns whether there were errors."""
    layout = layout_in(root)
    met = []
    for opened in (stores.opened(layout, writable=False), recover.writer(layout, sync=False)):
        try:
            with opened as store:
                met.append(_check_contents(store[0] if isinstance(store, recover.Writer) else store))
        except KvtoolError:
            met.append(True)
    return any(met)


def _check_contents(store: Store) -> bool:
    met = False
    for name, content in CONTENTS.items():
        try:
            found = stores.read(store, stubs.read_index(stores.stub(store, name)))
        except KvtoolError:
            met = True
        else:
            assert found == content, f"{name} has wrong bytes"
    return met
