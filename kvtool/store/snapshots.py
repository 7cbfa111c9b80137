"""What there is: every snapshot with what it costs. Read-only, beside a running mount or without one."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kvtool.core.index import Index
from kvtool.core.usage import Usage, score, usage
from kvtool.errors import IndexDamaged
from kvtool.store import stubs
from kvtool.store.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot; sizes in bytes, times in UTC as ISO 8601, empty when there was none.

    `unique_bytes` is what deleting it alone frees, `shared_bytes` the rest of its distinct chunks. `modified`
    is the file's mtime. The higher the `score` the better it is to delete (`core.usage.score`).
    """

    name: str
    size: int
    chunks: int
    unique_bytes: int
    shared_bytes: int
    uses: int
    created: str
    modified: str
    last_used: str
    labels: dict[str, str]
    score: float


@dataclass(frozen=True, slots=True)
class DamagedStub:
    """A file in the stub tree that is no stub."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All snapshots, or those asked for, and what is no snapshot."""

    snapshots: list[Snapshot]
    damaged: list[DamagedStub]


@dataclass(slots=True)
class Indexes:
    """The chunk indexes of all snapshots by the paths of their stubs, and what cannot be read as one."""

    layout: Layout
    of: dict[bytes, Index] = field(default_factory=dict)
    damaged: list[DamagedStub] = field(default_factory=list)


def read_indexes(layout: Layout) -> Indexes:
    """Reads every stub, but for those that wait for their first commit. Raises OSError."""
    found = Indexes(layout)
    for path in stubs.walk(layout):
        try:
            if stubs.get(path, stubs.INCOMPLETE) is None:
                found.of[path] = stubs.read_index(path)
        except IndexDamaged as error:
            found.damaged.append(DamagedStub(stubs.name_of(layout, path), str(error)))
        except FileNotFoundError:
            continue  # deleted or renamed while we looked
    return found


def list_snapshots(layout: Layout) -> Listing:
    """Every snapshot. Raises OSError."""
    found = read_indexes(layout)
    now = time.time()
    used: Mapping[bytes, Usage] = usage(found.of)
    rows = []
    for path, index in found.of.items():
        with suppress(FileNotFoundError):
            rows.append(describe(layout, path, index, used[path], now))
    return Listing(rows, found.damaged)


def describe(layout: Layout, path: bytes, index: Index, used: Usage, now: float) -> Snapshot:
    """One snapshot, as of `now` (seconds since the epoch). Raises FileNotFoundError, OSError."""
    attributes = stubs.attributes(path)
    modified = os.lstat(path).st_mtime
    # What touches the file, as a proxy does that deletes the least recently used, uses it too.
    latest = max(modified, *map(stubs.seconds_of, (attributes.created, attributes.last_used)))
    return Snapshot(
        name=stubs.name_of(layout, path),
        size=index.size,
        chunks=len(index),
        unique_bytes=used.unique,
        shared_bytes=used.shared,
        uses=attributes.uses,
        created=attributes.created,
        modified=iso_time(modified),
        last_used=attributes.last_used,
        labels=attributes.labels,
        score=round(score(index.size, used.unique, attributes.uses, now - latest), 3),
    )


def iso_time(seconds: float) -> str:
    """A time as the stubs' attributes write it; empty for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(stubs.TIME)
    except (OverflowError, ValueError):
        return ""
