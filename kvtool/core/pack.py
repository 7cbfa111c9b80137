"""The pack: an immutable file of chunks that describes itself.

================  ===============================================================================
offset            content (integers little-endian)
================  ===============================================================================
0                 magic `KVTPACK1`, u32 version, u32 0, pack id (16 bytes), zeros up to 4096
4096              chunk data back to back
footer offset     n entries: chunk id (32 bytes), u64 offset, u64 length, u64 XXH3-64 of the data
end - 32          u64 footer offset, u64 n, u64 XXH3-64 of the footer, magic `KVTPEND1`
================  ===============================================================================

A pack without its trailer was never sealed, and nothing refers to it.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import xxhash

from kvtool.core.index import ID_SIZE
from kvtool.errors import PackDamaged, StoreTooNew

HEADER_SIZE = 4096
PACK_ID_SIZE = 16
VERSION = 1
_LATEST = 256  # no version of a pack is so high
_HEADER = struct.Struct("<8sII16s")
_ENTRY = struct.Struct("<32sQQQ")
_TRAILER = struct.Struct("<QQQ8s")
_MAGIC = b"KVTPACK1"
_END_MAGIC = b"KVTPEND1"
# For longer input xxhash lets go of the interpreter lock; in a restore, waiting to get it back took longer
# than the hash.
_UNLOCKED = 96 << 10
TRAILER_SIZE = _TRAILER.size
ENTRY_SIZE = _ENTRY.size


class Entry(NamedTuple):
    """One chunk of a pack: its SHA-256, where its data begins in the file, its bytes, XXH3-64 of them."""

    id: bytes
    offset: int
    length: int
    checksum: int


EntryFields = tuple[bytes, int, int, int]  # an Entry, or a bare tuple of the same


class Trailer(NamedTuple):
    """Where the footer lies: offset and chunks of the table, and its XXH3-64."""

    footer_offset: int
    chunks: int
    checksum: int

    @property
    def footer_size(self) -> int:
        """The bytes of the footer's table."""
        return self.chunks * _ENTRY.size


def checksum(data: bytes | bytearray | memoryview) -> int:
    """XXH3-64 of `data`: finds decay on the way from the disk; the SHA-256 id is what names the bytes."""
    if len(data) <= _UNLOCKED:
        return xxhash.xxh3_64_intdigest(data)
    digest, view = xxhash.xxh3_64(), memoryview(data)
    for start in range(0, len(data), _UNLOCKED):
        digest.update(view[start : start + _UNLOCKED])
    return digest.intdigest()


def size_of(chunks: int, data: int) -> int:
    """The bytes of a pack with so many chunks that have `data` bytes together."""
    return HEADER_SIZE + data + _ENTRY.size * chunks + TRAILER_SIZE


def header(pack_id: bytes) -> bytes:
    """The 4096 bytes that a pack begins with."""
    return _HEADER.pack(_MAGIC, VERSION, 0, pack_id).ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes) -> bytes:
    """The pack id in the header `data`. Raises PackDamaged, StoreTooNew."""
    if len(data) != HEADER_SIZE:
        raise PackDamaged("the pack's header is cut short", "header")
    magic, version, zero, pack_id = _HEADER.unpack_from(data)
    # Damage must not look like a later version: one flipped bit, or what is no small number, is damage.
    if magic == _MAGIC and VERSION < version < _LATEST and (version ^ VERSION).bit_count() > 1:
        raise StoreTooNew(
            f"pack {pack_id.hex()} is of version {version}, this kvtool reads {VERSION}",
            hint="upgrade kvtool",
        )
    if magic != _MAGIC or version != VERSION or zero or any(data[_HEADER.size :]):
        raise PackDamaged("the pack's header is wrong", "header")
    return bytes(pack_id)


def encode_entries(entries: Iterable[EntryFields]) -> bytes:
    """The table of entries, ENTRY_SIZE bytes each, as a footer has it."""
    return b"".join([_ENTRY.pack(*entry) for entry in entries])


def encode_places(ids: bytes, offsets: "array[int]", lengths: "array[int]") -> bytes:
    """The same of columns (ids of 32 bytes, 64-bit numbers), where nobody looks at the checksums: they are 0.

    By columns in a tenth of the time that it takes by rows.
    """
    table = bytearray(len(offsets) * ENTRY_SIZE)
    at = 0
    for column, width in ((ids, ID_SIZE), (_little(offsets), 8), (_little(lengths), 8)):
        for byte in range(width):
            table[at + byte :: ENTRY_SIZE] = column[byte::width]
        at += width
    return bytes(table)


def entries_in(table: bytes) -> list[EntryFields]:
    """The entries of a table, taken as they are."""
    return list(_ENTRY.iter_unpack(table))


def footer(entries: Sequence[Entry], footer_offset: int) -> bytes:
    """Footer and trailer for `entries`, to be written at `footer_offset`, where the chunk data ends."""
    table = encode_entries(entries)
    return table + _TRAILER.pack(footer_offset, len(entries), checksum(table), _END_MAGIC)


def decode_trailer(data: bytes, pack_size: int) -> Trailer:
    """The trailer in the last TRAILER_SIZE bytes of a pack of `pack_size` bytes. Raises PackDamaged."""
    if len(data) != TRAILER_SIZE or pack_size < HEADER_SIZE + TRAILER_SIZE:
        raise PackDamaged("the pack is cut short", "trailer")
    footer_offset, count, digest, magic = _TRAILER.unpack(data)
    trailer = Trailer(footer_offset, count, digest)
    if magic != _END_MAGIC or footer_offset < HEADER_SIZE:
        raise PackDamaged("the pack has no trailer: it was never sealed, or it is damaged", "trailer")
    if footer_offset + trailer.footer_size + TRAILER_SIZE != pack_size:
        raise PackDamaged("the pack's trailer does not fit its size", "trailer")
    return trailer


def overlapping(entries: Sequence[Entry]) -> Entry | None:
    """A chunk that begins within another one, if there is any."""
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset < end:
            return entry
        end = entry.offset + entry.length
    return None


def check_footer(table: bytes, trailer: Trailer) -> None:
    """Raises PackDamaged when the footer `table` is not what was sealed."""
    if len(table) != trailer.footer_size or checksum(table) != trailer.checksum:
        raise PackDamaged("the pack's footer does not match its checksum", "footer")


def decode_footer(table: bytes, trailer: Trailer) -> list[Entry]:
    """The entries of the footer `table`. Raises PackDamaged when they are not what was sealed."""
    check_footer(table, trailer)
    entries = [Entry._make(fields) for fields in entries_in(table)]
    for entry in entries:
        if entry.offset < HEADER_SIZE or not 0 < entry.length <= trailer.footer_offset - entry.offset:
            text = f"the pack's footer places chunk {entry.id.hex()} outside its data"
            raise PackDamaged(text, "entries")
    return entries


def _little(words: "array[int]") -> bytes:
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()
