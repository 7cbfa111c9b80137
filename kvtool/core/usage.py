"""What a snapshot costs: the bytes that deleting it frees, and those that others need too."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from kvtool.core.index import Index

Name = TypeVar("Name")


class Usage(NamedTuple):
    """Bytes of one snapshot's distinct chunks: those only it needs, those that others need too."""

    unique: int
    shared: int


class Count(NamedTuple, Generic[Name]):
    """What `count` finds: the usage of every snapshot, and the bytes of all distinct chunks."""

    of: dict[Name, Usage]
    live: int


def count(snapshots: Mapping[Name, Index]) -> Count[Name]:
    """What every snapshot costs among all of them, and what all cost together."""
    # In whole sets: chunk by chunk a million references would take seconds.
    chunks = {name: dict(index.chunks()) for name, index in snapshots.items()}
    totals = {name: sum(lengths.values()) for name, lengths in chunks.items()}
    seen: set[bytes] = set()
    again: set[bytes] = set()
    live = 0
    for name, lengths in chunks.items():
        known = seen.intersection(lengths)
        live += totals[name] - sum(map(lengths.__getitem__, known))
        again |= known
        seen.update(lengths)
    of = {}
    for name, lengths in chunks.items():
        shared = sum(map(lengths.__getitem__, again.intersection(lengths)))
        of[name] = Usage(totals[name] - shared, shared)
    return Count(of, live)


def usage(snapshots: Mapping[Name, Index]) -> dict[Name, Usage]:
    """The usage of every snapshot among all of them."""
    return count(snapshots).of


def freed(snapshots: Mapping[Name, Index], deleted: Collection[Name]) -> int:
    """What deleting some of the snapshots together frees: the chunks that no other needs."""
    lengths = dict(chunk for name in deleted for chunk in snapshots[name].chunks())
    kept = {chunk for name, index in snapshots.items() if name not in deleted for chunk in index.id_list()}
    return sum(length for chunk, length in lengths.items() if chunk not in kept)


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
