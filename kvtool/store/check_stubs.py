"""fsck, the stubs: each by itself, and whether all that it refers to is there."""

import os
import stat

from kvtool.core import index as chunk_index
from kvtool.core.index import Index
from kvtool.core.text import counted
from kvtool.core.units import format_size
from kvtool.errors import IndexDamaged
from kvtool.store import stubs
from kvtool.store.catalog import Catalog
from kvtool.store.findings import Code, Finding
from kvtool.store.look import Look, why


def check_stubs(look: Look) -> None:
    """Reads every stub and looks each of its chunks up; then tells which packs nothing needs.

    What nothing needs is known only when every stub could be read.
    """
    needed: set[int] = set()
    complete = True

    def failed(folder: bytes, error: OSError) -> None:
        nonlocal complete
        complete = False
        look.add(Code.STUB_UNREADABLE, folder, why(error))

    for path in stubs.walk(look.layout, failed):
        look.watch.done(1)
        try:
            complete &= _check(look, path, needed)
        except FileNotFoundError:
            complete = False  # deleted just now, or renamed to where nobody looks again
        except OSError as error:
            complete = False
            look.add(Code.STUB_UNREADABLE, path, why(error), stubs.name_of(look.layout, path))
    if not complete:
        return
    look.leave_out_unneeded()
    # A chunk without a good place in the catalog may be in any pack.
    if look.sound is not None and not (look.spare or look.bad_rows):
        _find_orphans(look, look.sound, needed)


def _check(look: Look, path: bytes, needed: set[int]) -> bool:
    """Checks one stub, and adds the keys of its packs to `needed`; False when they cannot be told."""
    name = stubs.name_of(look.layout, path)
    if not stat.S_ISREG(os.lstat(path).st_mode):
        look.add(Code.STUB_FOREIGN, path, "is no stub but a link or a special file", name)
        return False
    attributes = stubs.get_all(path)
    if stubs.INCOMPLETE in attributes:
        if not look.in_use:
            look.add(Code.STUB_INCOMPLETE, path, "made by a save that did not end", name)
        return True
    look.snapshots += 1
    try:
        index = stubs.read_index(path)
    except IndexDamaged as error:
        if any(key.startswith(stubs.PREFIX) for key in attributes) or _begins_like_a_stub(path):
            look.add(Code.STUB_DAMAGED, path, why(error), name)
        else:
            text = "is no stub: the mount gives EIO for it, and nothing is collected"
            look.add(Code.STUB_FOREIGN, path, text, name)
        return False
    look.sizes.setdefault(index.sizes, []).append(path)
    if _check_chunks(look, path, name, index, needed):
        _check_attributes(look, path, name, index, attributes)
    return True


def _begins_like_a_stub(path: bytes) -> bool:
    with open(path, "rb") as file:
        try:
            chunk_index.check_header(file.read(chunk_index.HEADER_SIZE))
        except IndexDamaged:
            return False
    return True


def _check_chunks(look: Look, path: bytes, name: str, index: Index, needed: set[int]) -> bool:
    """Looks for every chunk. Returns whether the lengths in the index are those of the chunks there."""
    chunks = list(index.chunks())
    places = look.places(dict.fromkeys(chunk_id for chunk_id, _ in chunks))
    missing, wrong = [], []
    lost = position = 0
    for chunk_id, length in chunks:
        place = places.get(chunk_id)
        found = look.length(chunk_id, place)
        if found is None:
            missing.append((position, chunk_id))
            lost += length
        elif found != length:
            wrong.append((position, chunk_id))
        position += length
        for concern in look.of_chunks.get(chunk_id, ()):
            _name(concern, name)
        if place is not None:
            needed.add(place.pack)
            if place.pack in look.of_packs:
                _name(look.of_packs[place.pack], name)
            look.claim(chunk_id, place)
    for code, bad, what in (
        (Code.STUB_CHUNK_MISSING, missing, f"({format_size(lost)}) are gone"),
        (Code.STUB_CHUNK_LENGTH, wrong, "have another length in the store"),
    ):
        if bad:
            start, chunk_id = bad[0]
            text = f"{len(bad)} of {len(chunks)} chunks {what}, the first at byte {start}: {chunk_id.hex()}"
            look.add(code, path, text, name)
    return not wrong


def _name(found: Finding, name: str) -> None:
    if name not in found.snapshots[-1:]:
        found.snapshots.append(name)


def _check_attributes(
    look: Look, path: bytes, name: str, index: Index, attributes: dict[bytes, bytes]
) -> None:
    size = attributes.get(stubs.SIZE)
    if size != b"%d" % index.size:
        said = "absent" if size is None else _shown(size)
        text = f"the size attribute is {said}, the index is of {index.size} bytes"
        look.add(Code.STUB_SIZE, path, text, name)
    for key in stubs.malformed(attributes):
        text = f"the attribute {_shown(key)} is {_shown(attributes[key])}"
        look.add(Code.STUB_ATTRIBUTE, path, text, name)
    for key in stubs.unknown(attributes):
        text = f"the attribute {_shown(key)} is unknown to this kvtool"
        look.add(Code.STUB_ATTRIBUTE_UNKNOWN, path, text, name)


def _shown(value: bytes) -> str:
    return value[:80].decode("utf-8", "backslashreplace")


def _find_orphans(look: Look, sound: Catalog, needed: set[int]) -> None:
    unneeded = [row for row in sound.packs() if row.key not in needed and look.pack(row.key)]
    if unneeded:
        size = format_size(sum(row.size for row in unneeded))
        text = f"{counted(len(unneeded), 'pack')} ({size}) of which no snapshot needs anything"
        look.add(Code.ORPHAN, look.layout.packs, text)
