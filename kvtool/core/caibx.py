"""A `.caibx` index that another program wrote: which digest its ids are, and what kvtool cannot take in.

casync and desync set feature flags that kvtool's own stubs never have (`core.index`). Of a blob's index only
one of them matters: whether ids are SHA-512/256, the default of both programs, or SHA-256. Those below bit 60
say what the entries of an archive hold, so they are set in the index of a directory tree alone.

Format: casync's `caformat.h` (the CA_FORMAT_* feature flags).
"""

import struct
from typing import Literal

from kvtool.core import index as chunk_index
from kvtool.core.index import Index
from kvtool.errors import IndexDamaged, UsageError

Digest = Literal["sha256", "sha512_256"]

# What casync takes at most: more would have a damaged or hostile index claim all memory.
MAX_CHUNK = 128 << 20
_FLAGS = slice(16, 24)
_SHA512_256 = 1 << 61
_ARCHIVE = (1 << 60) - 1


def check_header(head: bytes) -> Digest:
    """Which digest the ids are of an index that begins with `head`.

    Raises IndexDamaged for the beginning of anything else, UsageError for an index that is not taken in.
    """
    sizes = chunk_index.check_header(_as_own(head))
    (flags,) = struct.unpack("<Q", head[_FLAGS])
    if flags & _ARCHIVE:
        raise UsageError(
            "is the index of a directory tree, not of a file",
            hint="extract it with casync, then store its files",
        )
    if sizes.max_size > MAX_CHUNK:
        raise IndexDamaged(
            f"chunks of up to {sizes.max_size} bytes are more than the {MAX_CHUNK} that are taken"
        )
    return "sha512_256" if flags & _SHA512_256 else "sha256"


def decode(data: bytes) -> Index:
    """The index that `data` encodes, whatever its flags. Raises IndexDamaged."""
    return chunk_index.decode(_as_own(data))


def _as_own(data: bytes) -> bytes:
    """The same with the flags of a stub, so that one place knows the rest of the format."""
    if len(data) < chunk_index.HEADER_SIZE:
        return data
    return data[: _FLAGS.start] + chunk_index.FLAGS + data[_FLAGS.stop :]
