"""Moving the catalog's write-ahead log into its file while nobody waits for it.

By default the commit that fills the log does that itself, and waits for the disk twice: in a large catalog a
save's chunks fall on as many pages, so it would be every save.
"""

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

MOST_PAGES = 16_000  # of the log, with which a commit does it after all: no more than 64 MiB
_ENOUGH = 500  # rows changed, each in about one page of a large catalog


class Checkpoints:
    """A thread with a connection of its own, started when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = 0
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def changed(self, rows: int) -> None:
        """Tells that `rows` have been changed since the beginning, and that all of them are committed."""
        if rows - self._done >= _ENOUGH:
            self._done = rows
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                with suppress(RuntimeError):  # no more threads: commits do it, as they used to
                    self._thread.start()

    def _run(self) -> None:
        # What goes wrong here is the next commit's to meet.
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, isolation_level=None)) as db,
        ):
            while self._wanted.wait():
                self._wanted.clear()
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
