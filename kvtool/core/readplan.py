"""How a file's chunks are read: in segments of neighbouring whole chunks, each segment in few reads."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvtool.core.index import Index

SEGMENT_SIZE = 4 << 20


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each chunk of an index lies: pack key, offset in the pack, and XXH3-64, chunk by chunk."""

    packs: "array[int]"
    offsets: "array[int]"
    checksums: "array[int]"


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes that lie together in one pack: `length` of them from `offset` go to `target` in the segment."""

    pack: int
    offset: int
    length: int
    target: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Chunks `first` up to but not `last`, which are the file's bytes from `start` on, `length` of them."""

    number: int
    first: int
    last: int
    start: int
    length: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The segments of one file in order, found by bisection whatever the file's size."""

    index: Index
    placement: Placement
    bounds: "array[int]" = field(default_factory=lambda: array("I"))
    starts: "array[int]" = field(default_factory=lambda: array("Q"))

    @classmethod
    def build(cls, index: Index, placement: Placement, segment_size: int = SEGMENT_SIZE) -> "ReadPlan":
        """Groups the chunks of `index` into segments of at most `segment_size` bytes (one chunk at least)."""
        bounds, starts, start = array("I"), array("Q"), 0
        ends = index.ends
        for i, end in enumerate(ends):
            if not bounds or end - start > segment_size:
                start = ends[i - 1] if i else 0
                bounds.append(i)
                starts.append(start)
        return cls(index, placement, bounds, starts)

    def __len__(self) -> int:
        return len(self.bounds)

    def find(self, offset: int) -> int:
        """The number of the segment that holds the byte at `offset` (which is below the file's size)."""
        return bisect_right(self.starts, offset) - 1

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """Where the chunks that have the file's bytes `start` to `end` begin and end; not for no bytes."""
        ends = self.index.ends
        first = bisect_right(ends, start)
        return ends[first - 1] if first else 0, ends[bisect_left(ends, end, first)]

    def segment(self, number: int) -> Segment:
        """Segment `number`, with chunks that are neighbours in a pack as one run."""
        first = self.bounds[number]
        last = self.bounds[number + 1] if number + 1 < len(self.bounds) else len(self.index)
        start = self.starts[number]
        runs = tuple(_runs(self.index.ends, self.placement, first, last, start))
        return Segment(number, first, last, start, self.index.ends[last - 1] - start, runs)


def _runs(ends: Sequence[int], placement: Placement, first: int, last: int, start: int) -> list[Run]:
    runs: list[Run] = []
    packs, offsets = placement.packs, placement.offsets
    pack, offset, length, target = packs[first], offsets[first], 0, 0
    position = start
    for i in range(first, last):
        if packs[i] != pack or offsets[i] != offset + length:
            runs.append(Run(pack, offset, length, target))
            pack, offset, length, target = packs[i], offsets[i], 0, position - start
        length += ends[i] - position
        position = ends[i]
    runs.append(Run(pack, offset, length, target))
    return runs
