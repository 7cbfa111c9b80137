"""The chunks of one snapshot, in their order: what each is, where it lies, and whether others need it too."""

from collections.abc import Container
from dataclasses import dataclass
from itertools import islice

from kvtool.store import stubs
from kvtool.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One chunk. `offset` is in the snapshot, `pack_offset` in the pack; both null when no pack has it."""

    id: str
    offset: int
    length: int
    pack: str | None
    pack_offset: int | None
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Some of a snapshot's chunks; `total` is how many it has."""

    name: str
    size: int
    total: int
    chunks: list[Piece]


def pieces(store: Store, path: bytes, first: int, count: int, others: Container[bytes]) -> Pieces:
    """`count` chunks from number `first` on of the snapshot at `path`; `others` are chunks that several have.

    Raises IndexDamaged, OSError.
    """
    index = stubs.read_index(path)
    wanted = list(islice(index.chunks(), first, first + count))
    places = store.catalog.find({chunk_id for chunk_id, _ in wanted})
    packs = {row.key: row.id.hex() for row in store.catalog.packs()}
    rows = []
    offset = index.ends[first - 1] if 0 < first <= len(index) else 0
    for chunk_id, length in wanted:
        place = places.get(chunk_id)
        pack = packs.get(place.pack) if place is not None else None
        rows.append(
            Piece(
                id=chunk_id.hex(),
                offset=offset,
                length=length,
                pack=pack,
                pack_offset=place.offset if place is not None and pack is not None else None,
                shared=chunk_id in others,
            )
        )
        offset += length
    return Pieces(name=stubs.name_of(store.layout, path), size=index.size, total=len(index), chunks=rows)
