"""The pictures: nothing sticks out, nothing is lost, and their shapes are bounded."""

from collections.abc import Iterator

import pytest

from kvtool.http.drawings import CELLS, LEVELS, Box, Kin, chunk_map, curve, letters_of
from kvtool.store.anatomy import PackPart
from kvtool.store.kinship import Branch, Tree, Turn
from kvtool.store.pieces import Piece


def tree_of(*nodes: tuple[int | None, int, int, list[str]]) -> Kin:
    """Of (parent, tokens, bytes, names)."""
    below = [0] * len(nodes)
    for number, node in reversed(list(enumerate(nodes))):
        if node[0] is not None:
            below[node[0]] += below[number] + len(node[3])
    branches = [
        Branch(parent, tokens, below[number], size, [Turn(name, 1, 1) for name in names])
        for number, (parent, tokens, size, names) in enumerate(nodes)
    ]
    return Kin(Tree(branches, [], []))


def all_boxes(box: Box) -> Iterator[Box]:
    yield box
    for child in box.children:
        yield from all_boxes(child)


def test_a_curve_spans_the_picture() -> None:
    found = curve([10.0, 20.0, 30.0], [0, 50, 100], 100)
    assert found.line == "0.00,100.00 50.00,50.00 100.00,0.00"
    assert found.area == "0.00,100 0.00,100.00 50.00,50.00 100.00,0.00 100.00,100"
    assert curve([10.0], [5], 10).line == "0.00,50.00 100.00,50.00"
    assert curve([10.0, 10.0], [0, 0], 0).line == "0.00,100.00 0.00,100.00"


def test_boxes_lie_within_those_above_and_narrow_ones_are_counted() -> None:
    many = [(1, 200 + n, 3, [f"n{n}"]) for n in range(200)]
    kin = tree_of((None, 0, 1000, []), (0, 100, 700, ["a"]), *many, (0, 5, 300, ["z"]))
    top = kin.picture(0)
    assert [(child.x, child.width, child.of) for child in top.children] == [(0, 70, "a"), (70, 30, "z")]
    inner = top.children[0].children
    assert [(child.more, child.bytes, child.node) for child in inner] == [(200, 600, None)]
    for box in all_boxes(top):
        for child in box.children:
            assert child.x >= box.x
            assert child.x + child.width <= box.x + box.width + 1e-9
            assert child.level == box.level + 1
    assert top.height == 3


def test_the_picture_has_a_bounded_depth_and_one_walks_on_from_there() -> None:
    chain = [(number - 1 if number else None, number, 100 - number, [f"t{number}"]) for number in range(40)]
    kin = tree_of(*chain)
    assert kin.picture(0).height == LEVELS + 1
    assert kin.find("t30", 12) == 12
    assert kin.find("t30", 99) == 30
    assert kin.find("none", 0) is None
    assert kin.way(3) == [0, 1, 2, 3]


def test_snapshots_that_free_nothing_are_drawn_by_their_number() -> None:
    kin = tree_of((None, 0, 0, []), (0, 5, 0, ["a"]), (0, 6, 0, ["b"]))
    assert [child.width for child in kin.picture(0).children] == [50, 50]
    assert kin.find("b", 0) == 0
    assert kin.box(0).of == "a"


def piece(number: int, length: int, *, shared: bool, pack: str | None = "p") -> Piece:
    return Piece(id="", offset=number * length, length=length, pack=pack, pack_offset=0, shared=shared)


@pytest.mark.parametrize("total", [1, CELLS, CELLS + 1, 5000])
def test_a_map_has_a_bounded_number_of_cells_and_loses_nothing(total: int) -> None:
    pieces = [piece(number, 7, shared=number % 3 > 0) for number in range(total)]
    cells = chunk_map(pieces, 7 * total, total, {"p": "A"})
    assert len(cells) == min(total, CELLS)
    assert sum(cell.bytes for cell in cells) == 7 * total
    assert sum(cell.chunks for cell in cells) == total
    assert sum(cell.unique for cell in cells) == 7 * -(-total // 3)
    assert {cell.letter for cell in cells} == {"A"}


def test_a_cell_is_filled_as_far_as_it_is_unique() -> None:
    def level(unique: int, of: int) -> int:
        pieces = [piece(number, 1, shared=number % of >= unique) for number in range(of * CELLS)]
        return {cell.level for cell in chunk_map(pieces, of * CELLS, of * CELLS, {})}.pop()

    assert [level(unique, 100) for unique in (0, 1, 50, 99, 100)] == [0, 1, 2, 3, 4]


def test_packs_have_letters_by_age_and_the_small_ones_a_star() -> None:
    parts = [PackPart(f"p{number}", "", 1, 100 - number) for number in range(12)]
    letters = letters_of(parts)
    assert letters == {f"p{number}": "ABCDEFGH"[number] for number in range(8)}
    pieces = [piece(0, 1, shared=True, pack="p1"), piece(1, 1, shared=True, pack="p9")]
    pieces.append(piece(2, 1, shared=True, pack=None))
    assert [cell.letter for cell in chunk_map(pieces, 3, 3, letters)] == ["B", "*", "?"]
    assert chunk_map([], 0, 0, {}) == []
