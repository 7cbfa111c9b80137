"""What the one writer does before anything else: drop rubbish, make the catalog agree with the packs."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kvtool.core.chunker import ChunkSizes
from kvtool.core.units import format_size
from kvtool.errors import CatalogDamaged, PackDamaged
from kvtool.store import badlist, catalog_files, durable, lock, packs, stubs
from kvtool.store import layout as store_layout
from kvtool.store.badlist import Copy
from kvtool.store.catalog import PackRow
from kvtool.store.layout import Layout
from kvtool.store.lock import StoreLock
from kvtool.store.salvage import salvage
from kvtool.store.store import Store

log = logging.getLogger(__name__)


@dataclass
class Recovered:
    """What was found and done: numbers of files."""

    leftovers: int = 0
    packs_taken_in: int = 0
    packs_gone: int = 0
    packs_quarantined: int = 0
    chunks_saved: int = 0
    chunks_damaged: int = 0
    catalog_rebuilt: bool = False

    def __str__(self) -> str:
        """What was done, for people; empty when nothing was."""
        return ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in vars(self).items() if value)


class Writer(NamedTuple):
    """What the one writer works with: the store, what was mended, and the lock's descriptor."""

    store: Store
    recovered: Recovered
    lock_fd: int


@contextmanager
def writer(layout: Layout, *, sync: bool, create: ChunkSizes | None = None) -> Iterator[Writer]:
    """The store opened for its one writer, after mending what a crash left.

    With `create` it is made, of those chunk sizes, where there is none. The lock says "unclean" to the next
    writer when the block ends by an exception. Raises NoStore, StoreFormatError, StoreLocked, OSError.
    """
    # What is in the way is found before anything is made or locked.
    if create is None or layout.format.exists():
        store_layout.open_existing(layout)
    else:
        store_layout.check_free(layout)
        store_layout.make_folder(layout.root)
    held = lock.acquire(layout)
    try:
        if create is not None:
            store_layout.open_or_create(layout, create)
        store, recovered = open_mended(layout, held, sync=sync)
        held.mended()
        try:
            yield Writer(store, recovered, held.fd)
        finally:
            store.close()
    except BaseException:
        held.abandon()
        raise
    held.release()


def open_mended(layout: Layout, held: StoreLock, *, sync: bool) -> tuple[Store, Recovered]:
    """The store after mending what a crash left, for who holds the lock and then says so (`held.mended`).

    Raises NoStore, StoreFormatError, OSError.
    """
    done = Recovered()
    store = None
    try:
        if catalog_files.is_known_damaged(layout.catalog):
            raise CatalogDamaged("the catalog was found damaged")
        store = _open(layout, sync=sync)
        _match_catalog(store, done, check_all=held.rebooted)
    except CatalogDamaged as error:
        log.warning("%s: rebuilding it from the packs", error.message)
        if store is not None:
            store.close()
        catalog_files.discard(layout.catalog)
        done.catalog_rebuilt = True
        store = _open(layout, sync=sync)
        _match_catalog(store, done, check_all=held.rebooted)
    if not store.catalog.is_complete:
        store.catalog.set_complete(True)
    done.leftovers = _empty(layout.incoming) + _empty(layout.staging)
    store_layout.aside(layout.bad_copies).unlink(missing_ok=True)
    if held.unclean:
        done.leftovers += stubs.drop_leftovers(layout)
    return store, done


def _open(layout: Layout, *, sync: bool) -> Store:
    """The store, whose catalog is in the making when there was none."""
    is_new = not layout.catalog.exists()
    store = Store.open(layout, writable=True, sync=sync)
    if is_new:
        store.catalog.set_complete(False)
    # The mark is of another catalog: this one is new, or an older one that somebody has put back.
    if durable.synced_up_to(layout) > store.catalog.last_key():
        durable.forget_mark(layout)
    return store


def _empty(folder: Path) -> int:
    folder.mkdir(mode=0o700, exist_ok=True)
    names = os.listdir(folder)
    for name in names:
        os.unlink(folder / name)
    return len(names)


