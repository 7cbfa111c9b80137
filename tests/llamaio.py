"""Write and read a file the way llama-server does, system call by system call.

A save goes through glibc's stdio: full buffers, then whole blocks straight from the caller's memory. Models
with recurrent state append their checkpoints through a second descriptor. A restore opens the file three
times.
"""

import os
from collections.abc import Iterable, Iterator

from tests.synth import Snapshot

_PAGE = 4096
_STDIO_LIMIT = 8192
_CHECKPOINT = 13 << 20


def stdio_writes(pieces: Iterable[bytes], buffer: int = _PAGE) -> Iterator[bytes | memoryview]:
    """The `write` calls that glibc makes of these `fwrite` calls with a buffer of so many bytes."""
    held = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        if held or len(rest) < buffer:
            room = buffer - len(held)
            held += rest[:room]
            rest = rest[room:]
            if len(held) < buffer or (not rest and len(held) == buffer):
                continue
            yield bytes(held)
            held.clear()
        whole = len(rest) - len(rest) % buffer
        if whole:
            yield rest[:whole]
        held += rest[whole:]
    if held:
        yield bytes(held)


def write_like_llama(path: str, snapshot: Snapshot, *, buffer: int | None = None, sync: bool = False) -> int:
    """Save a snapshot under this name, as it is (no `.tmp`). Returns the bytes written.

    The stdio buffer is what glibc would take from `st_blksize`, unless given. `sync` adds the fsync that the
    server does not do, for comparisons. Errors come out as OSError, from any write or from close.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with _Closing(fd):
        size = buffer or min(os.fstat(fd).st_blksize, _STDIO_LIMIT)
        for call in stdio_writes(snapshot.pieces, size):
            _write_all(fd, call)
        if sync and not snapshot.appendix:
            os.fsync(fd)
    if snapshot.appendix:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        with _Closing(fd):
            os.lseek(fd, 0, os.SEEK_END)
            for parts in snapshot.appendix:
                if (written := os.writev(fd, parts)) < sum(map(len, parts)):
                    _write_all(fd, b"".join(parts)[written:])
            if sync:
                os.fsync(fd)
    return snapshot.size


def save_like_proxy(directory: str, name: str, snapshot: Snapshot) -> str:
    """Save under NAME.tmp and rename over NAME. Returns the path."""
    path = os.path.join(directory, name)
    write_like_llama(path + ".tmp", snapshot)
    os.rename(path + ".tmp", path)
    return path


def read_like_llama(path: str, state_end: int | None = None) -> bytearray:
    """Restore: a look at the tail and the first page, then the state (up to `state_end`, else everything) in
    large reads, then the checkpoints.
    """
    with _Closing(os.open(path, os.O_RDONLY)) as fd:
        size = _read_tail(fd)
        os.read(fd, _PAGE)
    whole = bytearray(size)
    end = size if state_end is None else state_end
    with _Closing(os.open(path, os.O_RDONLY)) as fd:
        _read_tail(fd)
        at = _read_into(fd, whole, 0, end, 1 << 24)
    if end < size:
        with _Closing(os.open(path, os.O_RDONLY)) as fd:
            os.lseek(fd, 0, os.SEEK_END)
            os.lseek(fd, end, os.SEEK_SET)
            step = 2 * _PAGE - 1
            while at < size:
                at = _read_into(fd, whole, at, min(size, at + step), step)
                step = 2 * _PAGE - 1 if step == _CHECKPOINT else _CHECKPOINT
    return whole


def _read_tail(fd: int) -> int:
    size = os.fstat(fd).st_size
    os.lseek(fd, size - size % _PAGE, os.SEEK_SET)
    os.read(fd, _PAGE)
    os.lseek(fd, 0, os.SEEK_SET)
    return size


def _read_into(fd: int, whole: bytearray, start: int, end: int, step: int) -> int:
    """Fill `whole` from `start` to `end`, a short file is an EOFError. Returns `end`."""
    view = memoryview(whole)
    while start < end:
        got = os.readv(fd, [view[start : min(end, start + step)]])
        if not got:
            raise EOFError(f"the file ends at byte {start} of {len(whole)}")
        start += got
    return end


def _write_all(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


class _Closing:
    """A descriptor that is closed once, and whose close may raise."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
