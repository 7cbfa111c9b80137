"""The token lists that snapshots of llama.cpp begin with, read from the packs."""

from collections.abc import Mapping

from kvtool.core import tokens
from kvtool.core.index import Index
from kvtool.core.tokens import TokenList
from kvtool.errors import Damage
from kvtool.store import fetch
from kvtool.store.layout import Layout
from kvtool.store.store import Store


def read_tokens(store: Store, index: Index) -> TokenList | None:
    """The token list that a snapshot begins with; None for any other file, and where that is damaged."""
    try:
        size = tokens.header_size(fetch.read_head(store, index, tokens.PREFIX_SIZE))
        return tokens.decode(fetch.read_head(store, index, size))
    except (tokens.NoTokens, Damage):
        return None


def token_counts(
    layout: Layout, snapshots: Mapping[bytes, Index], known: dict[bytes, int]
) -> dict[bytes, int]:
    """How many tokens each snapshot has, 0 for what is no file of llama.cpp. Raises NoStore, OSError.

    `known` keeps the counts by the snapshots' first chunks, where they stand, for the next time.
    """
    store = Store.open(layout, writable=False)
    try:
        for index in snapshots.values():
            if len(index) and index.id(0) not in known:
                head = read_tokens(store, index)
                known[index.id(0)] = len(head.tokens) if head is not None else 0
    finally:
        store.close()
    return {path: known[index.id(0)] if len(index) else 0 for path, index in snapshots.items()}