def _match_catalog(store: Store, done: Recovered, *, check_all: bool) -> None:
    """Takes in packs that the catalog does not know, forgets those that are gone or damaged.

    With `check_all`, after a power cut, also looks at the footers and the data of packs it can have hit.
    """
    known = {row.id: row for row in store.catalog.packs()}
    there = packs.list_packs(store.layout)
    gone = [row for row in known.values() if there.get(row.id) != row.size]
    if check_all:
        whole = [row for row in _young(store) if there.get(row.id) == row.size]
        gone += [row for row in whole if not _is_sound(store, row.id)]
    for row in gone:
        _save_the_rest(store, row, done)
    if gone:
        log.warning(
            "%d packs that the catalog knows are gone or damaged: chunks that no other holds are lost",
            len(gone),
        )
        store.catalog.drop_packs(row.key for row in gone)
        done.packs_gone = len(gone)
    known |= {row.id: row for row in store.catalog.packs()}  # with those that took what was saved
    there = packs.list_packs(store.layout)
    bad = badlist.read(store.layout)
    kept = known.keys() - {row.id for row in gone}
    for pack_id in kept if gone else ():  # saves at the same time may have stored the same chunks
        with suppress(PackDamaged):
            entries = packs.read_entries(store.layout.pack(pack_id))[2]
            store.catalog.add_chunks(known[pack_id].key, badlist.without(bad, pack_id, entries))
    for pack_id in sorted(there.keys() - kept):
        path = store.layout.pack(pack_id)
        try:
            _, size, entries = packs.read_entries(path)
        except PackDamaged as error:
            log.warning("%s: moved to %s", error.message, store.layout.quarantine)
            store_layout.quarantine(store.layout, path, path.name)
            done.packs_quarantined += 1
        else:
            store.catalog.add_pack(pack_id, size, badlist.without(bad, pack_id, entries))
            done.packs_taken_in += 1
    if bad:  # a crash may have come between the list and the catalog
        store.catalog.forget_copies(bad)
        badlist.forget_gone(store.layout, there)
    if check_all:
        done.chunks_damaged = _forget_damaged(store)


def _young(store: Store) -> list[PackRow]:
    """The packs that the catalog knows and a power cut can have hit, oldest first."""
    safe = durable.synced_up_to(store.layout)
    return [row for row in store.catalog.packs() if row.key > safe]


def _save_the_rest(store: Store, row: PackRow, done: Recovered) -> None:
    """Copies to a new pack what is right of a damaged one, by what the catalog knows of it."""
    path = store.layout.pack(row.id)
    if path.is_file() and not _is_sound(store, row.id):
        saved = salvage(store.layout, path, store.catalog.entries(row.key))
        if saved is not None:
            store.catalog.add_pack(*saved, stale=[entry.id for entry in saved.entries])
            done.chunks_saved += len(saved.entries)


def _is_sound(store: Store, pack_id: bytes) -> bool:
    try:
        packs.read_table(store.layout.pack(pack_id))  # its checksum tells; what it says takes long to decode
    except (PackDamaged, OSError):
        return False
    return True


def _forget_damaged(store: Store) -> int:
    """Forgets the chunks that a power cut has taken from young packs. Returns how many."""
    count = 0
    young = _young(store)
    if young:
        size = format_size(sum(row.size for row in young))
        log.info(
            "another boot than the last: reading the %d packs that it may have hit, %s", len(young), size
        )
    for row in young:
        path = store.layout.pack(row.id)
        damaged = packs.damaged_chunks(path, store.catalog.entries(row.key))
        if damaged:
            log.warning("pack %s: %d chunks are damaged and forgotten", path, len(damaged))
            count += badlist.condemn(store, [Copy(row.id, *entry[:3]) for entry in damaged])
    if young:
        with suppress(OSError):  # what was read came from the disk, where the next power cut leaves it
            durable.forget_mark(store.layout)
            durable.sync_all(store.layout, young[-1].key)
    return count
