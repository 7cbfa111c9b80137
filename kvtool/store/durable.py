"""What survives a power cut: file systems written out, and a mark that says which packs were.

The mark is a pack's key, and no time: clocks are set back. Behind it stands since when store.toml is what it
is (its ctime), which no copy has: what was true of a store need not be of one copied a moment ago.
"""

import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path

from kvtool.store.layout import Layout, fsync_directory

_FAILED = b"failed\n"  # in the mark's place, until a start on another boot has read what is there


def sync_all(layout: Layout, newest: int) -> None:
    """Has everything in store and stub tree survive a power cut (syncfs(2)). Raises OSError.

    Notes that packs with keys up to `newest`, which were sealed before, do; after a failure nothing is noted
    any more before `forget_mark`. A mount calls it at its end, and a collection before it deletes anything: a
    snapshot that was replaced or deleted may come back after a power cut as long as that is not on the disk,
    and would then lack what was deleted.
    """
    _check_regular(layout.synced)
    try:
        for folder in (layout.root, layout.stubs):
            sync_folder(folder)
    except OSError:
        # What failed is said once: who asks next is told that all is well, of pages that are lost.
        with suppress(OSError):
            layout.synced.write_bytes(_FAILED)
        raise
    with suppress(OSError):  # on a full disk the mark is empty then, and a collection makes room
        if not (layout.synced.exists() and layout.synced.read_bytes() == _FAILED):
            layout.synced.write_text(f"{newest} {_since(layout)}\n")


def synced_up_to(layout: Layout) -> int:
    """The key of the newest pack that a power cut cannot have hit, 0 when that is not known."""
    try:
        _check_regular(layout.synced)
        newest, since = map(int, layout.synced.read_text().split())
        return newest if since == _since(layout) else 0
    except (OSError, ValueError):  # never synced, failed, or half written when the power went
        return 0


def forget_mark(layout: Layout) -> None:
    """For who has read all that is newer, or has a catalog with other keys. Raises OSError."""
    if os.path.lexists(layout.synced):
        layout.synced.unlink()
        fsync_directory(layout.root)


def _since(layout: Layout) -> int:
    return layout.format.stat().st_ctime_ns


def _check_regular(path: Path) -> None:
    """Raises OSError for anything else that is there: opening a pipe would wait for ever."""
    if os.path.lexists(path) and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file; move it away", str(path))


def sync_folder(folder: Path) -> None:
    """Has all that the file system of `folder` holds survive a power cut. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(fd)
