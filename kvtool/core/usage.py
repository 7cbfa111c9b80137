"""What a snapshot costs: the bytes that deleting it frees, and those that others need too."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from kvtool.core.index import Index

Name = TypeVar("Name")


class Usage(NamedTuple):
    """Bytes of one snapshot's distinct chunks: those only it needs, those that others need too."""

    unique: int
    shared: int


class Count(NamedTuple, Generic[Name]):
    """What `count` finds: the usage of every snapshot, and the bytes of all distinct chunks.

    `others` has the ids of the chunks that several snapshots have: how many do beyond the first.
    """

    of: dict[Name, Usage]
    live: int
    others: Counter[bytes]


def count(snapshots: Mapping[Name, Index]) -> Count[Name]:
    """What every snapshot costs among all of them, and what all cost together."""
    # In whole sets: chunk by chunk a million references would take seconds.
    chunks = {name: dict(index.chunks()) for name, index in snapshots.items()}
    seen: set[bytes] = set()
    others: Counter[bytes] = Counter()
    live = 0
    for lengths in chunks.values():
        known = seen.intersection(lengths)
        live += sum(lengths.values()) - sum(map(lengths.__getitem__, known))
        others.update(known)
        seen.update(lengths)
    return Count({name: _split(lengths, others) for name, lengths in chunks.items()}, live, others)


def usage_among(index: Index, others: Mapping[bytes, int]) -> Usage:
    """The usage of one snapshot, by what a count of all has found (`Count.others`)."""
    return _split(dict(index.chunks()), others)


def _split(lengths: Mapping[bytes, int], others: Mapping[bytes, int]) -> Usage:
    shared = sum(map(lengths.__getitem__, filter(others.__contains__, lengths)))
    return Usage(sum(lengths.values()) - shared, shared)


def usage(snapshots: Mapping[Name, Index]) -> dict[Name, Usage]:
    """The usage of every snapshot among all of them."""
    return count(snapshots).of


def freed(deleted: Iterable[Index], others: Mapping[bytes, int]) -> int:
    """What deleting some of the snapshots together frees: the chunks that only they have."""
    lengths: dict[bytes, int] = {}
    times: Counter[bytes] = Counter()
    for index in deleted:
        chunks = dict(index.chunks())
        lengths |= chunks
        times.update(chunks.keys())
    return sum(length for chunk, length in lengths.items() if times[chunk] > others.get(chunk, 0))


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
