"""Content-defined chunking: where a stream of bytes is cut.

FastCDC (Xia et al., "FastCDC: a Fast and Efficient Content-Defined Chunking Approach for Data
Deduplication", USENIX ATC 2016) as the `fastcdc` package implements it. The cut points are part of the
store's format: another chunker would find none of the stored chunks again.
"""

from dataclasses import dataclass

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The chunker's parameters in bytes; only the last chunk of a stream may be shorter than `min_size`."""

    min_size: int = 16 << 10
    avg_size: int = 64 << 10
    max_size: int = 256 << 10


def cut(data: Buffer, sizes: ChunkSizes, *, final: bool) -> list[int]:
    """The lengths of the chunks at the front of `data`, which starts at a chunk boundary.

    With `final` they cover `data`. Without it the tail whose cut depends on bytes still to come is left
    out: the caller passes it again in front of them. The tail is shorter than `max_size`.
    """
    if not len(data):
        return []
    from fastcdc import fastcdc  # takes as long to import as all else that a command needs

    lengths = [chunk.length for chunk in fastcdc(data, sizes.min_size, sizes.avg_size, sizes.max_size)]
    # A chunk that ends where the data ends was cut there by its content, or only for want of more bytes.
    if not final and lengths[-1] < sizes.max_size:
        lengths.pop()
    return lengths
