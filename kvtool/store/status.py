"""What a running mount says about itself on the control socket."""

from dataclasses import dataclass

from kvtool.store.collect import Collected


@dataclass(frozen=True, kw_only=True)
class Status:
    """What a mount does: sizes in bytes, `seconds` since it started, counts since then.

    `http` is the URL of the HTTP API, "" where there is none.
    """

    version: str
    pid: int
    worker_pid: int | None
    mountpoint: str
    store: str
    stubs: str
    http: str
    seconds: float
    packs: int
    pack_bytes: int
    chunks: int
    open_files: int
    unfinished_saves: int
    commits: int
    bytes_saved: int
    bytes_new: int
    bytes_fetched: int
    bytes_prefetched: int
    prefetching: int
    cache_bytes: int
    queued_slots: int
    last_collection: Collected | None
    longest_collection_step_ms: float
