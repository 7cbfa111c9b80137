"""What a snapshot costs: the bytes that deleting it frees, those that others need too, and whether it is
worth deleting.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from kvtool.core.index import Index

Name = TypeVar("Name")
_HOUR = 3600.0


class Usage(NamedTuple):
    """Bytes of one snapshot's distinct chunks: those only it needs, those that others need too."""

    unique: int
    shared: int


def usage(snapshots: Mapping[Name, Index]) -> dict[Name, Usage]:
    """The usage of every snapshot among all of them."""
    # In whole sets: chunk by chunk a million references would take seconds.
    chunks = {name: dict(index.chunks()) for name, index in snapshots.items()}
    once: set[bytes] = set()
    again: set[bytes] = set()
    for lengths in chunks.values():
        again |= once.intersection(lengths)
        once.update(lengths)
    result = {}
    for name, lengths in chunks.items():
        shared = sum(map(lengths.__getitem__, again.intersection(lengths)))
        result[name] = Usage(sum(lengths.values()) - shared, shared)
    return result


def score(size: int, unique: int, uses: int, idle: float) -> float:
    """How good a snapshot is to delete, the higher the better: unique / size * hours idle / (1 + uses).

    What it frees (`unique` bytes) beside what it would cost to compute again, which grows with its `size`;
    `idle` is the seconds since it was last used or written. 0 for what would free nothing.
    """
    return unique / size * max(idle, 0.0) / _HOUR / (1 + uses) if size else 0.0


def bytes_by_range(snapshots: Sequence[Index]) -> Counter[tuple[int, int]]:
    """The bytes of all distinct chunks, by the numbers of the first and the last snapshot with each.

    What deleting the snapshots `a` to `b` frees is the sum over the ranges within.
    """
    first: dict[bytes, int] = {}
    last: dict[bytes, int] = {}
    lengths: dict[bytes, int] = {}
    for number, index in enumerate(snapshots):
        chunks = dict(index.chunks())
        first |= dict.fromkeys(set(chunks).difference(first), number)
        last |= dict.fromkeys(chunks, number)
        lengths |= chunks
    ranges: Counter[tuple[int, int]] = Counter()
    for chunk_id, start in first.items():
        ranges[start, last[chunk_id]] += lengths[chunk_id]
    return ranges
