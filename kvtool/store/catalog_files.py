"""The catalog's files: which there are, whether they can be written, and what SQLite's errors mean."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvtool.errors import CatalogDamaged

_DAMAGED = "-damaged"  # the suffix of a file that asks the next writer to rebuild the catalog
_ROOM = 1 << 20  # bytes; SQLite makes a file of 32 KiB beside a catalog, also to read it


def files(path: Path) -> list[Path]:
    """The files that a catalog at `path` may consist of, and the note that it is damaged."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal", _DAMAGED)]


def discard(path: Path) -> None:
    """Removes a catalog, which the next writer rebuilds from the packs."""
    for file in files(path):
        file.unlink(missing_ok=True)


def is_known_damaged(path: Path) -> bool:
    """Whether somebody has met damage in the catalog, which opening it does not show."""
    return path.with_name(path.name + _DAMAGED).exists()


def damaged(path: Path, what: str) -> CatalogDamaged:
    """The error to raise, after a note for the next writer, who rebuilds the catalog."""
    with suppress(OSError):
        path.with_name(path.name + _DAMAGED).touch()
    return CatalogDamaged(f"the catalog is damaged: {what}", hint="start `kvtool mount` to rebuild it")


def is_frozen(path: Path) -> bool:
    """Whether the disk cannot take the files that a reader makes, and all of it is in the one file."""
    if not path.exists() or path.with_name(path.name + "-wal").exists():
        return False
    disk = os.statvfs(path.parent)
    return bool(disk.f_flag & os.ST_RDONLY) or disk.f_bavail * disk.f_frsize < _ROOM


def base_code(error: sqlite3.Error) -> int:
    """SQLite's error without its extension; 0 for the errors of Python's own module, which have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def as_os_error(path: Path) -> Iterator[None]:
    """SQLite's troubles with the disk as the errno they come from."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if base_code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise damaged(path, str(error)) from error
        is_full = getattr(error, "sqlite_errorcode", 0) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
        code = errno.ENOSPC if is_full else errno.EIO
        if base_code(error) in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
            with suppress(OSError):  # who may only read cannot make the files beside it
                is_read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY
                code = errno.EROFS if is_read_only else errno.EACCES
        raise OSError(code, f"catalog: {error}", str(path)) from error
