"""The catalog: where each chunk lies. A cache of the packs' footers in SQLite, in write-ahead mode, so that
readers in other processes never wait for the one writer.

Pack keys are small integers that are never used twice; a checksum is kept as SQLite's signed 64 bits.
"""

import errno
import sqlite3
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kvtool.core.index import ID_SIZE, Index
from kvtool.core.pack import Entry
from kvtool.core.readplan import Placement
from kvtool.errors import CatalogDamaged, ChunkMissing, NoStore

_SCHEMA = """
PRAGMA user_version = 1;
CREATE TABLE IF NOT EXISTS pack (key INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL,
    size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chunk (id BLOB PRIMARY KEY, pack INTEGER NOT NULL, offset INTEGER NOT NULL,
    length INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
"""
_BATCH = 500  # ids in one query
_U64 = 1 << 64
_DAMAGED = "-damaged"  # the suffix of a file that asks the next writer to rebuild the catalog


class PackRow(NamedTuple):
    """A pack as the catalog knows it: its key, id, and the file's bytes."""

    key: int
    id: bytes
    size: int


class Location(NamedTuple):
    """Where one chunk lies."""

    pack: int
    offset: int
    length: int
    checksum: int


class Catalog:
    """One connection to a store's catalog; safe to use from several threads."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Opens the catalog; a writer makes it where there is none. Raises NoStore, OSError."""
        self._lock = threading.Lock()
        self._path = path
        mode = "rwc" if writable else "ro"
        with _as_os_error(path), ExitStack() as on_failure:
            try:
                self._db = sqlite3.connect(
                    f"{path.as_uri()}?mode={mode}", uri=True, check_same_thread=False, isolation_level=None
                )
                on_failure.callback(self._db.close)
                if writable:
                    self._db.execute("PRAGMA journal_mode = WAL")
                    self._db.execute("PRAGMA synchronous = NORMAL")
                    self._db.executescript(_SCHEMA)
                self._db.execute("PRAGMA cache_size = -16384")
                self._db.execute("SELECT count(*) FROM pack")
                self._db.execute("SELECT id FROM chunk LIMIT 1")  # lost alone, when the log is damaged
                on_failure.pop_all()
            except sqlite3.OperationalError as error:
                if not writable and _base_code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_ERROR}:
                    raise NoStore(
                        f"{path} is not there", hint="start `kvtool mount` once to rebuild it"
                    ) from error
                raise

    def close(self) -> None:
        """Ends the connection."""
        self._db.close()

    def packs(self) -> list[PackRow]:
        """All packs, oldest first."""
        return [PackRow._make(row) for row in self._rows("SELECT key, id, size FROM pack ORDER BY key")]

    def pack(self, key: int) -> PackRow | None:
        """The pack with that key."""
        rows = list(self._rows("SELECT key, id, size FROM pack WHERE key = ?", (key,)))
        return PackRow._make(rows[0]) if rows else None

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Location]:
        """Where those of `ids` lie that the catalog knows."""
        return {
            chunk_id: Location(pack, offset, length, checksum % _U64)
            for chunk_id, pack, offset, length, checksum in self._chunk_rows(list(dict.fromkeys(ids)))
        }

    def place(self, index: Index) -> Placement:
        """Where every chunk of `index` lies. Raises ChunkMissing naming the first that is not there."""
        ids = [index.ids[i : i + ID_SIZE] for i in range(0, len(index.ids), ID_SIZE)]
        found = {row[0]: row for row in self._chunk_rows(list(dict.fromkeys(ids)))}
        packs, offsets, checksums = array("Q"), array("Q"), array("Q")
        position = 0
        for chunk_id, end in zip(ids, index.ends, strict=True):
            row = found.get(chunk_id)
            if row is None or row[3] != end - position:
                raise ChunkMissing(
                    f"chunk {chunk_id.hex()} ({end - position} bytes) is not in the store",
                    hint="delete the snapshot, or save it again",
                )
            position = end
            packs.append(row[1])
            offsets.append(row[2])
            checksums.append(row[4] % _U64)
        return Placement(packs, offsets, checksums)

    def _chunk_rows(self, ids: Sequence[bytes]) -> Iterator[tuple[bytes, int, int, int, int]]:
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            marks = ",".join("?" * len(batch))
            query = f"SELECT id, pack, offset, length, checksum FROM chunk WHERE id IN ({marks})"  # noqa: S608
            yield from self._rows(query, batch)

    def add_pack(
        self, pack_id: bytes, size: int, entries: Sequence[Entry], stale: Iterable[bytes] = ()
    ) -> int:
        """Takes in a sealed pack and returns its key. A chunk that is known already keeps its place.

        The chunks of `stale` lose theirs first: the pack they were in is gone or cut short.
        """
        with self._transaction():
            self._db.executemany("DELETE FROM chunk WHERE id = ?", ((chunk_id,) for chunk_id in stale))
            cursor = self._db.execute("INSERT INTO pack (id, size) VALUES (?, ?)", (pack_id, size))
            key = cursor.lastrowid
            if key is None:  # pragma: no cover - an INSERT always has one
                raise OSError(errno.EIO, "the catalog gave no pack key")
            self._insert(key, entries)
        return key

    def add_chunks(self, key: int, entries: Sequence[Entry]) -> None:
        """Takes in those chunks of a pack that have no place, since the pack that had them is forgotten."""
        with self._transaction():
            self._insert(key, entries)

    def forget_chunk(self, chunk_id: bytes) -> None:
        """Forgets one chunk, whose bytes are no longer what its id says."""
        with self._transaction():
            self._db.execute("DELETE FROM chunk WHERE id = ?", (chunk_id,))

    def drop_packs(self, keys: Iterable[int]) -> None:
        """Forgets packs and all chunks in them."""
        with self._transaction():
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS gone (key INTEGER PRIMARY KEY)")
            self._db.execute("DELETE FROM gone")
            self._db.executemany("INSERT INTO gone VALUES (?)", ((key,) for key in keys))
            self._db.execute("DELETE FROM chunk WHERE pack IN (SELECT key FROM gone)")
            self._db.execute("DELETE FROM pack WHERE key IN (SELECT key FROM gone)")

    def chunk_count(self) -> int:
        """How many chunks the catalog knows."""
        return int(next(iter(self._rows("SELECT count(*) FROM chunk")))[0])

    def _insert(self, key: int, entries: Sequence[Entry]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO chunk VALUES (?, ?, ?, ?, ?)",
            ((e.id, key, e.offset, e.length, _signed(e.checksum)) for e in entries),
        )

    def _rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple]:  # type: ignore[type-arg]
        with self._lock, _as_os_error(self._path):
            return iter(self._db.execute(query, values).fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, _as_os_error(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors, a full disk among them.
                with suppress(sqlite3.OperationalError):
                    self._db.execute("ROLLBACK")
                raise


def discard(path: Path) -> None:
    """Removes a catalog, which the next writer rebuilds from the packs."""
    for suffix in ("", "-wal", "-shm", _DAMAGED):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def is_known_damaged(path: Path) -> bool:
    """Whether somebody has met damage in the catalog, which opening it does not show."""
    return path.with_name(path.name + _DAMAGED).exists()


def _base_code(error: sqlite3.Error) -> int:
    """SQLite's error without its extension; 0 for the errors of Python's own module, which have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _signed(checksum: int) -> int:
    return checksum - _U64 if checksum >= _U64 >> 1 else checksum


@contextmanager
def _as_os_error(path: Path) -> Iterator[None]:
    """SQLite's troubles with the disk as the errno they come from."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _base_code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            with suppress(OSError):
                path.with_name(path.name + _DAMAGED).touch()
            raise CatalogDamaged(
                f"the catalog is damaged: {error}", hint="start `kvtool mount` to rebuild it"
            ) from error
        is_full = getattr(error, "sqlite_errorcode", 0) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
        code = errno.ENOSPC if is_full else errno.EIO
        raise OSError(code, f"catalog: {error}", str(path)) from error
