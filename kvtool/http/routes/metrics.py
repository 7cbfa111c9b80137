"""/metrics for Prometheus: what the mount counts, and what the store holds, in a registry of our own."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0, generate_latest
from prometheus_client.registry import Collector

from kvtool.http.parameters import SourceOf
from kvtool.store.snapshots import Overview

router = APIRouter(tags=["mount"])
_AGE = 60.0  # seconds that the recount of all snapshots may be old

# Name, meaning, and where it is in the answers of the mount: counters as they are, the rest as they stand.
_COUNTERS = (
    ("saves", "Commits of files", "status", "commits"),
    ("saves_failed", "Saves that failed: their old content stays", "meters", "failed_saves"),
    ("restores", "Uses of snapshots", "meters", "restores"),
    ("received_bytes", "Bytes of files that were saved", "status", "bytes_saved"),
    ("new_bytes", "Bytes of those that the store did not have", "status", "bytes_new"),
    ("read_bytes", "Bytes handed to readers; the kernel's own cache is not counted", "meters", "bytes_read"),
    ("fetched_bytes", "Bytes read from packs", "status", "bytes_fetched"),
    ("segment_hits", "Segments that were in memory when asked for", "meters", "segment_hits"),
    ("prefetch_waits", "Segments that were on their way when asked for", "meters", "segment_waits"),
    ("segment_misses", "Segments that nobody had fetched when asked for", "meters", "segment_misses"),
    ("collections", "Collections", "meters", "collections"),
    ("collections_failed", "Collections that failed", "meters", "failed_collections"),
    ("collected_packs", "Packs that collections deleted", "meters", "collected_packs"),
    ("collected_bytes", "Bytes that collections freed", "meters", "collected_bytes"),
    ("collection_seconds", "Time that collections took", "meters", "collection_seconds"),
)
_GAUGES = (
    ("uptime_seconds", "Time since the mount began", "seconds"),
    ("packs", "Packs in the store", "packs"),
    ("pack_bytes", "Bytes of all packs", "pack_bytes"),
    ("chunks", "Chunks in the catalog", "chunks"),
    ("open_files", "Open handles", "open_files"),
    ("unfinished_saves", "Files with new content that is not committed", "unfinished_saves"),
    ("queued_slots", "Slots of 1 MiB in use of the write queue", "queued_slots"),
    ("cache_bytes", "Bytes fetched from packs and not yet handed out", "cache_bytes"),
)


class _Scrape(Collector):
    """The metrics of one moment."""

    def __init__(self, status: Mapping[str, Any], meters: Mapping[str, Any], overview: Overview) -> None:
        self._status = status
        self._meters = meters
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        """All of them; each name begins with kvtool_."""
        sources = {"status": self._status, "meters": self._meters}
        for name, meaning, source, key in _COUNTERS:
            yield CounterMetricFamily(f"kvtool_{name}", meaning, value=sources[source][key])
        for name, meaning, key in _GAUGES:
            yield GaugeMetricFamily(f"kvtool_{name}", meaning, value=self._status[key])
        yield from self._of_the_store()
        yield from self._by_label()
        yield from self._latencies()

    def _of_the_store(self) -> Iterator[Metric]:
        rows = self._overview.listing.snapshots
        live = self._overview.live_bytes
        values = {
            "snapshots": ("Snapshots", len(rows)),
            "damaged_stubs": ("Files among the stubs that are none", len(self._overview.listing.damaged)),
            "snapshot_bytes": ("Sizes of all snapshots together", sum(row.size for row in rows)),
            "live_bytes": ("Bytes of distinct chunks that snapshots need", live),
            "dead_bytes": ("Bytes in packs beyond those", max(0, self._status["pack_bytes"] - live)),
            "dedup_ratio": (
                "Sizes of all snapshots by the bytes of their distinct chunks",
                sum(row.size for row in rows) / live if live else 1.0,
            ),
        }
        for name, (meaning, value) in values.items():
            yield GaugeMetricFamily(f"kvtool_{name}", meaning, value=value)

    def _by_label(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("kvtool_info", "The version that runs", labels=["version"])
        info.add_metric([self._status["version"]], 1)
        yield info
        lines = CounterMetricFamily("kvtool_log_lines", "Lines of the log", labels=["level"])
        for level in ("warning", "error"):
            lines.add_metric([level], self._meters["log_lines"].get(level, 0))
        yield lines
        failures = CounterMetricFamily(
            "kvtool_request_failures", "Requests of the kernel that failed", labels=["operation", "errno"]
        )
        for operation, code, count in self._meters["failures"]:
            failures.add_metric([operation, code], count)
        yield failures

    def _latencies(self) -> Iterator[Metric]:
        requests = HistogramMetricFamily(
            "kvtool_request_seconds", "Time to answer a request of the kernel", labels=["operation"]
        )
        for operation, histogram in sorted(self._meters["operations"].items()):
            requests.add_metric([operation], *self._buckets(histogram))
        yield requests
        commits = HistogramMetricFamily("kvtool_commit_seconds", "Time of a commit, from the last write on")
        commits.add_metric([], *self._buckets(self._meters["commit_times"]))
        yield commits

    def _buckets(self, histogram: Mapping[str, Any]) -> tuple[list[tuple[str, float]], float]:
        bounds = [*map(str, self._meters["bounds"]), "+Inf"]
        return list(zip(bounds, accumulate(histogram["counts"]), strict=True)), histogram["seconds"]


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(source: SourceOf) -> Response:
    """For Prometheus. What takes a recount of all snapshots may be a minute old."""
    scrape = _Scrape(
        await source.ask("status"), await source.ask("meters"), await source.overview.recent(_AGE)
    )
    registry = CollectorRegistry()
    registry.register(scrape)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_1_0_0)
