"""What must hold of a store whenever no file is open, read from the disk alone: stubs, packs and their bytes.

For the bytes the catalog is not asked: it is a cache, and may be wrong without anybody noticing. Whether it
agrees with the packs, kvtool's own fsck says at the end.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kvtool.core import chunker
from kvtool.core import index as chunk_index
from kvtool.core.index import Index
from kvtool.core.pack import HEADER_SIZE, TRAILER_SIZE, Entry, checksum
from kvtool.store import check, packs
from kvtool.store.findings import Code
from kvtool.store.layout import Layout

ENTRY_SIZE = 56  # of one chunk in a pack's footer


def stub_files(stubs: Path) -> Iterator[bytes]:
    """Every stub, as a path relative to the stub tree."""
    root = os.fsencode(stubs)
    for folder, folders, names in os.walk(root):
        if folder == root:
            folders.remove(b".kvtool")
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def stored_chunks(store: Path) -> dict[bytes, tuple[Path, Entry]]:
    """Every chunk that a sealed pack holds, with where it is; its bytes are checked."""
    found = {}
    for path in sorted((store / "packs").rglob("*.pack")):
        _, _, entries = packs.read_entries(path)
        content = path.read_bytes()
        for entry in entries:
            data = content[entry.offset : entry.offset + entry.length]
            assert hashlib.sha256(data).digest() == entry.id, f"{path}: chunk {entry.id.hex()} is wrong"
            assert checksum(data) == entry.checksum, (
                f"{path}: the checksum of chunk {entry.id.hex()} is wrong"
            )
            found[entry.id] = (path, entry)
    return found


def content_of(index: Index, chunks: dict[bytes, tuple[Path, Entry]], name: bytes) -> bytes:
    """A snapshot's bytes, straight from the packs."""
    parts = []
    for chunk_id, length in index.chunks():
        assert chunk_id in chunks, f"{name!r} needs chunk {chunk_id.hex()}, which no pack holds"
        path, entry = chunks[chunk_id]
        assert entry.length == length, (
            f"{name!r}: chunk {chunk_id.hex()} has {entry.length} bytes, not {length}"
        )
        with path.open("rb") as file:
            file.seek(entry.offset)
            parts.append(file.read(length))
    return b"".join(parts)


def check_store(store: Path, stubs: Path) -> dict[bytes, bytes]:
    """Check every invariant, with all files closed. Returns each snapshot's bytes by its path.

    Every stub decodes; each chunk it names is in a sealed pack, with its length and its SHA-256; the chunks
    are those of one sequential pass over the bytes, however these were written; nothing half-done lies
    about.
    """
    chunks = stored_chunks(store)
    contents = {}
    for name in stub_files(stubs):
        stub = os.path.join(os.fsencode(stubs), name)
        keys = os.listxattr(stub)
        assert "user.kvtool.incomplete" not in keys, f"{name!r} is closed, and was never committed"
        with open(stub, "rb") as file:
            index = chunk_index.decode(file.read())
        content = contents[name] = content_of(index, chunks, name)
        assert os.getxattr(stub, b"user.kvtool.size") == b"%d" % len(content)
        lengths = [length for _, length in index.chunks()]
        assert lengths == chunker.cut(content, index.sizes, final=True), f"{name!r} is not cut as in one pass"
    layout = Layout(store, stubs)
    for folder, allowed in (
        (layout.incoming, set()),
        (layout.staging, set()),
        (layout.stub_private, {"store-id"}),
    ):
        assert set(os.listdir(folder)) == allowed, f"left in {folder}: {os.listdir(folder)}"
    findings = check.check_store(layout).findings
    assert {found.code for found in findings} <= {Code.ORPHAN}, f"fsck finds {findings}"
    return contents


def check_collected(store: Path, stubs: Path, before: dict[bytes, bytes]) -> None:
    """Check what a collection leaves: all snapshots as before, no pack that none of them needs, and of what
    the packs hold at most a quarter dead.
    """
    assert check_store(store, stubs) == before, "a collection changed a snapshot"
    needed = set()
    for name in stub_files(stubs):
        with open(os.path.join(os.fsencode(stubs), name), "rb") as file:
            needed |= {chunk_id for chunk_id, _ in chunk_index.decode(file.read()).chunks()}
    live = {}
    total = 0
    for path in (store / "packs").rglob("*.pack"):
        _, size, entries = packs.read_entries(path)
        total += size - HEADER_SIZE - TRAILER_SIZE
        live.update({entry.id: entry.length + ENTRY_SIZE for entry in entries if entry.id in needed})
        assert any(entry.id in needed for entry in entries), f"{path} is wholly dead, and was not collected"
    assert 3 * total <= 4 * sum(live.values()), "more than a quarter of what the packs hold is dead"
