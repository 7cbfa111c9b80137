"""Looking at stored chunks: whether the bytes in a pack are those that their SHA-256 names."""

import hashlib
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kvtool.core.pack import EntryFields

Kind = Literal["corrupt", "missing", "unreadable"]

_PIECE = 32 << 20  # bytes mapped at once
_GAP = 64 << 10  # bytes that nobody asked for and that are mapped all the same
_POPULATE_READ = 22  # madvise(2), MADV_POPULATE_READ: a page that cannot be read is an error and no SIGBUS


class Fault(NamedTuple):
    """What is wrong with one copy of a chunk, and for "unreadable" the errno."""

    kind: Kind
    reason: str
    errno: int = 0


class Looked(NamedTuple):
    """The bytes of the chunks looked at, and the faults by the chunk's number."""

    bytes: int
    faults: dict[int, Fault]


def look_at(path: Path, entries: Sequence[EntryFields]) -> Looked:
    """Looks at chunks of the pack at `path`, which ascend by offset."""
    return Looked(sum([length for _, _, length, _ in entries]), _faults(path, entries))


def _faults(path: Path, entries: Sequence[EntryFields]) -> dict[int, Fault]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return dict.fromkeys(range(len(entries)), Fault("missing", "the pack is gone"))
    except OSError as error:
        return dict.fromkeys(range(len(entries)), _unreadable(error))
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return dict.fromkeys(range(len(entries)), Fault("unreadable", "the pack is not a regular file"))
        faults: dict[int, Fault] = {}
        for first, last in _pieces(entries):
            try:
                faults |= _mapped(fd, entries, first, last)
            except (OSError, ValueError, OverflowError):
                # Cut short, not readable as a whole, or a kernel before 5.14.
                for number in range(first, last):
                    if fault := _read(fd, status.st_size, entries[number]):
                        faults[number] = fault
        return faults
    finally:
        os.close(fd)


def _pieces(entries: Sequence[EntryFields]) -> Iterator[tuple[int, int]]:
    """The numbers of the first of neighbours that are mapped together, and of the next after the last."""
    first, start, end = 0, -1, -1
    for number, (_, offset, length, _) in enumerate(entries):
        if number and (not 0 <= offset - end <= _GAP or offset + length - start > _PIECE):
            yield first, number
            first = number
        if first == number:
            start = offset
        end = offset + length
    if entries:
        yield first, len(entries)


def _mapped(fd: int, entries: Sequence[EntryFields], first: int, last: int) -> dict[int, Fault]:
    """Looks at neighbours in the page cache itself: a copy out of it takes half as long as their hash."""
    start = entries[first][1] // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    size = entries[last - 1][1] + entries[last - 1][2] - start
    if not _is_cached(fd, start + size - 1):
        os.posix_fadvise(fd, start, size, os.POSIX_FADV_WILLNEED)
    faults: dict[int, Fault] = {}
    sha256 = hashlib.sha256
    with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ, offset=start) as mapped:
        mapped.madvise(_POPULATE_READ)
        with memoryview(mapped) as view:
            for number in range(first, last):
                chunk_id, offset, length, _ = entries[number]
                if sha256(view[offset - start : offset - start + length]).digest() != chunk_id:
                    faults[number] = _CORRUPT
    return faults


def _is_cached(fd: int, offset: int) -> bool:
    """Whether that byte can be read without the disk: to ask for pages that are there takes its time."""
    try:
        return os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def _read(fd: int, size: int, entry: EntryFields) -> Fault | None:
    chunk_id, offset, length, _ = entry
    if offset + length > size:
        return Fault("missing", "the pack is cut short")
    try:
        data = os.pread(fd, length, offset)
    except OSError as error:
        return _unreadable(error)
    return None if hashlib.sha256(data).digest() == chunk_id else _CORRUPT


def _unreadable(error: OSError) -> Fault:
    return Fault("unreadable", error.strerror or str(error), error.errno or 0)


_CORRUPT = Fault("corrupt", "the bytes are not those that the id names")
