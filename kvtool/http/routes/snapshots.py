"""Snapshots: the list, one, its chunks, what deleting some frees; deletion and labels."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from kvtool.core.usage import freed, usage_among
from kvtool.http.answers import answer, path_to
from kvtool.http.parameters import Changes, Limit, Name, Names, Offset, SourceOf, query_value, query_values
from kvtool.http.source import Source
from kvtool.store import anatomy, names, stubs
from kvtool.store.anatomy import Anatomy
from kvtool.store.pieces import Pieces, pieces
from kvtool.store.snapshots import DamagedStub, Listing, Snapshot
from kvtool.store.store import Store

router = APIRouter(prefix="/v1", tags=["snapshots"])
Key = Literal[
    "name",
    "size",
    "chunks",
    "unique_bytes",
    "shared_bytes",
    "uses",
    "created",
    "modified",
    "last_used",
    "score",
]
Order = Literal["up", "down"]


@dataclass(frozen=True, kw_only=True)
class Listed(Snapshot):
    """A snapshot, and where the API has more about it."""

    href: str


@dataclass(kw_only=True)
class SnapshotPage:
    """A page of the list. `total` counts all that fit, `size` and `unique_bytes` are theirs together.

    `damaged` are files among the stubs that are none, wherever in the list the page is.
    """

    snapshots: list[Listed]
    total: int
    size: int
    unique_bytes: int
    damaged: list[DamagedStub]


@dataclass(kw_only=True)
class Freed:
    """What deleting these snapshots together frees, and each of them alone."""

    unique_bytes: int
    snapshots: dict[str, int]


class Labels(BaseModel):
    """Labels to set; null removes one, and what is not named stays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    labels: dict[str, str | None] = Field(min_length=1, max_length=64)


@router.get("/snapshots", response_model=SnapshotPage)
async def list_snapshots(
    source: SourceOf,
    request: Request,
    sort: Annotated[Key, Query(description="by which field")] = "name",
    order: Annotated[Order, Query(description="the smallest first, or the largest")] = "up",
    prefix: Annotated[str, Query(description="those with names that begin so")] = "",  # noqa: ARG001
    label: Annotated[  # noqa: ARG001  (these describe; they are read below, as bytes)
        list[str], Query(max_length=16, description="NAME or NAME=VALUE: those with all of these labels")
    ] = [],  # noqa: B006
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The snapshots with what each costs. The higher the score, the better one is to delete."""
    listing = (await source.overview.now()).listing
    rows = select(listing, sort, order, query_value(request, "prefix"), query_values(request, "label"))
    page = [Listed(**asdict(row), href=path_to(row.name)) for row in rows[offset : offset + limit]]
    return answer(
        SnapshotPage(
            snapshots=page,
            total=len(rows),
            size=sum(row.size for row in rows),
            unique_bytes=sum(row.unique_bytes for row in rows),
            damaged=listing.damaged[:limit],
        )
    )


def select(listing: Listing, sort: Key, order: Order, prefix: str, labels: Sequence[str]) -> list[Snapshot]:
    """The snapshots with names that begin so and all of these labels (NAME or NAME=VALUE), in that order."""
    wanted = [each.partition("=") for each in labels]
    rows = [
        row
        for row in listing.snapshots
        if row.name.startswith(prefix)
        and all(
            name in row.labels and (not mark or row.labels[name] == value) for name, mark, value in wanted
        )
    ]
    rows.sort(key=lambda row: row.name)
    rows.sort(key=lambda row: getattr(row, sort), reverse=order == "down")
    return rows


@router.get("/unique-bytes", response_model=Freed)
async def unique_bytes(source: SourceOf, name: Names) -> Response:
    """What deleting the snapshots named frees: `?name=a&name=b`. Chunks that only they share count too."""

    others = (await source.overview.now()).others

    def count(store: Store) -> Freed:
        indexes = {each: stubs.read_index(names.existing_stub(store.layout, each)) for each in name}
        alone = {each: usage_among(index, others).unique for each, index in indexes.items()}
        return Freed(unique_bytes=freed(indexes.values(), others), snapshots=alone)

    return answer(await source.read(count))


@router.get("/snapshots/{name:snapshot}", response_model=Anatomy)
async def one_snapshot(source: SourceOf, name: Name) -> Response:
    """One snapshot in depth: packs, fragmentation, the head of a llama.cpp file."""
    return answer(await dissected(source, name))


async def dissected(source: Source, name: str) -> Anatomy:
    """The snapshot of that name; what it shares is counted once for all who ask meanwhile."""
    names.existing_stub(source.layout, name)  # what cannot be is refused before all is counted
    others = (await source.overview.now()).others
    return await source.read(
        lambda store: anatomy.dissect(store, names.existing_stub(store.layout, name), source.score, others)
    )


@router.get("/chunks/{name:snapshot}", response_model=Pieces)
async def chunks(source: SourceOf, name: Name, limit: Limit = 1000, offset: Offset = 0) -> Response:
    """The chunks of one snapshot in their order, and where each lies."""
    names.existing_stub(source.layout, name)
    others = (await source.overview.now()).others
    return answer(
        await source.read(
            lambda store: pieces(store, names.existing_stub(store.layout, name), offset, limit, others)
        )
    )


@router.delete("/snapshots/{name:snapshot}", status_code=204, dependencies=[Changes])
async def delete_snapshot(source: SourceOf, name: Name) -> Response:
    """Deletes a snapshot, as rm in the mount does: who has it open keeps it. Collection frees the space."""
    names.stub_path(source.layout, name)
    await source.ask("delete", name=name)
    return Response(status_code=204)


@router.patch("/snapshots/{name:snapshot}", response_model=Anatomy, dependencies=[Changes])
async def label_snapshot(source: SourceOf, name: Name, request: Labels) -> Response:
    """Sets and removes labels, and answers with the snapshot. One that cannot be leaves all as they are."""
    names.stub_path(source.layout, name)
    await source.ask("label", name=name, changes=request.labels)
    return await one_snapshot(source, name)
