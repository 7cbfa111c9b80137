"""Collection: deleting packs that no snapshot needs.

Mark is a read-only pass over all stubs. The sweep deletes only packs that were sealed before the mark
began, that it did not find needed, and that nobody has used since; who calls it says which those are.
"""

import argparse
import errno
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvtool.errors import KvtoolError
from kvtool.store import child, stubs
from kvtool.store import layout as store_layout
from kvtool.store.catalog import PackRow
from kvtool.store.layout import Layout
from kvtool.store.store import Store

_BATCH = 100_000  # chunk ids looked up at once


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection freed, or would free: packs and their bytes."""

    packs: int
    bytes: int


def mark(store: Store) -> set[int]:
    """The keys of the packs that snapshots need.

    Raises IndexDamaged for a file of the stub tree that is no stub: it may stand for chunks, so nothing can
    be called unneeded. Raises NoStore when the stub tree is absent or another store's.
    """
    store_layout.check_stub_tree(store.layout, store.format)
    live: set[int] = set()
    pending: set[bytes] = set()
    for path in stubs.walk(store.layout):
        try:
            if stubs.get(path, stubs.INCOMPLETE) is not None:
                continue
            pending.update(chunk_id for chunk_id, _ in stubs.read_index(path).chunks())
        except FileNotFoundError:
            continue  # deleted or renamed meanwhile; the mount notes renames itself
        if len(pending) >= _BATCH:
            live |= packs_of(store, pending)
            pending.clear()
    return live | packs_of(store, pending)


def packs_of(store: Store, ids: Iterable[bytes]) -> set[int]:
    """The keys of the packs that hold those chunks; a chunk that is missing has none."""
    return {location.pack for location in store.catalog.find(ids).values()}


def unneeded(store: Store, live: set[int], newest: int) -> list[int]:
    """The packs with keys up to `newest` that are not in `live`."""
    return [row.key for row in store.catalog.packs() if row.key <= newest and row.key not in live]


def sweep(store: Store, keys: Iterable[int], *, dry_run: bool = False) -> Collected:
    """Deletes packs: first from the catalog, then their files. Needs no free space to speak of."""
    doomed = set(keys)
    rows = [row for row in store.catalog.packs() if row.key in doomed]
    freed = Collected(len(rows), sum(row.size for row in rows))
    if dry_run or not rows:
        return freed
    store.packs.close()  # the space of a deleted file is free when nobody has it open
    try:
        store.catalog.drop_packs(doomed)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # No room even for that. The other way round is safe too: who meets a pack that is gone stores anew.
        _delete(store, rows)
        store.catalog.drop_packs(doomed)
    else:
        _delete(store, rows)
    return freed


def _delete(store: Store, rows: Iterable[PackRow]) -> None:
    for row in rows:
        store.layout.pack(row.id).unlink(missing_ok=True)


def newest_pack(store: Store) -> int:
    """The key of the pack sealed last, 0 when there is none."""
    rows = store.catalog.packs()
    return rows[-1].key if rows else 0


def collect(store: Store, *, dry_run: bool = False) -> Collected:
    """A whole collection while nothing else uses the store; the caller holds the lock unless `dry_run`."""
    newest = newest_pack(store)
    return sweep(store, unneeded(store, mark(store), newest), dry_run=dry_run)


def main() -> None:
    """A mark in a process of its own, so that a mount goes on serving: prints the keys as JSON."""
    parser = argparse.ArgumentParser(prog="kvtool-mark")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--stubs", type=Path, required=True)
    args = parser.parse_args()
    child.settle(args.parent)
    try:
        store = Store.open(Layout(args.store, args.stubs), writable=False)
        json.dump(sorted(mark(store)), sys.stdout)
    except (KvtoolError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
