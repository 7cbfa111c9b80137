"""The chunk index of one file, as a `.caibx` blob index that casync and desync read.

All integers are little-endian u64. `n` chunks make 104 + 40 n bytes:

====================  =====================================================================
offset                content
====================  =====================================================================
0                     48, header magic, feature flags (SHA-256 ids), chunk min, avg, max
48                    2**64 - 1, table magic
64 + 40 i             end offset of chunk i in the file (8 bytes), its id (32 bytes)
64 + 40 n             0, 0, 48, 40 n + 56, tail magic
====================  =====================================================================

Format: casync's `caformat.h` (CA_FORMAT_INDEX, CA_FORMAT_TABLE).
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import sub

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import IndexDamaged

ID_SIZE = 32
_HEADER = struct.Struct("<8Q")
HEADER_SIZE = _HEADER.size
_ENTRY = struct.Struct("<Q32s")
_MANY_IDS = struct.Struct(f"{ID_SIZE}s" * 256)
_TAIL = struct.Struct("<5Q")
TAIL_SIZE = _TAIL.size
_INDEX_MAGIC = 0x96824D9C7B129FF9
_TABLE_MAGIC = 0xE75B9E112F17417D
_TAIL_MAGIC = 0x4B4F050E5549ECD1
_FLAGS_SHA256 = 1 << 63
_MAX_U64 = (1 << 64) - 1
FLAGS = _FLAGS_SHA256.to_bytes(8, "little")


def file_size(chunks: int) -> int:
    """The bytes of an index of `chunks` chunks."""
    return _HEADER.size + _ENTRY.size * chunks + _TAIL.size


@dataclass(frozen=True, slots=True)
class Index:
    """The chunks of one file in order: chunk i ends at `ends[i]`, its SHA-256 is `ids[32 i:32 i + 32]`."""

    sizes: ChunkSizes
    ends: "array[int]" = field(default_factory=lambda: array("Q"))
    ids: bytes = b""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def size(self) -> int:
        """The file's bytes."""
        return self.ends[-1] if self.ends else 0

    def id(self, i: int) -> bytes:
        """The id of chunk `i`."""
        return self.ids[ID_SIZE * i : ID_SIZE * (i + 1)]

    def length(self, i: int) -> int:
        """The bytes of chunk `i`."""
        return self.ends[i] - (self.ends[i - 1] if i else 0)

    def id_list(self) -> list[bytes]:
        """The id of each chunk."""
        return split_ids(self.ids)

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """(id, length) of each chunk."""
        return zip(self.id_list(), map(sub, self.ends, chain((0,), self.ends)), strict=False)

    def head(self, count: int) -> "Index":
        """The first `count` chunks alone."""
        return Index(self.sizes, self.ends[:count], self.ids[: ID_SIZE * count])

    def part(self, first: int, last: int) -> "Index":
        """Chunks `first` up to but not `last`, as an index of their own."""
        start = self.ends[first - 1] if first else 0
        ends = array("Q", (end - start for end in self.ends[first:last]))
        return Index(self.sizes, ends, self.ids[ID_SIZE * first : ID_SIZE * last])

    def extended(self, lengths: "array[int]", ids: bytes) -> "Index":
        """These chunks followed by those of `lengths` (bytes each) and `ids` (concatenated)."""
        ends, end = self.ends[:], self.size
        for length in lengths:
            end += length
            ends.append(end)
        return Index(self.sizes, ends, self.ids + ids)


def split_ids(ids: bytes) -> list[bytes]:
    """Ids one by one, out of so many concatenated."""
    whole = len(ids) - len(ids) % _MANY_IDS.size
    split = list(chain.from_iterable(_MANY_IDS.iter_unpack(memoryview(ids)[:whole])))
    return split + [ids[at : at + ID_SIZE] for at in range(whole, len(ids), ID_SIZE)]


def encode(index: Index) -> bytes:
    """The index as a file's content."""
    sizes = index.sizes
    header = _HEADER.pack(
        48,
        _INDEX_MAGIC,
        _FLAGS_SHA256,
        sizes.min_size,
        sizes.avg_size,
        sizes.max_size,
        _MAX_U64,
        _TABLE_MAGIC,
    )
    ids = index.ids
    table = b"".join(
        _ENTRY.pack(end, ids[ID_SIZE * i : ID_SIZE * (i + 1)]) for i, end in enumerate(index.ends)
    )
    return header + table + _TAIL.pack(0, 0, 48, len(table) + 56, _TAIL_MAGIC)


def check_header(data: bytes) -> ChunkSizes:
    """The chunk sizes that an index begins with. Raises IndexDamaged for the beginning of anything else."""
    if len(data) < HEADER_SIZE:
        raise IndexDamaged(f"{len(data)} bytes are no chunk index")
    header = _HEADER.unpack_from(data)
    if header[:3] != (48, _INDEX_MAGIC, _FLAGS_SHA256) or header[6:] != (_MAX_U64, _TABLE_MAGIC):
        raise IndexDamaged("the header is not that of a chunk index with SHA-256 ids")
    return ChunkSizes(*header[3:6])


def check_tail(tail: bytes, size: int) -> None:
    """Raises IndexDamaged unless an index of `size` bytes ends with `tail` (TAIL_SIZE bytes)."""
    count, rest = divmod(size - file_size(0), _ENTRY.size)
    if count < 0 or rest:
        raise IndexDamaged(f"{size} bytes are no chunk index")
    if _TAIL.unpack(tail) != (0, 0, 48, 40 * count + 56, _TAIL_MAGIC):
        raise IndexDamaged("the tail of the chunk index is wrong")


def decode(data: bytes) -> Index:
    """The index that `data` encodes. Raises IndexDamaged for anything else than what `encode` gives."""
    if len(data) < file_size(0):
        raise IndexDamaged(f"{len(data)} bytes are no chunk index")
    sizes = check_header(data)
    table_end = len(data) - _TAIL.size
    check_tail(data[table_end:], len(data))
    # One pass over the table as u64 words: five a chunk, the first of them the end offset.
    words = array("Q", data[_HEADER.size : table_end])
    without_ends = words[:]
    del without_ends[::5]
    if sys.byteorder == "big":
        words.byteswap()
    ends = words[::5]
    lengths = list(map(sub, ends, chain((0,), ends)))
    for wrong in {min(lengths), max(lengths)} if lengths else ():
        if not 0 < wrong <= sizes.max_size:
            raise IndexDamaged(f"chunk {lengths.index(wrong)} of the index is {wrong} bytes long")
    return Index(sizes, ends, without_ends.tobytes())
