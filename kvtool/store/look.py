"""What one look of fsck at a store has seen so far; the checks (`check_*`) fill it, one after the other."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.core.pack import Entry
from kvtool.errors import CatalogDamaged, KvtoolError
from kvtool.store.badlist import Copy
from kvtool.store.catalog import Catalog, Location
from kvtool.store.findings import Code, Finding, Report, finding
from kvtool.store.format import StoreFormat
from kvtool.store.layout import Layout
from kvtool.store.watch import NOBODY, Watch


def why(error: KvtoolError | OSError) -> str:
    """What is wrong, without the name of the file: that is the finding's path."""
    return error.message if isinstance(error, KvtoolError) else error.strerror or str(error)


@dataclass
class Look:
    """Findings, and what a repair needs to know of them.

    `format` is None when store.toml is of no use, `store_id` when the stub tree is not this store's,
    `catalog` when it cannot be opened, `sound` when it is damaged.
    """

    layout: Layout
    in_use: bool
    watch: Watch = NOBODY
    findings: list[Finding] = field(default_factory=list)
    format: StoreFormat | None = None
    format_trouble: str = ""
    store_id: str | None = None
    catalog: Catalog | None = None
    sound: Catalog | None = None
    packs: int = 0
    chunks: int = 0
    snapshots: int = 0
    # Damaged packs, with the places where the footer and the catalog say that chunks are.
    claims: dict[Path, set[Entry]] = field(default_factory=dict)
    # Sound packs with chunks that the catalog has no place for: these chunks.
    unknown: dict[Path, list[Entry]] = field(default_factory=dict)
    # Chunks whose rows in the catalog are wrong.
    bad_rows: set[bytes] = field(default_factory=set)
    # Copies that were found damaged: they are as if they were not there.
    condemned: set[Copy] = field(default_factory=set)
    # The lengths of chunks that a footer has and the catalog has no good place for.
    spare: dict[bytes, int] = field(default_factory=dict)
    # What concerns each snapshot that needs a chunk of this pack (by its key), or this chunk.
    of_packs: dict[int, Finding] = field(default_factory=dict)
    of_chunks: dict[bytes, list[Finding]] = field(default_factory=dict)
    # The stubs by the chunk sizes in their headers.
    sizes: dict[ChunkSizes, list[bytes]] = field(default_factory=dict)
    _paths: dict[int, tuple[Path, int] | None] = field(default_factory=dict)

    def add(self, code: Code, path: Path | bytes, message: str, *snapshots: str) -> Finding:
        """Notes a finding."""
        found = finding(code, os.fsdecode(path), message, snapshots)
        self.findings.append(found)
        return found

    def concern(self, ids: Iterable[bytes], found: Finding) -> None:
        """Has the snapshots that need one of these chunks named with the finding."""
        for chunk_id in ids:
            self.of_chunks.setdefault(chunk_id, []).append(found)

    def places(self, ids: Iterable[bytes]) -> dict[bytes, Location]:
        """Where the catalog says that those chunks are; nothing, when it is too damaged to tell."""
        if self.catalog is None:
            return {}
        try:
            found = self.catalog.find(sorted(ids))  # in the order of the table: many are in one page
        except (CatalogDamaged, OSError, TypeError):
            if self.sound is not None:
                raise
            return {}
        if self.sound is not None:
            return found
        # The values of a damaged catalog can be of any type.
        return {i: place for i, place in found.items() if all(type(value) is int for value in place)}

    def pack(self, key: int) -> tuple[Path, int] | None:
        """The file of the pack that the catalog calls `key`, and its bytes; None when there is none."""
        if key not in self._paths:
            self._paths[key] = self._find_pack(key)
        return self._paths[key]

    def _find_pack(self, key: int) -> tuple[Path, int] | None:
        try:
            row = self.catalog.pack(key) if self.catalog is not None else None
        except (CatalogDamaged, OSError):
            return None
        if row is None or type(row.id) is not bytes:
            return None
        path = self.layout.pack(row.id)
        try:
            status = os.lstat(path)
        except OSError:
            return None
        return (path, status.st_size) if stat.S_ISREG(status.st_mode) else None

    def claim(self, chunk_id: bytes, place: Location) -> None:
        """Notes where the catalog says that a chunk is, when it is in a damaged pack."""
        held = self.pack(place.pack) if self.claims else None
        if held is not None and held[0] in self.claims:
            self.claims[held[0]].add(Entry(chunk_id, place.offset, place.length, place.checksum))

    def length(self, chunk_id: bytes, place: Location | None) -> int | None:
        """The bytes of a chunk that is there, as far as can be told without a look at its data, else None.

        `place` is what the catalog says.
        """
        if chunk_id in self.spare:
            return self.spare[chunk_id]
        if place is None or chunk_id in self.bad_rows:
            return None
        held = self.pack(place.pack)
        if held is None or not (self.sound is not None or held[0] in self.claims):
            return None
        return place.length if 0 <= place.offset <= held[1] - place.length else None

    def leave_out_unneeded(self) -> None:
        """Leaves out the chunks of sound packs that have no place and that no snapshot needs.

        Two saves at once may store the same chunk twice; when the copy that the catalog knows is collected,
        the other is left, until its own pack is.
        """
        for found in [each for each in self.findings if each.code is Code.CATALOG_CHUNK_UNKNOWN]:
            if not found.snapshots:
                self.findings.remove(found)
                for entry in self.unknown.pop(Path(found.path)):
                    self.spare.pop(entry.id, None)

    def report(self) -> Report:
        """What was seen, in the order of the kinds."""
        order = {code: number for number, code in enumerate(Code)}
        return Report(
            store=os.fsdecode(self.layout.root),
            stubs=os.fsdecode(self.layout.stubs),
            in_use=self.in_use,
            snapshots=self.snapshots,
            packs=self.packs,
            chunks=self.chunks,
            findings=sorted(self.findings, key=lambda found: (order[found.code], found.path)),
        )

    def close(self) -> None:
        """Closes the catalog."""
        if self.catalog is not None:
            self.catalog.close()
