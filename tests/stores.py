"""Small stores for tests in this process: no mount, no worker, chunks of a few hundred bytes."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.store import layout as store_layout
from kvtool.store import stubs
from kvtool.store.fetch import read_file
from kvtool.store.ingest import Ingest, Saved, ingest_file
from kvtool.store.layout import Layout
from kvtool.store.store import Store

SIZES = ChunkSizes(64, 256, 1024)


def layout_in(root: Path) -> Layout:
    return Layout(root / "store", root / "stubs")


def flags_of(layout: Layout) -> tuple[str, ...]:
    """What a command line needs to find the store."""
    return ("--store.path", str(layout.root), "--store.stubs", str(layout.stubs))


@contextmanager
def open_store(root: Path, sizes: ChunkSizes = SIZES, *, sync: bool = False) -> Iterator[Store]:
    """The store below `root`, made where there is none, open for writing without the lock."""
    layout = layout_in(root)
    layout.root.mkdir(exist_ok=True, parents=True)
    store_layout.open_or_create(layout, sizes)
    store = Store.open(layout, writable=True, sync=sync)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened(layout: Layout, *, writable: bool = True) -> Iterator[Store]:
    """The store without its lock."""
    store = Store.open(layout, writable=writable)
    try:
        yield store
    finally:
        store.close()


def feed(ingest: Ingest, pieces: Sequence[bytes]) -> None:
    """Hands these pieces to a save, as the worker does."""
    for piece in pieces:
        buffer = bytearray(ingest.headroom) + piece
        ingest.feed(memoryview(buffer), ingest.headroom, len(piece))
        ingest.settle()


def save(store: Store, data: bytes, name: str | None = None) -> Index:
    """Saves `data`, as the snapshot `name` if there is one."""
    index = as_index(store, ingest_file(store, io.BytesIO(data)))
    if name is not None:
        path = os.path.join(os.fsencode(store.layout.stubs), os.fsencode(name))
        stubs.replace(stubs.prepare(store.layout, index, sync=False), path)
    return index


def as_index(store: Store, saved: Saved, head: Index | None = None) -> Index:
    return (head or Index(store.sizes)).extended(saved.lengths, saved.ids)


def read(store: Store, index: Index) -> bytes:
    return b"".join(bytes(piece) for piece in read_file(store, index))


def stub(store: Store, name: str) -> bytes:
    return os.path.join(os.fsencode(store.layout.stubs), os.fsencode(name))


def pack_paths(store: Store | Layout) -> list[Path]:
    layout = store if isinstance(store, Layout) else store.layout
    return sorted(layout.packs.rglob("*.pack"))


def flip(path: Path, offset: int, mask: int = 0x40) -> None:
    """Changes one byte of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ mask]))


def listing(*folders: Path) -> dict[str, tuple[object, ...]]:
    """Every name below these folders with what lies there, to see that nothing changed."""
    found: dict[str, tuple[object, ...]] = {}
    for folder in folders:
        for path in [folder, *sorted(folder.rglob("*"))] if folder.exists() else []:
            status = path.lstat()
            content: object = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            found[str(path)] = (status.st_mode, status.st_uid, status.st_ino, content)
    return found
