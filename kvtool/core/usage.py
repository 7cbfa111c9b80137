"""What a snapshot costs: the bytes that deleting it frees, and those that others need too."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from kvtool.core.index import Index

Name = TypeVar("Name")


class Usage(NamedTuple):
    """Bytes of one snapshot's distinct chunks: those only it needs, those that others need too."""

    unique: int
    shared: int


def usage(snapshots: Mapping[Name, Index]) -> dict[Name, Usage]:
    """The usage of every snapshot among all of them."""
    owner: dict[bytes, Name | None] = {}
    for name, index in snapshots.items():
        for chunk_id in set(_ids(index)):
            owner[chunk_id] = None if chunk_id in owner else name
    result = {}
    for name, index in snapshots.items():
        unique = shared = 0
        for chunk_id, length in dict(index.chunks()).items():
            if owner[chunk_id] is None:
                shared += length
            else:
                unique += length
        result[name] = Usage(unique, shared)
    return result


def _ids(index: Index) -> Sequence[bytes]:
    return [chunk_id for chunk_id, _ in index.chunks()]
