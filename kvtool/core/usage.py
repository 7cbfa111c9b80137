"""What a snapshot costs: the bytes that deleting it frees, and those that others need too."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from kvtool.core.index import ID_SIZE, Index, split_ids

Name = TypeVar("Name")
_MANY = 100_000  # chunk references; with fewer the import of numpy takes longer than it gains


class Usage(NamedTuple):
    """Bytes of one snapshot's distinct chunks: those only it needs, those that others need too."""

    unique: int
    shared: int


@dataclass(frozen=True, eq=False)
class Count(Generic[Name]):
    """What `count` finds: the usage of every snapshot, and the bytes of all distinct chunks."""

    of: dict[Name, Usage]
    live: int
    count_others: Callable[[], Mapping[bytes, int]]

    @cached_property
    def others(self) -> Mapping[bytes, int]:
        """The ids of the chunks that several snapshots have: how many do beyond the first."""
        return self.count_others()


def count(snapshots: Mapping[Name, Index]) -> Count[Name]:
    """What every snapshot costs among all of them, and what all cost together."""
    many = sum(map(len, snapshots.values())) > _MANY
    return (_count_many(snapshots) if many else None) or _count_few(snapshots)


def _count_few(snapshots: Mapping[Name, Index]) -> Count[Name]:
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
    of = {name: _split(lengths, others) for name, lengths in chunks.items()}
    return Count(of, live, lambda: others)


def _count_many(snapshots: Mapping[Name, Index]) -> Count[Name] | None:
    """The same, twice as fast or more; None if two ids begin with the same 8 bytes, as SHA-256's do not."""
    import numpy as np

    indexes = list(snapshots.values())
    counts = np.fromiter(map(len, indexes), np.int64, len(indexes))
    owners = np.repeat(np.arange(len(indexes)), counts)
    ends = np.frombuffer(b"".join(index.ends for index in indexes), np.uint64).astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    begins = (np.cumsum(counts) - counts)[counts > 0]
    lengths[begins] = ends[begins]
    ids = np.frombuffer(b"".join(index.ids for index in indexes), np.uint64).reshape(-1, ID_SIZE // 8)

    order = np.argsort(ids[:, 0], kind="stable")  # of one id those of one snapshot stay together
    begin, owners, lengths = ids[order, 0], owners[order], lengths[order]
    is_new = np.append(True, begin[1:] != begin[:-1])
    again = np.flatnonzero(~is_new)
    if (ids[order[again]] != ids[order[again - 1]]).any():
        return None
    counted = is_new | np.append(True, owners[1:] != owners[:-1])  # once in each snapshot
    number = np.cumsum(is_new) - 1
    holders = np.bincount(number[counted])
    alone = counted & (holders[number] == 1)

    def by_owner(which: "np.typing.NDArray[np.bool_]") -> "list[int]":
        found = np.bincount(owners[which], lengths[which], len(indexes))  # floats: exact below 2^53
        return [int(each) for each in found]

    unique, whole = by_owner(alone), by_owner(counted)
    of = {name: Usage(u, w - u) for name, u, w in zip(snapshots, unique, whole, strict=True)}
    several, first = holders > 1, order[is_new]

    def others() -> dict[bytes, int]:
        found = split_ids(ids[first[several]].tobytes())
        return dict(zip(found, (holders[several] - 1).tolist(), strict=True))

    return Count(of, int(lengths[is_new].sum()), others)


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
