"""Which token lists begin alike: a radix tree. A node is a beginning at which lists end or part.

The lists are sorted, so that those with a common beginning lie side by side; a node is a range of them.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WORD = array("i").itemsize


@dataclass(slots=True)
class Node:
    """A beginning of `tokens` tokens, shared by the lists from `first` up to but not `last` of the order.

    The first `ending` of them are no longer than that. `parent` is the number of the node above: -1 for none.
    """

    parent: int
    tokens: int
    first: int
    last: int = 0
    ending: int = 0


def radix_tree(lists: Sequence["array[int]"]) -> tuple[list[int], list[Node]]:
    """The order of the lists, as their numbers, and the nodes, each before those below it.

    Node 0 is the empty beginning.
    """
    keys = [tokens.tobytes() for tokens in lists]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    nodes = [Node(-1, 0, 0)]
    stack = [0]
    before = b""
    for position, number in enumerate(order):
        key = keys[number]
        common = _common(before, key)
        below = None
        while nodes[stack[-1]].tokens > common:
            below = stack.pop()
            nodes[below].last = position
        if below is not None and nodes[stack[-1]].tokens < common:  # they part between two nodes
            nodes.append(Node(stack[-1], common, nodes[below].first))
            nodes[below].parent = len(nodes) - 1
            stack.append(len(nodes) - 1)
        if nodes[stack[-1]].tokens < len(key) // _WORD:
            nodes.append(Node(stack[-1], len(key) // _WORD, position))
            stack.append(len(nodes) - 1)
        nodes[stack[-1]].ending += 1
        before = key
    for number in stack:
        nodes[number].last = len(order)
    return order, _sorted(nodes)


def bytes_freed(nodes: Sequence[Node], ranges: Mapping[tuple[int, int], int]) -> list[int]:
    """For each node the bytes that deleting all its snapshots frees.

    `ranges` is what `usage.bytes_by_range` says of the snapshots in the tree's order, and of others after.
    """
    home = {}  # the lowest node with the snapshot at each place
    for number, node in enumerate(nodes):
        home.update(dict.fromkeys(range(node.first, node.last), number))
    freed = [0] * len(nodes)
    for (first, last), size in ranges.items():
        number = home.get(first, -1)
        while number >= 0 and nodes[number].last <= last:
            number = nodes[number].parent
        if number >= 0:
            freed[number] += size
    for number in range(len(nodes) - 1, 0, -1):
        freed[nodes[number].parent] += freed[number]
    return freed


def _sorted(nodes: list[Node]) -> list[Node]:
    """The nodes in the order of the lists, those above first."""
    order = sorted(range(len(nodes)), key=lambda number: (nodes[number].first, nodes[number].tokens))
    places = {number: place for place, number in enumerate(order)}
    for node in nodes:
        node.parent = places.get(node.parent, -1)
    return [nodes[number] for number in order]


def _common(one: bytes, other: bytes) -> int:
    """How many tokens two lists have in common at their beginning, by bisection."""
    low, high = 0, min(len(one), len(other)) // _WORD
    while low < high:
        middle = (low + high + 1) // 2
        part = slice(low * _WORD, middle * _WORD)
        if one[part] == other[part]:
            low = middle
        else:
            high = middle - 1
    return low
