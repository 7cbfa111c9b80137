"""The token lists that snapshots of llama.cpp begin with, read from the packs."""

import hashlib
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

    `known` has the counts by content of the last time, and is brought up to date.
    """
    contents = {path: hashlib.sha256(index.ids).digest() for path, index in snapshots.items()}
    before = dict(known)
    known.clear()
    store = Store.open(layout, writable=False)
    try:
        for path, index in snapshots.items():
            key = contents[path]
            if key in before:
                known[key] = before[key]
            elif key not in known:
                head = read_tokens(store, index)
                known[key] = len(head.tokens) if head is not None else 0
    finally:
        store.close()
    return {path: known[key] for path, key in contents.items()}
