"""fsck, the packs and the catalog: every pack by itself, and both against each other."""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kvtool.core import pack
from kvtool.core.pack import Entry
from kvtool.core.text import counted
from kvtool.core.units import format_size
from kvtool.errors import CatalogDamaged, NoStore, PackDamaged
from kvtool.store import badlist, catalog_files, packs, stubs
from kvtool.store.badlist import Copy
from kvtool.store.catalog import Catalog, PackRow
from kvtool.store.findings import Code
from kvtool.store.look import Look, why
from kvtool.store.watch import NOBODY

# What hinders a look at the catalog, and says nothing about it.
_NO_DAMAGE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.ENOMEM}
_PARTS = {
    "header": Code.PACK_HEADER,
    "name": Code.PACK_NAME,
    "trailer": Code.PACK_NO_TRAILER,
    "footer": Code.PACK_FOOTER,
    "entries": Code.PACK_ENTRIES,
}


def open_catalog(look: Look) -> None:
    """Opens the catalog and has SQLite check it."""
    path = look.layout.catalog
    if not os.path.lexists(path):
        look.add(Code.CATALOG_LOST, path, "the catalog is gone")
        return
    for file in catalog_files.files(path):
        if os.path.lexists(file) and not file.is_file():
            look.add(Code.CATALOG_DAMAGED, path, f"{file.name} is not a regular file")
            return
    if catalog_files.is_known_damaged(path):
        look.add(Code.CATALOG_DAMAGED, path, "the catalog was found damaged, and will be made anew")
    try:
        path.open("rb").close()  # what may not be read is no damage
        look.catalog = Catalog(path, writable=False)
        look.catalog.check()
    except PermissionError:
        raise
    except NoStore:
        text = "it holds no catalog"
    except (CatalogDamaged, OSError) as error:
        if isinstance(error, OSError) and error.errno in _NO_DAMAGE:
            raise  # to make it anew would take the good one away, and fail for the same reason
        text = why(error)
    else:
        look.sound = None if catalog_files.is_known_damaged(path) else look.catalog
        return
    if not any(found.code is Code.CATALOG_DAMAGED for found in look.findings):
        look.add(Code.CATALOG_DAMAGED, path, text)


def check_packs(look: Look) -> None:
    """Reads the header, trailer and footer of every pack, and compares the catalog with the footers."""
    look.condemned = badlist.read(look.layout)
    _Comparison(look, look.sound.packs() if look.sound is not None else ()).run()


