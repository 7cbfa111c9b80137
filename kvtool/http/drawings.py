"""Pictures as numbers, for templates to draw: bytes over time, the prefix tree, and the chunks of a snapshot.

However much there is, each has a bounded number of shapes. Lengths are per cent of the picture's.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvtool.store.kinship import Branch, Tree
from kvtool.store.pieces import Piece

LEVELS = 6  # of the tree, below the node at which it is looked at
_LEAST = 1.5  # per cent: what is narrower is counted, not drawn
CELLS = 288
PACKS = 8  # that have a letter of their own
_LEVELS = 4  # of how much of a cell is unique


@dataclass(frozen=True, slots=True)
class Curve:
    """A line from the left to the right, as SVG's `points`, and the area below it."""

    line: str
    area: str


def curve(times: Sequence[float], values: Sequence[float], top: float) -> Curve:
    """`values` (0 to `top`) over `times`, which rise."""
    start, span = times[0], (times[-1] - times[0]) or 1.0
    points = [
        (100 * (at - start) / span, 100 - 100 * value / (top or 1.0))
        for at, value in zip(times, values, strict=True)
    ]
    if len(points) == 1:
        points.append((100.0, points[0][1]))
    line = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return Curve(line, f"{points[0][0]:.2f},100 {line} {points[-1][0]:.2f},100")


@dataclass(slots=True)
class Box:
    """A node of the tree, or with `node` None `more` of them that are too narrow to draw.

    `of` is the name of a snapshot at or below the node: with `tokens` it tells which node this is, also when
    the tree has grown meanwhile. `snapshots` end here, `below` is how many go on.
    """

    x: float
    width: float
    level: int
    tokens: int
    bytes: int
    node: int | None = None
    of: str = ""
    names: list[str] = field(default_factory=list)
    below: int = 0
    more: int = 0
    children: list["Box"] = field(default_factory=list)

    @property
    def snapshots(self) -> int:
        """How many end here or go on."""
        return len(self.names) + self.below

    @property
    def height(self) -> int:
        """How many levels are drawn."""
        return 1 + max((child.height for child in self.children), default=0)


class Kin:
    """The prefix tree, to walk in."""

    def __init__(self, tree: Tree) -> None:
        self.nodes = tree.nodes
        self._children: list[list[int]] = [[] for _ in tree.nodes]
        for number, node in enumerate(tree.nodes):
            if node.parent is not None:
                self._children[node.parent].append(number)
        # The first snapshot at each node or below it; a leaf always has one.
        self._first = [node.snapshots[0].name if node.snapshots else "" for node in tree.nodes]
        for number in range(len(tree.nodes) - 1, 0, -1):
            parent = tree.nodes[number].parent
            if parent is not None and not tree.nodes[parent].snapshots:
                self._first[parent] = self._first[number]

    def find(self, of: str, tokens: int) -> int | None:
        """The node at which the first `tokens` tokens of a snapshot end; None without that snapshot."""
        for number, node in enumerate(self.nodes):
            if any(turn.name == of for turn in node.snapshots):
                return next((each for each in self.way(number) if self.nodes[each].tokens >= tokens), number)
        return None

    def way(self, number: int) -> list[int]:
        """The nodes from the top to this one."""
        found: list[int] = []
        at: int | None = number
        while at is not None:
            found.append(at)
            at = self.nodes[at].parent
        return found[::-1]

    def box(self, number: int) -> Box:
        """A node across the whole width, with nothing below it."""
        return self._box(number, 0.0, 100.0, 0)

    def picture(self, top: int) -> Box:
        """The node `top` and some levels below it, as wide as the bytes that deleting each frees."""
        box = self.box(top)
        row = [box]
        for _ in range(LEVELS):
            for each in row:
                self._open(each)
            row = [child for each in row for child in each.children if child.node is not None]
        return box

    def _open(self, box: Box) -> None:
        if box.node is None:
            return
        below = self._children[box.node]
        weights = [self.nodes[number].freed_bytes for number in below]
        whole = self.nodes[box.node].freed_bytes
        if not sum(weights):
            weights = [1] * len(below)
            whole = len(below)
        x, narrow = box.x, []
        for number, weight in zip(below, weights, strict=True):
            width = box.width * weight / whole
            if width < _LEAST:
                narrow.append((number, width))
                continue
            box.children.append(self._box(number, x, width, box.level + 1))
            x += width
        if narrow:
            width = max(sum(each for _, each in narrow), _LEAST)
            rest = Box(x, min(width, max(box.x + box.width - x, 0.0)), box.level + 1, 0, 0)
            rest.more = sum(self._snapshots(self.nodes[number]) for number, _ in narrow)
            rest.bytes = sum(self.nodes[number].freed_bytes for number, _ in narrow)
            box.children.append(rest)

    def _box(self, number: int, x: float, width: float, level: int) -> Box:
        node = self.nodes[number]
        names = [turn.name for turn in node.snapshots]
        return Box(
            x, width, level, node.tokens, node.freed_bytes, number, self._first[number], names, node.below
        )

    @staticmethod
    def _snapshots(node: Branch) -> int:
        return len(node.snapshots) + node.below


@dataclass(slots=True)
class Cell:
    """A part of a snapshot: where it begins, bytes, chunks, unique bytes, and the letter of the pack that has
    most of it; "?" for what no pack has, "*" for packs without a letter.
    """

    start: int
    bytes: int = 0
    chunks: int = 0
    unique: int = 0
    letter: str = "?"

    @property
    def level(self) -> int:
        """How much of it is unique: 0 nothing, 4 all."""
        if self.unique in {0, self.bytes}:
            return _LEVELS if self.unique else 0
        return min(max(round(_LEVELS * self.unique / self.bytes), 1), _LEVELS - 1)


def chunk_map(pieces: Iterable[Piece], size: int, total: int, letters: dict[str, str]) -> list[Cell]:
    """The chunks of a snapshot in their order, in at most CELLS cells; `letters` of packs by their names."""
    cells: list[Cell] = []
    packs: Counter[str] = Counter()
    for number, piece in enumerate(pieces):
        at = number if total <= CELLS else piece.offset * CELLS // max(size, 1)
        if at >= len(cells) or not cells:
            if cells:
                cells[-1].letter = packs.most_common(1)[0][0]
            cells.append(Cell(piece.offset))
            packs.clear()
        cell = cells[-1]
        cell.bytes += piece.length
        cell.chunks += 1
        cell.unique += 0 if piece.shared else piece.length
        packs["?" if piece.pack is None else letters.get(piece.pack, "*")] += piece.length
    if cells:
        cells[-1].letter = packs.most_common(1)[0][0]
    return cells


def letters_of(parts: Sequence[Any]) -> dict[str, str]:
    """A letter for each of the packs that hold most of a snapshot, in their order (`anatomy.PackPart`)."""
    largest = sorted(parts, key=lambda part: part.bytes, reverse=True)[:PACKS]
    kept = [part.pack for part in parts if part in largest]
    return {pack: chr(ord("A") + number) for number, pack in enumerate(kept)}
