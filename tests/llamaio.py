"""Write and read a file the way llama-server does, system call by system call.

A save goes through glibc's stdio: full buffers, then whole blocks straight from the caller's memory. Models with
recurrent state append their checkpoints through a second descriptor. A restore opens the file three times.
"""

import os
from collections.abc import Iterable, Iterator

from tests.synth import Snapshot

_PAGE = 4096
_STDIO_LIMIT = 8192


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


def read_like_llama(path: str, state_end: int | None = None) -> bytes:
    """Restore: a look at the tail and the first page, then all of it (up to `state_end`), then the checkpoints."""
    with _Closing(os.open(path, os.O_RDONLY)) as fd:
        size = _read_tail(fd)
        os.read(fd, _PAGE)
    end = size if state_end is None else state_end
    with _Closing(os.open(path, os.O_RDONLY)) as fd:
        _read_tail(fd)
        parts = list(_read_to(fd, end, 1 << 24))
    if end < size:
        with _Closing(os.open(path, os.O_RDONLY)) as fd:
            os.lseek(fd, 0, os.SEEK_END)
            at = os.lseek(fd, end, os.SEEK_SET)
            while at < size:
                for want in (2 * _PAGE - 1, 13 << 20):
                    parts += _read_to(fd, want, want)
                at = os.lseek(fd, 0, os.SEEK_CUR)
    return b"".join(parts)


def _read_tail(fd: int) -> int:
    size = os.fstat(fd).st_size
    os.lseek(fd, size - size % _PAGE, os.SEEK_SET)
    os.read(fd, _PAGE)
    os.lseek(fd, 0, os.SEEK_SET)
    return size


def _read_to(fd: int, length: int, step: int) -> Iterator[bytes]:
    """Read so many bytes, or to the end of the file."""
    while length and (part := os.read(fd, min(step, length))):
        length -= len(part)
        yield part


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
