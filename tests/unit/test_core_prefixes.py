"""The radix tree of token lists and what deleting its nodes frees, against the plain definitions."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.core.prefixes import Node, bytes_freed, radix_tree
from kvtool.core.usage import bytes_by_range, usage

# Few tokens, so that many lists begin alike; bytes above 127 and several of a token among them.
TOKENS = st.lists(st.sampled_from([0, 1, 256, -1]), max_size=6)
CHUNKS = st.lists(st.integers(0, 9), max_size=8)


def tree_of(*lists: list[int]) -> tuple[list[int], list[Node]]:
    return radix_tree([array("i", tokens) for tokens in lists])


def index_of(chunks: list[int]) -> Index:
    """An index of chunks by number; chunk n has n + 1 bytes."""
    return Index(ChunkSizes()).extended(
        array("Q", (n + 1 for n in chunks)), b"".join(bytes([n]) * 32 for n in chunks)
    )


def test_turns_and_branches_of_a_conversation() -> None:
    order, nodes = tree_of([1, 2, 3, 9, 9], [1, 2], [7], [1, 2, 3, 4], [1, 2])
    assert order == [1, 4, 3, 0, 2]
    assert [(node.parent, node.tokens, node.first, node.last, node.ending) for node in nodes] == [
        (-1, 0, 0, 5, 0),
        (0, 2, 0, 4, 2),
        (1, 3, 2, 4, 0),
        (2, 4, 2, 3, 1),
        (2, 5, 3, 4, 1),
        (0, 1, 4, 5, 1),
    ]


def test_no_lists_and_empty_ones() -> None:
    assert tree_of() == ([], [Node(-1, 0, 0, 0, 0)])
    assert tree_of([], []) == ([0, 1], [Node(-1, 0, 0, 2, 2)])


@given(st.lists(TOKENS, max_size=9))
def test_the_nodes_are_where_lists_end_or_part(lists: list[list[int]]) -> None:
    order, nodes = tree_of(*lists)
    assert sorted(order) == list(range(len(lists)))
    beginnings = {tuple(tokens[:n]) for tokens in lists for n in range(len(tokens) + 1)} | {()}
    wanted = {}
    for begin in beginnings:
        below = {number for number, tokens in enumerate(lists) if tuple(tokens[: len(begin)]) == begin}
        ending = {number for number in below if len(lists[number]) == len(begin)}
        nexts = {lists[number][len(begin)] for number in below - ending}
        if ending or len(nexts) > 1 or not begin:
            wanted[begin] = (below, ending)
    found = {}
    for number, node in enumerate(nodes):
        below = order[node.first : node.last]
        begin = tuple(lists[below[0]][: node.tokens]) if below else ()
        found[begin] = (set(below), set(order[node.first : node.first + node.ending]))
        assert node.parent < number
        if number:
            assert nodes[node.parent].tokens < node.tokens
            assert nodes[node.parent].first <= node.first < node.last <= nodes[node.parent].last
    assert found == wanted


@given(st.lists(st.tuples(TOKENS, CHUNKS), max_size=8), st.lists(CHUNKS, max_size=2))
def test_a_node_frees_what_nothing_else_needs(
    snapshots: list[tuple[list[int], list[int]]], others: list[list[int]]
) -> None:
    order, nodes = tree_of(*(tokens for tokens, _ in snapshots))
    chunks = [snapshots[number][1] for number in order] + others
    freed = bytes_freed(nodes, bytes_by_range([index_of(each) for each in chunks]))
    for node, size in zip(nodes, freed, strict=True):
        inside = {n for each in chunks[node.first : node.last] for n in each}
        outside = {n for each in chunks[: node.first] + chunks[node.last :] for n in each}
        assert size == sum(n + 1 for n in inside - outside)


@given(st.lists(CHUNKS, max_size=6))
def test_unique_is_what_deleting_one_frees_and_shared_the_rest(snapshots: list[list[int]]) -> None:
    found = usage({number: index_of(chunks) for number, chunks in enumerate(snapshots)})
    for number, chunks in enumerate(snapshots):
        others = {n for other, each in enumerate(snapshots) if other != number for n in each}
        assert found[number].unique == sum(n + 1 for n in set(chunks) - others)
        assert found[number].shared == sum(n + 1 for n in set(chunks) & others)
