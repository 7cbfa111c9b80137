"""One snapshot in depth: where its chunks lie, which save stored what of it, and its token list."""

import os
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from kvtool.core.index import Index
from kvtool.core.readplan import Placement
from kvtool.core.score import Score
from kvtool.core.tokens import TokenList
from kvtool.core.usage import usage_among
from kvtool.errors import ChunkMissing
from kvtool.store import fetch, stubs
from kvtool.store.heads import read_tokens
from kvtool.store.snapshots import Snapshot, describe, iso_time
from kvtool.store.store import Store

_FIRST = 16  # tokens that are shown


@dataclass(frozen=True, slots=True)
class PackPart:
    """What one pack holds of a snapshot: distinct chunks, their bytes; when the pack was sealed.

    A save writes one pack, so this is what that save added; a collection puts packs together.
    """

    pack: str
    sealed: str
    chunks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Llama:
    """The head of a llama.cpp slot or session file: format version, token count, the first token ids."""

    version: int
    session: bool
    tokens: int
    first_tokens: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy(Snapshot):
    """A snapshot in depth. `packs` and `runs` (neighbours in a pack) tell how scattered it lies.

    `parts` are the packs, oldest first. `llama` is null for any other file. `missing` names the first chunk
    that no pack has; the places are not told then.
    """

    distinct_chunks: int
    packs: int
    runs: int
    parts: list[PackPart]
    llama: Llama | None
    missing: str | None


def dissect(store: Store, path: bytes, score: Score, others: Mapping[bytes, int]) -> Anatomy:
    """The snapshot whose stub is at `path`; `others` as `usage.count` finds them.

    Raises IndexDamaged, OSError.
    """
    index = stubs.read_index(path)
    head = read_tokens(store, index)
    count = len(head.tokens) if head is not None else 0
    snapshot = describe(store.layout, path, index, usage_among(index, others), count, time.time(), score)
    missing, placement = None, Placement(array("Q"), array("Q"), array("Q"))
    try:
        placement = fetch.plan_file(store, index).placement
    except ChunkMissing as error:
        missing = str(error)
    return Anatomy(
        **asdict(snapshot),
        distinct_chunks=len(set(index.id_list())),
        packs=len(set(placement.packs)),
        runs=_runs(index, placement),
        parts=_parts(store, index, placement.packs),
        llama=_llama(head) if head is not None else None,
        missing=missing,
    )


def _llama(head: TokenList) -> Llama:
    return Llama(head.version, head.session, len(head.tokens), head.tokens[:_FIRST].tolist())


def _runs(index: Index, placement: Placement) -> int:
    packs, offsets = placement.packs, placement.offsets
    return sum(
        i == 0 or packs[i] != packs[i - 1] or offsets[i] != offsets[i - 1] + index.length(i - 1)
        for i in range(len(packs))
    )


def _parts(store: Store, index: Index, packs: Sequence[int]) -> list[PackPart]:
    home = {chunk_id: (key, size) for (chunk_id, size), key in zip(index.chunks(), packs, strict=False)}
    parts = []
    for key in sorted(set(packs)):
        sizes = [size for its, size in home.values() if its == key]
        with suppress(ChunkMissing, FileNotFoundError):  # rewritten by a collection just now
            path = store.packs.path(key)
            sealed = iso_time(os.stat(path).st_mtime)
            parts.append(PackPart(path.stem, sealed, len(sizes), sum(sizes)))
    return parts
