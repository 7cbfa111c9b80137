"""What commands answer with --json where no lower floor says it: schemas/ is made from these.

Sizes are bytes; times are ISO 8601 in UTC, "" for never. A command's other answers: `store.findings.Report`
(fsck), `store.verify.Verified`, `store.exchange.Exported`, `store.status.Status`,
`settings.explain.Explanation` and `Page`.
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
class Prefetched:
    """`kvtool prefetch`: the names asked for, whether they are `read` by now, and why some are given up."""

    names: list[str]
    read: bool
    given_up: dict[str, str]


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
    """`kvtool chunk`, `kvtool import`: the files, or with `dry_run` what storing them would do."""

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
class Unit:
    """`kvtool config --systemd`: the unit's text, and the file that has it now, "" when it is only shown."""

    path: str
    text: str


@dataclass(kw_only=True)
class Script:
    """`kvtool completion`: for which shell, and the text."""

    shell: str
    text: str


@dataclass(kw_only=True)
class Manual:
    """`kvtool man`: the page about kvtool as a whole."""

    page: str


@dataclass(kw_only=True)
class Manuals:
    """`kvtool man --directory`: the files that were written."""

    files: list[str]
