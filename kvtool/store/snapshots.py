"""What there is: every snapshot with what it costs. Read-only, beside a running mount or without one."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kvtool.core.index import Index
from kvtool.core.score import Facts, Score
from kvtool.core.usage import Count, Usage, count
from kvtool.errors import IndexDamaged
from kvtool.store import stubs
from kvtool.store.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot; sizes in bytes, times in UTC as ISO 8601, empty when there was none.

    `unique_bytes` is what deleting it alone frees, `shared_bytes` the rest of its distinct chunks. `modified`
    is the file's mtime. The higher the `score` the better it is to delete (`core.score`).
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


@dataclass(frozen=True, slots=True)
class Overview:
    """All snapshots, and what they cost."""

    listing: Listing
    costs: Count[bytes]

    @property
    def live_bytes(self) -> int:
        """The bytes of all chunks that any of them needs."""
        return self.costs.live

    @property
    def others(self) -> Mapping[bytes, int]:
        """Which chunks are shared, see `usage.Count`."""
        return self.costs.others


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


def list_snapshots(layout: Layout, score: Score) -> Listing:
    """Every snapshot. Raises NoStore, OSError."""
    return overview(layout, score, {}).listing


def overview(layout: Layout, score: Score, known: dict[bytes, int]) -> Overview:
    """Every snapshot; `known` are token counts, see `heads`. Raises NoStore, OSError."""
    found = read_indexes(layout)
    counted = count(found.of)
    tokens: dict[bytes, int] = {}
    if score.needs_tokens:
        from kvtool.store.heads import token_counts  # opens the packs, which a listing does not need

        tokens = token_counts(layout, found.of, known)
    now = time.time()
    rows = []
    for path, index in found.of.items():
        with suppress(FileNotFoundError):
            rows.append(describe(layout, path, index, counted.of[path], tokens.get(path, 0), now, score))
    return Overview(Listing(rows, found.damaged), counted)


def facts(found: stubs.Attributes, modified: float, used: Usage, tokens: int, now: float) -> Facts:
    """What a score may speak of; `modified` and `now` in seconds since the epoch."""
    created = stubs.seconds_of(found.created) or modified
    # What touches the file, as a proxy does that deletes the least recently used, uses it too.
    latest = max(modified, created, stubs.seconds_of(found.last_used))
    return Facts(
        size=found.size,
        unique_bytes=used.unique,
        shared_bytes=used.shared,
        uses=found.uses,
        age=max(now - created, 0.0),
        idle=max(now - latest, 0.0),
        tokens=tokens,
        labels=found.labels,
    )


def describe(
    layout: Layout, path: bytes, index: Index, used: Usage, tokens: int, now: float, score: Score
) -> Snapshot:
    """One snapshot, as of `now` (seconds since the epoch). Raises FileNotFoundError, OSError."""
    attributes = stubs.attributes(path)
    modified = os.lstat(path).st_mtime
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
        score=score.of(facts(attributes, modified, used, tokens, now)),
    )


def iso_time(seconds: float) -> str:
    """A time as the stubs' attributes write it; empty for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(stubs.TIME)
    except (OverflowError, ValueError):
        return ""
