"""The mount: its state, its settings, whether it answers; and the tree of what snapshots share."""

from dataclasses import dataclass
from typing import Literal

import trio
from fastapi import APIRouter, Response

from kvtool.errors import KvtoolError
from kvtool.http.answers import Failed, answer, failed
from kvtool.http.parameters import SourceOf
from kvtool.store.kinship import Tree
from kvtool.store.status import Status

router = APIRouter(prefix="/v1")
_PATIENCE = 5.0  # seconds that a healthy mount may take to answer


@dataclass(kw_only=True)
class Health:
    """The mount answers."""

    status: Literal["ok"]


@dataclass(kw_only=True)
class SettingRow:
    """One setting: its value, and the layer and place it comes from. Secrets are stars."""

    key: str
    value: str | int | float | bool
    shown: str
    layer: str
    where: str


@dataclass(kw_only=True)
class Configuration:
    """All settings of the mount that runs."""

    settings: list[SettingRow]


@router.get("/status", response_model=Status, tags=["mount"])
async def status(source: SourceOf) -> Response:
    """What the mount does, as `kvtool status` has it."""
    return answer(await source.ask("status"))


@router.get("/health", response_model=Health, tags=["mount"], responses={503: {"model": Failed}})
async def health(source: SourceOf) -> Response:
    """Whether the mount answers: 200, or 503."""
    try:
        with trio.fail_after(_PATIENCE):
            await source.ask("collection")
    except (trio.TooSlowError, KvtoolError, OSError) as error:
        return failed(503, "unhealthy", f"the mount does not answer: {error}".removesuffix(": "))
    return answer(Health(status="ok"))


@router.get("/config", response_model=Configuration, tags=["mount"])
async def config(source: SourceOf) -> Response:
    """The settings in force and where each comes from, as `kvtool config --running` has them."""
    found = await source.ask("settings")
    names = SettingRow.__dataclass_fields__
    rows = [SettingRow(**{name: row[name] for name in names}) for row in found["settings"]]
    return answer(Configuration(settings=rows))


@router.get("/prefix-tree", response_model=Tree, tags=["snapshots"])
async def prefix_tree(source: SourceOf) -> Response:
    """Which snapshots' token lists begin alike: a radix tree, as a list with each node before those below.

    Only files of llama.cpp have token lists; the others are named.
    """
    return answer(await source.tree.now())
