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
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from kvtool.core.index import ID_SIZE, Index
from kvtool.core.pack import Entry
from kvtool.core.readplan import Placement
from kvtool.errors import CatalogDamaged, ChunkMissing, NoStore, StoreTooNew
from kvtool.store import catalog_files
from kvtool.store.checkpoint import MOST_PAGES, Checkpoints

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pack (key INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL,
    size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chunk (id BLOB PRIMARY KEY, pack INTEGER NOT NULL, offset INTEGER NOT NULL,
    length INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS chunk_place ON chunk (pack, offset, length, checksum);
"""
# Flipped bits that SQLite's integrity check lets pass make other types of values.
_WRONG_ROW = {
    "pack": "typeof(id) != 'blob' OR length(id) != 16 OR typeof(size) != 'integer'",
    "chunk": "typeof(id) != 'blob' OR length(id) != 32 OR typeof(pack) != 'integer'"
    " OR typeof(offset) != 'integer' OR typeof(length) != 'integer' OR typeof(checksum) != 'integer'",
}
# user_version. 0 is a new one, in a new store; numbers above are those of later schemas.
_COMPLETE, _IN_THE_MAKING = 1, 2
_COLUMNS = "id, pack, offset, length, checksum"
_BATCH = 500  # ids in one query
_SCAN = 20_000  # rows at once when all are read: the catalog is free for others in between
_IN_SPAN = "FROM chunk WHERE pack = ? AND offset >= ? AND offset < ? ORDER BY offset"
# All rows as one: to make values of Python of each takes five times as long.
_AS_ONE = "SELECT CAST(group_concat(id, '') AS BLOB), group_concat(length), group_concat(offset) FROM"
_STRIDE = 16  # of a file's chunks, every how many-th is looked up to see which lie together
_U64 = 1 << 64


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


Row = tuple[bytes, int, int, int, int]  # a chunk's id, pack key, offset, length, checksum (signed)


class Part(NamedTuple):
    """Chunks of a pack in the order in which they lie there: its key, their ids, offsets and lengths."""

    pack: int
    ids: bytes
    offsets: "array[int]"
    lengths: "array[int]"


class Catalog:
    """One connection to a store's catalog; safe to use from several threads."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Opens the catalog; a writer makes it where there is none, and adds what an older one lacks.

        Raises NoStore, StoreTooNew, CatalogDamaged, OSError.
        """
        self._lock = threading.Lock()
        self._path = path
        self._checkpoints: Checkpoints | None = None
        mode = "rwc" if writable else "ro"
        if not writable and catalog_files.is_frozen(path):
            mode += "&immutable=1"  # else SQLite wants to make files beside it
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise catalog_files.damaged(path, "it is not a regular file")
        with catalog_files.as_os_error(path), ExitStack() as on_failure:
            try:
                self._db = sqlite3.connect(
                    f"{path.as_uri()}?mode={mode}", uri=True, check_same_thread=False, isolation_level=None
                )
                on_failure.callback(self._db.close)
                self._check_schema()
                if writable:
                    self._db.execute("PRAGMA journal_mode = WAL")
                    self._db.execute("PRAGMA synchronous = NORMAL")
                    self._db.executescript(_SCHEMA)
                elif not self.is_complete:
                    raise CatalogDamaged(
                        f"{path} was not made to the end",
                        hint="start `kvtool mount`, with some room on the disk",
                    )
                self._db.execute("PRAGMA cache_size = -16384")
                self._db.execute("SELECT count(*) FROM pack")
                self._db.execute("SELECT id FROM chunk LIMIT 1")  # lost alone, when the log is damaged
                on_failure.pop_all()
            except sqlite3.OperationalError as error:
                lacks = {sqlite3.SQLITE_ERROR} if path.exists() else {sqlite3.SQLITE_CANTOPEN}
                if not writable and catalog_files.base_code(error) in lacks:
                    raise NoStore(
                        f"{path} is not there", hint="start `kvtool mount` once to rebuild it"
                    ) from error
                raise

    @property
    def is_complete(self) -> bool:
        """Whether all packs were entered when it was made: else readers would miss chunks that are there."""
        return self._user_version() != _IN_THE_MAKING

    def set_complete(self, is_complete: bool) -> None:
        """Notes whether it is."""
        with self._transaction():
            self._db.execute(f"PRAGMA user_version = {_COMPLETE if is_complete else _IN_THE_MAKING}")

    def checkpoint_aside(self) -> None:
        """Has a thread move the log into the file from now on: for who must not wait for the disk."""
        self._db.execute(f"PRAGMA wal_autocheckpoint = {MOST_PAGES}")
        self._checkpoints = Checkpoints(self._path)

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

    def last_key(self) -> int:
        """The largest key that a pack ever had, 0 before the first."""
        return max((row[0] for row in self._rows("SELECT seq FROM sqlite_sequence")), default=0)

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Location]:
        """Where those of `ids` lie that the catalog knows."""
        return {
            chunk_id: Location(pack, offset, length, checksum % _U64)
            for chunk_id, pack, offset, length, checksum in self._chunk_rows(list(dict.fromkeys(ids)))
        }

    def rows(self, chunks: Sequence[tuple[bytes, int]]) -> dict[bytes, Row]:
        """The rows of chunks (id, length) in a file's order, by id; and some that nobody asked for."""
        found, stretches = self._sampled(chunks, slack=2)
        for stretch in stretches:
            span = _span(*(found[chunks[at][0]] for at in stretch))
            found.update((row[0], row) for row in self._rows(f"SELECT {_COLUMNS} {_IN_SPAN}", span))
        rest = dict.fromkeys(chunk_id for chunk_id, _ in chunks if chunk_id not in found)
        found.update((row[0], row) for row in self._chunk_rows(list(rest)))
        return found

    def parts(self, index: Index) -> tuple[list[Part], set[tuple[bytes, int]]]:
        """Where the chunks of `index` lie; and which (id, length) are not known, or not of that length."""
        chunks = list(index.chunks())
        found, stretches = self._sampled(chunks, slack=1)
        parts: list[Part] = []
        rest, done = [], 0
        for first, last in stretches:
            span = _span(found[chunks[first][0]], found[chunks[last][0]])
            lengths = array("q", (length for _, length in chunks[first : last + 1]))
            ids = index.ids[ID_SIZE * first : ID_SIZE * (last + 1)]
            there = next(self._rows(f"{_AS_ONE} (SELECT id, length, offset {_IN_SPAN})", span))
            if there[:2] == (ids, ",".join(map(str, lengths))):
                parts.append(Part(span[0], ids, array("q", map(int, there[2].split(","))), lengths))
                rest += chunks[done:first]
                done = last + 1
        rest += chunks[done:]
        rows = self.rows(rest)
        known = {row for chunk_id, length in rest if (row := rows.get(chunk_id)) and row[3] == length}
        by_pack = groupby(sorted(known, key=itemgetter(1, 2)), key=itemgetter(1))
        parts += [_part(pack, list(its)) for pack, its in by_pack]
        return parts, set(rest).difference((row[0], row[3]) for row in known)

    def version(self) -> int:
        """A number that is another one when somebody else has changed the catalog."""
        return int(next(self._rows("PRAGMA data_version"))[0])

    def place(self, index: Index) -> Placement:
        """Where every chunk of `index` lies. Raises ChunkMissing naming the first that is not there."""
        chunks = list(index.chunks())
        found = self.rows(chunks)
        packs, offsets, checksums = array("Q"), array("Q"), array("Q")
        for chunk_id, length in chunks:
            row = found.get(chunk_id)
            if row is None or row[3] != length:
                raise ChunkMissing(
                    f"chunk {chunk_id.hex()} ({length} bytes) is not in the store",
                    hint="delete the snapshot, or save it again",
                )
            packs.append(row[1])
            offsets.append(row[2])
            checksums.append(row[4] % _U64)
        return Placement(packs, offsets, checksums)

    def _sampled(
        self, chunks: Sequence[tuple[bytes, int]], *, slack: int
    ) -> tuple[dict[bytes, Row], list[tuple[int, int]]]:
        """The rows of some chunks of a file, and from which to which (by number) the others may lie together.

        Mostly neighbours in a file are neighbours in a pack, and then two samples are as far from each other
        in both; up to `slack` times as far is taken for that. To read in the order of the pack costs a fifth.
        """
        starts = list(accumulate((length for _, length in chunks), initial=0))
        samples = range(0, len(chunks), _STRIDE)
        found = {row[0]: row for row in self._chunk_rows(list({chunks[i][0]: None for i in samples}))}
        stretches: list[tuple[int, int]] = []
        for first, last in pairwise(samples):
            row, next_row = found.get(chunks[first][0]), found.get(chunks[last][0])
            if row and next_row and row[1] == next_row[1]:
                here, there = starts[last] - starts[first], next_row[2] - row[2]
                if here <= there * slack and there <= here * slack:
                    joins = stretches and stretches[-1][1] == first
                    stretches.append((stretches.pop()[0] if joins else first, last))
        return found, stretches

    def _chunk_rows(self, ids: Sequence[bytes]) -> Iterator[Row]:
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            marks = ",".join("?" * len(batch))
            yield from self._rows(f"SELECT {_COLUMNS} FROM chunk WHERE id IN ({marks})", batch)  # noqa: S608

    def add_pack(
        self, pack_id: bytes, size: int, entries: Sequence[Entry], stale: Iterable[bytes] = ()
    ) -> int:
        """Takes in a sealed pack and returns its key. A chunk that is known already keeps its place.

        The chunks of `stale` lose theirs first: the pack they were in is gone or cut short.
        """
        with self._transaction():
            self._forget(stale)
            cursor = self._db.execute("INSERT INTO pack (id, size) VALUES (?, ?)", (pack_id, size))
            key = cursor.lastrowid
            if key is None:  # pragma: no cover - an INSERT always has one
                raise OSError(errno.EIO, "the catalog gave no pack key")
            self._insert(key, entries)
        return key

    def move_chunks(self, key: int, entries: Sequence[Entry]) -> None:
        """Has the chunks of `entries` lie in the pack `key` from now on, wherever they were."""
        with self._transaction():
            self._forget(entry.id for entry in entries)
            self._insert(key, entries)

    def add_chunks(self, key: int, entries: Sequence[Entry]) -> None:
        """Takes in those chunks of a pack that have no place, since the pack that had them is forgotten."""
        with self._transaction():
            self._insert(key, entries)

    def forget_chunk(self, chunk_id: bytes) -> None:
        """Forgets one chunk, whose bytes are no longer what its id says."""
        with self._transaction():
            self._forget([chunk_id])

    def scan(self) -> Iterator[tuple[bytes, int, int, int]]:
        """(id, pack, offset, length) of every chunk, by id; changes made meanwhile may be seen or not."""
        last = b""
        query = "SELECT id, pack, offset, length FROM chunk WHERE id > ? ORDER BY id LIMIT ?"
        while rows := list(self._rows(query, (last, _SCAN))):
            yield from rows
            last = rows[-1][0]

    def forget_copies(self, copies: Iterable[tuple[bytes, bytes, int, int]]) -> None:
        """Forgets the chunks that have their place there: each pack id, chunk id, offset, length."""
        query = (
            "DELETE FROM chunk WHERE pack = (SELECT key FROM pack WHERE id = ?)"
            " AND id = ? AND offset = ? AND length = ?"
        )
        with self._transaction():
            self._db.executemany(query, copies)

    def drop_packs(self, keys: Iterable[int]) -> None:
        """Forgets packs and all chunks in them."""
        rows = [(key,) for key in keys]
        with self._transaction():
            self._db.executemany("DELETE FROM chunk WHERE pack = ?", rows)
            self._db.executemany("DELETE FROM pack WHERE key = ?", rows)

    def chunk_count(self) -> int:
        """How many chunks the catalog knows."""
        return int(next(iter(self._rows("SELECT count(*) FROM chunk")))[0])

    def check(self) -> None:
        """Raises CatalogDamaged when SQLite's own check finds damage, or a row is none that kvtool writes."""
        said = [str(row[0]) for row in self._rows("PRAGMA integrity_check(1)")]
        if said != ["ok"]:
            raise catalog_files.damaged(self._path, said[0])
        for table, wrong in _WRONG_ROW.items():
            if next(self._rows(f"SELECT count(*) FROM {table} WHERE {wrong}"))[0]:  # noqa: S608
                raise catalog_files.damaged(self._path, f"a row of the table {table} holds no {table}")

    def counts(self) -> dict[int, int]:
        """How many chunks the catalog places in each pack, by the pack's key."""
        return dict(self._rows("SELECT pack, count(*) FROM chunk GROUP BY pack"))

    def entries(self, key: int) -> list[Entry]:
        """What the catalog knows of one pack: its footer, but for chunks that have their places elsewhere."""
        query = "SELECT id, offset, length, checksum FROM chunk WHERE pack = ?"
        return [
            Entry(chunk_id, offset, length, checksum % _U64)
            for chunk_id, offset, length, checksum in self._rows(query, (key,))
        ]

    def _user_version(self) -> int:
        return int(next(self._rows("PRAGMA user_version"))[0])

    def _check_schema(self) -> None:
        found = self._user_version()
        if found > _IN_THE_MAKING:
            raise StoreTooNew(
                f"{self._path} is of schema {found}, this kvtool knows {_IN_THE_MAKING}",
                hint="upgrade kvtool; or move that file away and start `kvtool mount`, which makes it anew",
            )

    def _forget(self, ids: Iterable[bytes]) -> None:
        self._db.executemany("DELETE FROM chunk WHERE id = ?", ((chunk_id,) for chunk_id in ids))

    def _insert(self, key: int, entries: Sequence[Entry]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO chunk VALUES (?, ?, ?, ?, ?)",
            ((e.id, key, e.offset, e.length, _signed(e.checksum)) for e in entries),
        )

    def _rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple]:  # type: ignore[type-arg]
        with self._lock, catalog_files.as_os_error(self._path):
            return iter(self._db.execute(query, values).fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, catalog_files.as_os_error(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors, a full disk among them.
                with suppress(sqlite3.OperationalError):
                    self._db.execute("ROLLBACK")
                raise
            if self._checkpoints is not None:
                self._checkpoints.changed(self._db.total_changes)


def _span(first: Row, last: Row) -> tuple[int, int, int]:
    return first[1], first[2], last[2] + last[3]


def _part(pack: int, rows: Sequence[Row]) -> Part:
    ids, _, offsets, lengths, _ = zip(*rows, strict=True)
    return Part(pack, b"".join(ids), array("q", offsets), array("q", lengths))


def _signed(checksum: int) -> int:
    return checksum - _U64 if checksum >= _U64 >> 1 else checksum
