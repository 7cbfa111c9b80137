"""The catalog's log is moved into its file by a thread, not by the commit of a save."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kvtool.core.pack import Entry
from kvtool.store.catalog import Catalog
from kvtool.store.checkpoint import Checkpoints
from tests.synth import random_bytes

CHUNKS = 6000  # whose rows fill the log far beyond SQLite's own limit of 1,000 pages
IDS = random_bytes(32 * CHUNKS)
ENTRIES = [Entry(IDS[32 * at : 32 * at + 32], at, 1, at) for at in range(CHUNKS)]


class Once:
    """Stands for the event that the thread waits for: it happens once, and then the thread ends."""

    def __init__(self) -> None:
        self.left = 1

    def wait(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def clear(self) -> None:
        pass


def in_file(path: Path) -> int:
    """How many chunks the catalog's file holds without its log."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        return int(db.execute("SELECT count(*) FROM chunk").fetchone()[0])


def run_once(path: Path) -> None:
    checkpoints = Checkpoints(path)
    checkpoints._wanted = Once()  # type: ignore[assignment]
    checkpoints._run()


def test_a_commit_leaves_the_log_to_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(Checkpoints, "changed", lambda _self, rows: told.append(rows))
    path = tmp_path / "catalog"
    catalog = Catalog(path, writable=True)
    catalog.add_pack(b"p" * 16, 1, ENTRIES[:1])
    assert told == []
    catalog.checkpoint_aside()
    before = path.stat().st_size
    for at in range(0, CHUNKS, 1000):
        catalog.add_pack(at.to_bytes(16, "big"), 1, ENTRIES[at : at + 1000])
    assert len(told) == CHUNKS // 1000
    assert told[-1] == 7 + CHUNKS
    assert path.stat().st_size == before
    run_once(path)
    assert in_file(path) == CHUNKS == catalog.chunk_count()
    catalog.close()


def test_the_thread_is_started_once_when_enough_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr("threading.Thread.start", lambda thread: started.append(thread))
    checkpoints = Checkpoints(tmp_path / "catalog")
    checkpoints.changed(499)
    assert (started, checkpoints._wanted.is_set()) == ([], False)
    checkpoints.changed(500)
    assert (len(started), checkpoints._wanted.is_set()) == (1, True)
    checkpoints._wanted.clear()
    checkpoints.changed(999)
    assert not checkpoints._wanted.is_set()
    checkpoints.changed(1000)
    assert (len(started), checkpoints._wanted.is_set()) == (1, True)


def test_a_process_that_gets_no_more_threads_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    Checkpoints(tmp_path / "catalog").changed(500)


def test_a_catalog_that_cannot_be_opened_ends_the_thread_alone(tmp_path: Path) -> None:
    run_once(tmp_path / "none" / "catalog")
    (tmp_path / "catalog").write_bytes(b"no catalog" * 1000)
    run_once(tmp_path / "catalog")
