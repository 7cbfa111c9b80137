"""How far a running mount's collection is, and how the last one ended."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from kvtool.store.collect import Collected


@dataclass(kw_only=True)
class Progress:
    """`stage` is "" while none runs. Packs to write are known once the mark is over.

    Times are ISO 8601 in UTC, "" for never. `last` is what the last whole collection did; `last_error` is why
    the newest one failed, "" when it did not. A dry run changes neither.
    """

    stage: Literal["", "marking", "deleting", "rewriting"] = ""
    dry_run: bool = False
    started: str = ""
    packs_to_write: int = 0
    packs_written: int = 0
    last: Collected | None = None
    last_ended: str = ""
    last_error: str = ""

    def began(self, *, dry_run: bool) -> None:
        """A collection begins."""
        self.stage, self.dry_run, self.started = "marking", dry_run, _now()
        self.packs_to_write = self.packs_written = 0
        if not dry_run:
            self.last_error = ""

    def failed(self, message: str) -> None:
        """It fails."""
        if not self.dry_run:
            self.last_error = message

    def ended(self) -> None:
        """It is over, one way or the other."""
        self.stage = ""
        if not self.dry_run:
            self.last_ended = _now()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
