"""What commands answer with --json where no lower floor says it: schemas/ is made from these.

Sizes are bytes; times are ISO 8601 in UTC, "" for never. A command's other answers: `store.findings.Report`
(fsck), `store.verify.Verified`, `store.status.Status`, `settings.explain.Explanation` and `Page`.
"""

from dataclasses import dataclass


@dataclass(kw_only=True)
class Failure:
    """What went wrong: a word for programs, a line for people, what to do next, and the exit code."""

    code: str
    message: str
    hint: str | None
    exit: int


@dataclass(kw_only=True)
class Failed:
    """Any command that fails answers this."""

    error: Failure


@dataclass(kw_only=True)
class Mounted:
    """`kvtool mount --background`: the process that serves now."""

    mountpoint: str
    store: str
    pid: int


@dataclass(kw_only=True)
class Unmounted:
    """`kvtool umount`: what is no longer where."""

    mountpoint: str
    store: str


@dataclass(kw_only=True)
class Freed:
    """`kvtool gc`: packs deleted, new ones that took what was needed of them, and bytes freed in all.

    With `dry_run` what would be. `leftovers` are files of unfinished saves that were removed.
    """

    packs: int
    rewritten: int
    bytes: int
    leftovers: int
    dry_run: bool


@dataclass(kw_only=True)
class Chunked:
    """One file as a snapshot, and how much of it the store did not have."""

    name: str
    size: int
    chunks: int
    new_chunks: int
    new_bytes: int


@dataclass(kw_only=True)
class Stored:
    """`kvtool chunk`: the files, or with `dry_run` what storing them would do."""

    snapshots: list[Chunked]
    dry_run: bool


@dataclass(kw_only=True)
class Restored:
    """`kvtool cat --output`: which snapshot went where."""

    name: str
    size: int
    output: str


@dataclass(kw_only=True)
class Written:
    """`kvtool config --init`: the file that was written."""

    path: str


@dataclass(kw_only=True)
class Listed:
    """One snapshot in the list of `kvtool inspect`: what deleting it frees, and what it shares."""

    name: str
    size: int
    chunks: int
    unique_bytes: int
    shared_bytes: int
    uses: int
    created: str
    last_used: str
    labels: dict[str, str]


@dataclass(kw_only=True)
class DamagedStub:
    """A stub that cannot be read."""

    name: str
    message: str


@dataclass(kw_only=True)
class Listing:
    """`kvtool inspect`: all snapshots."""

    snapshots: list[Listed]
    damaged: list[DamagedStub]


@dataclass(kw_only=True)
class Inspected:
    """`kvtool inspect NAME`: one snapshot. `tokens` is null where it is no llama.cpp file or is damaged;
    `packs` and `runs` (of neighbours in one pack) are 0 where a chunk is `missing`, which says which.
    """

    name: str
    size: int
    tokens: int | None
    chunks: int
    distinct_chunks: int
    packs: int
    runs: int
    uses: int
    created: str
    last_used: str
    labels: dict[str, str]
    missing: str | None
