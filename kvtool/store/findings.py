"""What fsck can find: each kind has a fixed code word, how bad it is, and what a repair does about it.

docs/fsck.md has the same table for people, with the cause of each and what is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """Something is lost or cannot be read; it can be mended without loss; or it is only good to know."""

    DAMAGE = "damage"
    FIXABLE = "fixable"
    INFO = "info"


class Outcome(StrEnum):
    """What has become of a finding."""

    LEFT = "left"
    MENDED = "mended"


class Kind(NamedTuple):
    """How bad it is, and what `--repair` does about it."""

    severity: Severity
    repair: str


class Code(StrEnum):
    """The kinds. Their words are part of the JSON output: never rename one."""

    STORE_TOML = "store-toml"
    STORE_TOML_SIZES = "store-toml-sizes"
    STUBS_ABSENT = "stubs-absent"
    STUBS_NO_ID = "stubs-no-id"
    STUBS_OTHER_ID = "stubs-other-id"
    FOLDER_LOST = "folder-lost"
    IN_THE_WAY = "in-the-way"
    LEFTOVER = "leftover"
    FOREIGN = "foreign"
    PACK_HEADER = "pack-header"
    PACK_NAME = "pack-name"
    PACK_NO_TRAILER = "pack-no-trailer"
    PACK_FOOTER = "pack-footer"
    PACK_ENTRIES = "pack-entries"
    PACK_UNREADABLE = "pack-unreadable"
    CATALOG_LOST = "catalog-lost"
    CATALOG_DAMAGED = "catalog-damaged"
    CATALOG_PACK_UNKNOWN = "catalog-pack-unknown"
    CATALOG_PACK_GONE = "catalog-pack-gone"
    CATALOG_PACK_SIZE = "catalog-pack-size"
    CATALOG_CHUNK_UNFOUNDED = "catalog-chunk-unfounded"
    CATALOG_CHUNK_DIFFERS = "catalog-chunk-differs"
    CATALOG_CHUNK_UNKNOWN = "catalog-chunk-unknown"
    STUB_DAMAGED = "stub-damaged"
    STUB_UNREADABLE = "stub-unreadable"
    STUB_FOREIGN = "stub-foreign"
    STUB_INCOMPLETE = "stub-incomplete"
    STUB_SIZE = "stub-size"
    STUB_HEADER = "stub-header"
    STUB_ATTRIBUTE = "stub-attribute"
    STUB_ATTRIBUTE_UNKNOWN = "stub-attribute-unknown"
    STUB_CHUNK_MISSING = "stub-chunk-missing"
    STUB_CHUNK_LENGTH = "stub-chunk-length"
    ORPHAN = "orphan"

    @property
    def is_of_stub(self) -> bool:
        """Whether it is about one snapshot."""
        return self.value.startswith("stub-")


_LEFT = "none"  # nobody but you can tell what is to become of it
_SALVAGE = "chunks whose SHA-256 is right go to a new pack, the pack to quarantine/"
_ADOPT = "with --adopt-stubs: the store's id is written there"
_LOST_BYTES = "with --quarantine-snapshots: the stub is moved to quarantine/stubs/"

KINDS = {
    Code.STORE_TOML: Kind(
        Severity.FIXABLE, "written anew from the stub tree: its store id, and the chunk sizes of all stubs"
    ),
    Code.STORE_TOML_SIZES: Kind(Severity.FIXABLE, "written anew with the chunk sizes of the stubs"),
    Code.STUBS_ABSENT: Kind(Severity.DAMAGE, _LEFT),
    Code.STUBS_NO_ID: Kind(Severity.FIXABLE, _ADOPT),
    Code.STUBS_OTHER_ID: Kind(Severity.FIXABLE, _ADOPT),
    Code.FOLDER_LOST: Kind(Severity.FIXABLE, "made anew; what is in its place is moved to quarantine/"),
    Code.IN_THE_WAY: Kind(Severity.DAMAGE, _LEFT),
    Code.LEFTOVER: Kind(Severity.FIXABLE, "removed; a directory is moved to quarantine/"),
    Code.FOREIGN: Kind(Severity.INFO, _LEFT),
    Code.PACK_HEADER: Kind(Severity.FIXABLE, _SALVAGE),
    Code.PACK_NAME: Kind(Severity.FIXABLE, _SALVAGE),
    Code.PACK_NO_TRAILER: Kind(Severity.FIXABLE, _SALVAGE),
    Code.PACK_FOOTER: Kind(Severity.FIXABLE, _SALVAGE),
    Code.PACK_ENTRIES: Kind(Severity.FIXABLE, _SALVAGE),
    Code.PACK_UNREADABLE: Kind(Severity.FIXABLE, _SALVAGE),
    Code.CATALOG_LOST: Kind(Severity.FIXABLE, "made anew from the packs"),
    Code.CATALOG_DAMAGED: Kind(Severity.FIXABLE, "made anew from the packs"),
    Code.CATALOG_PACK_UNKNOWN: Kind(Severity.FIXABLE, "the pack is entered"),
    Code.CATALOG_PACK_GONE: Kind(Severity.FIXABLE, "the pack is struck out"),
    Code.CATALOG_PACK_SIZE: Kind(Severity.FIXABLE, "the pack is struck out and entered anew"),
    Code.CATALOG_CHUNK_UNFOUNDED: Kind(Severity.FIXABLE, "the chunks are struck out"),
    Code.CATALOG_CHUNK_DIFFERS: Kind(Severity.FIXABLE, "the chunks are entered anew from the pack"),
    Code.CATALOG_CHUNK_UNKNOWN: Kind(
        Severity.FIXABLE, "the chunks are entered; if the SHA-256 of one is wrong: " + _SALVAGE
    ),
    Code.STUB_DAMAGED: Kind(Severity.DAMAGE, "moved to quarantine/stubs/"),
    Code.STUB_UNREADABLE: Kind(Severity.DAMAGE, _LEFT),
    Code.STUB_FOREIGN: Kind(Severity.DAMAGE, _LEFT),
    Code.STUB_INCOMPLETE: Kind(Severity.FIXABLE, "removed"),
    Code.STUB_SIZE: Kind(Severity.FIXABLE, "written anew from the index"),
    Code.STUB_HEADER: Kind(Severity.FIXABLE, "written anew with the store's chunk sizes"),
    Code.STUB_ATTRIBUTE: Kind(Severity.FIXABLE, "removed"),
    Code.STUB_ATTRIBUTE_UNKNOWN: Kind(Severity.INFO, _LEFT),
    Code.STUB_CHUNK_MISSING: Kind(Severity.DAMAGE, _LOST_BYTES),
    Code.STUB_CHUNK_LENGTH: Kind(Severity.DAMAGE, _LOST_BYTES),
    Code.ORPHAN: Kind(Severity.INFO, "none; `kvtool gc` frees them"),
}


@dataclass(kw_only=True)
class Finding:
    """One thing found. `path` is where; `snapshots` are the names of those it concerns, as in the mount."""

    code: Code
    severity: Severity
    path: str
    snapshots: list[str] = field(default_factory=list)
    message: str
    repair: str
    outcome: Outcome = Outcome.LEFT


@dataclass(kw_only=True)
class Report:
    """What a check found, with the numbers of what it looked at; `in_use` says that a mount was running."""

    store: str
    stubs: str
    in_use: bool
    snapshots: int
    packs: int
    chunks: int
    findings: list[Finding]

    @property
    def clean(self) -> bool:
        """Whether nothing was lost and nothing is left to mend."""
        return not any(
            finding.severity is Severity.DAMAGE
            or (finding.severity is Severity.FIXABLE and finding.outcome is Outcome.LEFT)
            for finding in self.findings
        )

    @property
    def mendable(self) -> bool:
        """Whether a repair without options would do anything."""
        return any(f.repair not in {_LEFT, _ADOPT} and f.severity is not Severity.INFO for f in self.findings)


def finding(code: Code, path: str, message: str, snapshots: Iterable[str] = ()) -> Finding:
    """A finding of that kind."""
    kind = KINDS[code]
    return Finding(
        code=code,
        severity=kind.severity,
        path=path,
        snapshots=list(snapshots),
        message=message,
        repair=kind.repair,
    )
