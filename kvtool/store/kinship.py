"""Which snapshots are turns and branches of which: the tree of what their token lists have in common."""

from dataclasses import dataclass

from kvtool.core import prefixes
from kvtool.core.usage import bytes_by_range
from kvtool.store import stubs
from kvtool.store.heads import read_tokens
from kvtool.store.snapshots import DamagedStub, read_indexes
from kvtool.store.store import Store


@dataclass(frozen=True, slots=True)
class Turn:
    """A snapshot at its node: its bytes, and those that no snapshot on the way from the top has."""

    name: str
    size: int
    new_bytes: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A node: `tokens` that its snapshots and all below it begin with.

    `parent` is the number of the node above in the list, null at the top; `snapshots` are those that end
    here, `below` is the number of those that go on, and `freed_bytes` what deleting all of them frees.
    """

    parent: int | None
    tokens: int
    below: int
    freed_bytes: int
    snapshots: list[Turn]


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes, each before those below it; the names of files without a token list; what is no snapshot.

    The first node is the top, of no tokens.
    """

    nodes: list[Branch]
    without_tokens: list[str]
    damaged: list[DamagedStub]


def prefix_tree(store: Store) -> Tree:
    """The tree of all snapshots. Of each the chunks with its token list are read. Raises OSError."""
    found = read_indexes(store.layout)
    heads = {path: read_tokens(store, index) for path, index in found.of.items()}
    known = {path: head.tokens for path, head in heads.items() if head is not None}
    order, nodes = prefixes.radix_tree(list(known.values()))
    paths = [list(known)[number] for number in order]
    others = [path for path in found.of if path not in known]
    indexes = [found.of[path] for path in paths + others]
    freed = prefixes.bytes_freed(nodes, bytes_by_range(indexes))
    inherited: set[bytes] = set()  # the chunks of the snapshots on the way from the top to a node
    added: list[tuple[int, set[bytes]]] = []  # what each node on the way has put there
    branches = []
    for number, node in enumerate(nodes):
        while added and added[-1][0] != node.parent:
            inherited -= added.pop()[1]
        turns = []
        own: set[bytes] = set()
        for position in range(node.first, node.first + node.ending):
            chunks = dict(indexes[position].chunks())
            new = set(chunks).difference(inherited)
            name = stubs.name_of(store.layout, paths[position])
            turns.append(Turn(name, indexes[position].size, sum(map(chunks.__getitem__, new))))
            own |= new
        inherited |= own
        added.append((number, own))
        parent = node.parent if number else None
        below = node.last - node.first - node.ending
        branches.append(Branch(parent, node.tokens, below, freed[number], turns))
    return Tree(branches, [stubs.name_of(store.layout, path) for path in others], found.damaged)
