"""The last lines of the mount's log."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator

from kvtool.http.answers import answer
from kvtool.http.parameters import PAGE_MAX, SourceOf

router = APIRouter(prefix="/v1", tags=["mount"])
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _read_time(text: object) -> object:
    if isinstance(text, str) and not _RFC3339.fullmatch(text):
        raise ValueError("not a date and time of RFC 3339, such as 2026-01-31T12:00:00Z")
    return text


@dataclass(kw_only=True)
class Line:
    """One line: its number since the mount's start, seconds since the epoch, and which module said what."""

    number: int
    time: float
    level: str
    logger: str
    message: str


@dataclass(kw_only=True)
class Lines:
    """Lines, oldest first. `last` is the number of the newest there is: what to ask `after` next time.

    `lost` is how many lines after `after` are no longer kept; `now` is the mount's clock.
    """

    lines: list[Line]
    last: int
    lost: int
    now: float


@router.get("/logs", response_model=Lines)
async def logs(
    source: SourceOf,
    level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], Query(description="the least severity")
    ] = "debug",
    since: Annotated[
        datetime | None, BeforeValidator(_read_time), Query(description="not older than this (RFC 3339)")
    ] = None,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="with larger numbers than this")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="the newest so many")] = 200,
) -> Response:
    """What the mount logged, as far as `log.level` lets it; the last 2000 lines are kept."""
    seconds = since.timestamp() if since is not None else 0.0
    return answer(await source.ask("logs", level=level, since=seconds, after=after, limit=limit))
