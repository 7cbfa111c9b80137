"""Collection: what it does now, what it did, and starting one."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict

from kvtool.http.answers import answer
from kvtool.http.parameters import Changes, SourceOf
from kvtool.store.collect import Collected
from kvtool.store.progress import Progress

router = APIRouter(prefix="/v1", tags=["collection"])


class GcRequest(BaseModel):
    """With `dry_run` nothing is changed, and the answer is what would be."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dry_run: bool = False


@router.get("/gc", response_model=Progress)
async def gc_progress(source: SourceOf) -> Response:
    """How far the collection is, if one runs, and how the last one ended."""
    return answer(await source.ask("collection"))


_STARTED: dict[int | str, dict[str, Any]] = {202: {"model": Progress, "description": "It runs"}}


@router.post("/gc", response_model=Collected, responses=_STARTED, dependencies=[Changes])
async def start_gc(source: SourceOf, request: Annotated[GcRequest, Body()] = GcRequest()) -> Response:  # noqa: B008
    """Frees the space of chunks that no snapshot needs. No snapshot is deleted.

    A dry run answers once it is over: with packs that would be deleted, packs that would be written with
    what is needed of them, and bytes that would be freed. Otherwise the answer is 202, and GET tells how it
    goes on; when one runs already, that is the one.
    """
    if request.dry_run:
        return answer(await source.ask("gc", dry_run=True))
    return answer(await source.ask("gc", wait=False), 202)