class _Comparison:
    """One pass over all packs."""

    def __init__(self, look: Look, rows: Iterable[PackRow]) -> None:
        self._look = look
        self._rows = {row.id: row for row in rows}
        self._there: dict[bytes, tuple[Path, int]] = {}
        self._gone: set[int] = set()
        self._sound: dict[int, Path] = {}  # by key
        self._seen: Counter[int] = Counter()  # how many chunks of each key's pack have their rows there

    def run(self) -> None:
        look = self._look
        for path, pack_id, size in packs.scan(look.layout) if look.layout.packs.is_dir() else ():
            if pack_id is None:
                look.add(Code.FOREIGN, path, "is no pack in its place")
            else:
                self._there[pack_id] = path, size
        look.packs = len(self._there)
        look.watch.begin(look.packs + _snapshots(look))
        for row in self._rows.values():
            if row.id not in self._there:
                self._gone.add(row.key)
                text = f"the catalog knows a pack of {format_size(row.size)} that is gone"
                look.of_packs[row.key] = look.add(Code.CATALOG_PACK_GONE, look.layout.pack(row.id), text)
        for pack_id, (path, size) in sorted(self._there.items()):
            self._check(path, size, self._rows.get(pack_id))
            look.watch.done(1)
        if look.sound is not None:
            self._find_unfounded(look.sound)
            self._find_again()

    def _check(self, path: Path, size: int, row: PackRow | None) -> None:
        look = self._look
        try:
            pack_id, _, entries = packs.read_entries(path)
            if (wrong := pack.overlapping(entries)) is not None:
                text = f"the pack's footer places chunk {wrong.id.hex()} within another"
                raise PackDamaged(text, "entries")
        except FileNotFoundError:
            return  # deleted by a collection just now
        except PackDamaged as error:
            found = look.add(_PARTS[error.part], path, why(error))
        except OSError as error:
            found = look.add(Code.PACK_UNREADABLE, path, why(error))
        else:
            look.chunks += len(entries)
            self._compare(path, size, row, badlist.without(look.condemned, pack_id, entries))
            return
        if row is not None:
            look.of_packs[row.key] = found
        look.claims[path] = set()
        with suppress(PackDamaged, OSError):
            entries = packs.read_entries(path, any_header=True)[2]
            look.claims[path].update(entries)
            look.spare.update((entry.id, entry.length) for entry in entries)
            look.concern((entry.id for entry in entries), found)

    def _compare(self, path: Path, size: int, row: PackRow | None, entries: Sequence[Entry]) -> None:
        look = self._look
        if look.sound is None:
            look.spare.update((entry.id, entry.length) for entry in entries)
            return
        places = look.places(entry.id for entry in entries)
        own = {}
        unknown = []
        for entry in entries:
            place = places.get(entry.id)
            if place is None or place.pack in self._gone:
                look.spare[entry.id] = entry.length
            if place is None:
                unknown.append(entry)
            elif row is not None and place.pack == row.key:
                own[entry.id] = Entry(entry.id, place.offset, place.length, place.checksum)
        if row is None:
            text = f"the catalog does not know this pack of {counted(len(entries), 'chunk')}"
            look.concern((entry.id for entry in unknown), look.add(Code.CATALOG_PACK_UNKNOWN, path, text))
            return
        self._sound[row.key] = path
        self._seen[row.key] = len(own)
        if row.size != size:
            text = f"the catalog says that this pack has {row.size} bytes; it has {size}"
            look.of_packs[row.key] = look.add(Code.CATALOG_PACK_SIZE, path, text)
        if unknown:
            look.unknown[path] = unknown
            ids = [entry.id for entry in unknown]
            text = f"{_chunks(ids)} of this pack are in no place that the catalog knows"
            look.concern(ids, look.add(Code.CATALOG_CHUNK_UNKNOWN, path, text))
        footer = set(entries)
        differing = [chunk_id for chunk_id, entry in own.items() if entry not in footer]
        self._note_bad(
            Code.CATALOG_CHUNK_DIFFERS, path, differing, "of this pack are not where the catalog says"
        )

    def _find_unfounded(self, sound: Catalog) -> None:
        """Rows of chunks whose pack has no such chunk, or that are of no pack at all."""
        known = {row.key for row in self._rows.values()}
        for key, count in sorted(sound.counts().items()):
            if key in self._sound and count > self._seen[key]:
                path = self._sound[key]
                footer = {entry.id for entry in _entries(path, self._look.condemned)}
                text = "have a place in this pack by the catalog, and are not in it"
            elif key not in known:
                path, footer = self._look.layout.catalog, set()
                text = f"have a place in pack {key}, which the catalog does not know"
            else:
                continue
            rows = sound.entries(key)
            unfounded = [entry.id for entry in rows if entry.id not in footer]
            self._note_bad(Code.CATALOG_CHUNK_UNFOUNDED, path, unfounded, text)

    def _find_again(self) -> None:
        """Looks for the chunks whose rows are wrong in all footers: who needs them has lost nothing."""
        look = self._look
        if look.bad_rows:
            for path in self._sound.values():
                entries = (entry for entry in _entries(path, look.condemned) if entry.id in look.bad_rows)
                look.spare.update((entry.id, entry.length) for entry in entries)

    def _note_bad(self, code: Code, path: Path, ids: Iterable[bytes], what: str) -> None:
        bad = sorted(ids)
        if bad:
            self._look.bad_rows.update(bad)
            self._look.concern(bad, self._look.add(code, path, f"{_chunks(bad)} {what}"))


def _snapshots(look: Look) -> int:
    """How many there are to look at, for who waits; what is wrong there is found when they are."""
    if look.watch is NOBODY or not look.layout.stubs.is_dir():
        return 0
    return sum(1 for _ in stubs.walk(look.layout, failed=lambda _folder, _error: None))


def _entries(path: Path, condemned: set[Copy]) -> list[Entry]:
    """The chunks of a pack that was sound when it was looked at first."""
    try:
        pack_id, _, entries = packs.read_entries(path)
        return badlist.without(condemned, pack_id, entries)
    except (PackDamaged, OSError):
        return []


def _chunks(ids: Sequence[bytes]) -> str:
    return f"{counted(len(ids), 'chunk')} ({ids[0].hex()} is one)"
