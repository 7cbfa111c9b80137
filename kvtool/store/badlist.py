"""The list of bad copies: chunks in packs that were found damaged, and are as if they were not there.

Packs are never changed, and the catalog is a cache that is rebuilt from them: without the list a damaged
copy would come back with the next rebuild, maybe before the good one that was saved since. One line of text a
copy, `PACK CHUNK OFFSET LENGTH`, in STORE/bad-copies; only the store's one writer writes it.
"""

import errno
import sys
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, NamedTuple

from kvtool.core.index import ID_SIZE
from kvtool.core.pack import PACK_ID_SIZE, Entry
from kvtool.store import hasher
from kvtool.store import layout as store_layout
from kvtool.store.hasher import Fault
from kvtool.store.layout import Layout
from kvtool.store.store import Store

_READ_FAILED = frozenset({errno.EIO, errno.ENODATA, errno.EUCLEAN})  # what a failing disk says


class Copy(NamedTuple):
    """One copy of a chunk: the id of the pack, the chunk's own, the offset in the pack, and bytes."""

    pack: bytes
    chunk: bytes
    offset: int
    length: int


def look(layout: Layout, copy: Copy) -> Fault | None:
    """What is wrong with that copy."""
    entry = (copy.chunk, copy.offset, copy.length, 0)
    return hasher.look_at(layout.pack(copy.pack), [entry]).faults.get(0)


def read(layout: Layout) -> set[Copy]:
    """The copies on the list; a line that is none is passed over. Raises OSError."""
    if not layout.bad_copies.is_file():  # reading a pipe would wait for ever
        return set()
    lines = layout.bad_copies.read_bytes().splitlines()
    return {copy for line in lines if (copy := _parse(line)) is not None}


def condemn(store: Store, copies: Iterable[Copy]) -> int:
    """Puts those copies that are damaged indeed on the list, and makes the catalog forget them.

    The next save of the same bytes then stores them anew, which heals all that need them. Returns how many
    are damaged. The caller is the store's one writer. Raises OSError.
    """
    bad = {copy for copy in copies if _is_bad(look(store.layout, copy))}
    known = read(store.layout)
    if not bad <= known:
        _write(store.layout, known | bad)
    store.catalog.forget_copies(bad)
    return len(bad)


def suspect(store: Store, chunk_id: bytes, length: int) -> None:
    """Condemns the copy of a chunk that the catalog names, if it is damaged. Raises KvtoolError, OSError."""
    location = store.catalog.find([chunk_id]).get(chunk_id)
    row = store.catalog.pack(location.pack) if location is not None else None
    if location is not None and row is not None and location.length == length:
        condemn(store, [Copy(row.id, chunk_id, location.offset, length)])


def without(bad: Container[Copy], pack_id: bytes, entries: Iterable[Entry]) -> list[Entry]:
    """The entries of a pack that count: those that are not on the list `bad`."""
    return [entry for entry in entries if Copy(pack_id, *entry[:3]) not in bad]


def forget_gone(layout: Layout, packs: Collection[bytes]) -> None:
    """Takes copies off the list whose packs are not among those that are there."""
    known = read(layout)
    kept = {copy for copy in known if copy.pack in packs}
    if kept != known:
        _write(layout, kept)


def to_json(copies: Iterable[Copy]) -> list[list[Any]]:
    """The copies as they go through a socket."""
    return [[copy.pack.hex(), copy.chunk.hex(), copy.offset, copy.length] for copy in copies]


def from_json(rows: Sequence[Sequence[Any]]) -> list[Copy]:
    """What `to_json` made. Raises ValueError, TypeError."""
    return [
        Copy(bytes.fromhex(pack), bytes.fromhex(chunk), int(offset), int(length))
        for pack, chunk, offset, length in rows
    ]


def _is_bad(fault: Fault | None) -> bool:
    if fault is None:
        return False
    # What is absent needs no list, and what cannot be opened now may be fine tomorrow.
    return fault.kind == "corrupt" or (fault.kind == "unreadable" and fault.errno in _READ_FAILED)


def _parse(line: bytes) -> Copy | None:
    try:
        [copy] = from_json([line.decode("ascii").split(" ")])
    except ValueError:
        return None
    is_sound = (len(copy.pack), len(copy.chunk)) == (PACK_ID_SIZE, ID_SIZE)
    return copy if is_sound and 0 <= min(copy[2:]) <= max(copy[2:]) <= sys.maxsize else None


def _write(layout: Layout, copies: Iterable[Copy]) -> None:
    lines = [" ".join(map(str, row)) + "\n" for row in to_json(sorted(copies))]
    store_layout.write_aside(layout.bad_copies, "".join(lines))
    store_layout.put_in_place(layout.bad_copies)
