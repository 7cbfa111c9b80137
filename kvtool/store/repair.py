"""fsck, the repair: mends what the check finds. The caller's report names what is left.

Nothing is deleted but leftovers of saves, nothing is changed in place but the catalog, which is a cache, and
attributes of stubs: whatever is taken away goes to quarantine/, after what replaces it is on the disk. So it
can be stopped anywhere and run again.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.core.pack import Entry
from kvtool.errors import KvtoolError, reason
from kvtool.store import badlist, catalog_files, lock, packs, recover, stubs
from kvtool.store import format as store_format
from kvtool.store import layout as store_layout
from kvtool.store.catalog import Catalog
from kvtool.store.check import look_at
from kvtool.store.check_places import check_format, derived_format, in_the_way
from kvtool.store.findings import Code, Finding, Outcome, Report, Severity
from kvtool.store.format import StoreFormat
from kvtool.store.layout import Layout
from kvtool.store.lock import StoreLock
from kvtool.store.look import Look
from kvtool.store.salvage import salvage, verified
from kvtool.store.store import Store

log = logging.getLogger(__name__)

# With one of these the store cannot be opened.
_FOUNDATIONS = {
    Code.STORE_TOML,
    Code.STORE_TOML_SIZES,
    Code.STUBS_ABSENT,
    Code.STUBS_NO_ID,
    Code.STUBS_OTHER_ID,
    Code.FOLDER_LOST,
}
_LOST_BYTES = {Code.STUB_CHUNK_MISSING, Code.STUB_CHUNK_LENGTH}
_ROUNDS = 5  # what is mended can bring more to light, but not for ever


def repair(layout: Layout, *, adopt_stubs: bool = False, quarantine_snapshots: bool = False) -> Report:
    """Mends a store and says what was found, what of it is mended and what is left.

    `adopt_stubs` has a stub tree without this store's id taken for its own, `quarantine_snapshots` moves
    the stubs of snapshots that lost bytes away. Raises NoStore, StoreTooNew, StoreLocked, OSError, and
    KvtoolError when something has to be moved by hand first.
    """
    check_format(Look(layout, in_use=False))  # nothing is made where there is no store
    for path in in_the_way(layout):
        if path in {layout.lock, layout.quarantine}:
            raise KvtoolError(f"{path} is not what must be there", hint="move it away, then repair")
    held = lock.acquire(layout)
    try:
        work = _Repair(layout, held, adopt_stubs=adopt_stubs)
        report = work.run(quarantine_snapshots=quarantine_snapshots)
        if work.opened:
            held.mended()
    except BaseException:
        held.abandon()
        raise
    if work.opened:
        held.release()
    else:
        held.abandon()  # the next writer mends what the last one left
    return report


class _Repair:
    """One repair, under the lock."""

    def __init__(self, layout: Layout, held: StoreLock, *, adopt_stubs: bool) -> None:
        self.opened = False
        self._layout = layout
        self._held = held
        self._adopt_stubs = adopt_stubs

    def run(self, *, quarantine_snapshots: bool) -> Report:
        """Looks and mends until a look finds the same again."""
        seen: dict[tuple[Code, str], Finding] = {}
        before = None
        for _ in range(_ROUNDS):
            look = look_at(self._layout, in_use=False)
            left = _by_place(look)
            seen = left | seen
            if left.keys() == before:
                break
            before = left.keys()
            if any(code in _FOUNDATIONS for code, _ in left):
                self._mend_foundations(look)
            else:
                self._mend_store(look)
                self.opened = True
        if quarantine_snapshots and any(code in _LOST_BYTES for code, _ in left):
            self._each(look, _LOST_BYTES, self._quarantine_stub)
            look = look_at(self._layout, in_use=False)
            left = _by_place(look)
        mended = [found for place, found in seen.items() if place not in left]
        for found in mended:
            found.outcome = Outcome.MENDED
        look.findings += mended
        return look.report()

    # -- what has to be right before the store can be opened

    def _mend_foundations(self, look: Look) -> None:
        layout = self._layout
        for folder in (layout.packs, layout.incoming, layout.staging):
            if not folder.is_dir():
                self._make_room(folder)
                folder.mkdir(mode=0o700)
        derived = derived_format(look)
        if look.format is None and isinstance(derived, StoreFormat):
            self._write(layout.format, store_format.dump(derived))
        codes = {found.code for found in look.findings}
        if look.format is not None and Code.STORE_TOML_SIZES in codes:
            [sizes] = look.sizes
            self._write(layout.format, store_format.dump(_resized(look.format, sizes)))
        no_id = codes & {Code.STUBS_NO_ID, Code.STUBS_OTHER_ID}
        if look.format is not None and no_id and self._adopt_stubs:
            if not layout.stub_private.is_dir():
                self._make_room(layout.stub_private)
                layout.stub_private.mkdir(mode=0o700)
            self._write(layout.stub_store_id, look.format.store_id + "\n")

    def _write(self, path: Path, text: str) -> None:
        self._make_room(store_layout.aside(path))
        store_layout.write_aside(path, text)
        self._make_room(path)
        store_layout.put_in_place(path)

    def _make_room(self, path: Path) -> None:
        if os.path.lexists(path):
            store_layout.quarantine(self._layout, path, path.name)

    # -- packs and catalog

    def _mend_store(self, look: Look) -> None:
        self._mend_packs(look)
        if look.sound is None:
            for file in catalog_files.files(self._layout.catalog):
                if os.path.lexists(file) and not file.is_file():
                    self._make_room(file)
            catalog_files.discard(self._layout.catalog)
        self._each(look, {Code.LEFTOVER, Code.STUB_INCOMPLETE}, self._clear)
        store, _ = recover.open_mended(self._layout, self._held, sync=True)
        try:
            if look.sound is not None:
                _mend_rows(store, look)
            self._each(look, {Code.STUB_DAMAGED}, self._quarantine_stub)
            self._each(look, {Code.STUB_SIZE}, _write_size)
            self._each(look, {Code.STUB_ATTRIBUTE}, _remove_malformed)
            self._each(look, {Code.STUB_HEADER}, lambda path: _write_header(store, path))
        finally:
            store.close()

    def _mend_packs(self, look: Look) -> None:
        """Saves what is right of damaged packs, while the catalog still knows what is where in them."""
        known = Catalog(self._layout.catalog, writable=True) if look.sound is not None else None
        try:
            keys = {self._layout.pack(row.id): row.key for row in known.packs()} if known is not None else {}
            for path, claims in look.claims.items():
                rows = known.entries(keys[path]) if known is not None and path in keys else []
                self._salvage(path, claims.union(rows), known, keys.get(path))
            for path, entries in look.unknown.items():
                if sum(1 for _ in verified(path, entries)) < len(entries):
                    self._salvage(path, packs.read_entries(path)[2], known, keys.get(path))
        finally:
            if known is not None:
                known.close()

    def _salvage(self, path: Path, claims: Iterable[Entry], known: Catalog | None, key: int | None) -> None:
        saved = salvage(self._layout, path, claims)
        store_layout.quarantine(self._layout, path, path.name)
        if known is None:
            return  # all packs are entered anew
        if saved is not None:
            known.add_pack(*saved, stale=[entry.id for entry in saved.entries])
        if key is not None:
            known.drop_packs([key])

    # -- single files

    def _each(self, look: Look, codes: set[Code], mend: Callable[[bytes], None]) -> None:
        """Mends each file with such a finding; one that cannot be mended does not hinder the others."""
        for path in dict.fromkeys(found.path for found in look.findings if found.code in codes):
            try:
                mend(os.fsencode(path))
            except OSError as error:
                log.warning("cannot mend %s: %s", path, reason(error))

    def _clear(self, path: bytes) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            store_layout.quarantine(self._layout, path, os.path.basename(path))
        else:
            os.unlink(path)

    def _quarantine_stub(self, path: bytes) -> None:
        place = b"stubs/" + os.path.relpath(path, os.fsencode(self._layout.stubs))
        store_layout.quarantine(self._layout, path, place)


def _by_place(look: Look) -> dict[tuple[Code, str], Finding]:
    return {(found.code, found.path): found for found in look.findings if found.severity is not Severity.INFO}


def _resized(fmt: StoreFormat, sizes: ChunkSizes) -> StoreFormat:
    return replace(fmt, min_size=sizes.min_size, avg_size=sizes.avg_size, max_size=sizes.max_size)


def _mend_rows(store: Store, look: Look) -> None:
    """Enters those chunks anew whose rows are wrong or absent, from the footers."""
    wanted = look.bad_rows.union(entry.id for entries in look.unknown.values() for entry in entries)
    if not wanted:
        return
    for chunk_id in look.bad_rows:
        store.catalog.forget_chunk(chunk_id)
    for row in store.catalog.packs():
        _, _, entries = packs.read_entries(store.layout.pack(row.id))
        entries = badlist.without(look.condemned, row.id, entries)
        store.catalog.add_chunks(row.key, [entry for entry in entries if entry.id in wanted])


def _write_size(path: bytes) -> None:
    os.setxattr(path, stubs.SIZE, b"%d" % stubs.read_index(path).size)


def _remove_malformed(path: bytes) -> None:
    for name in stubs.malformed(stubs.get_all(path)):
        os.removexattr(path, name)


def _write_header(store: Store, path: bytes) -> None:
    index = stubs.read_index(path)
    if any(length > store.sizes.max_size for _, length in index.chunks()):
        return  # the stub could not be read any more
    aside = stubs.prepare(store.layout, replace(index, sizes=store.sizes), sync=True)
    stubs.replace(aside, path, os.lstat(path).st_mtime_ns)
