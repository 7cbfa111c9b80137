"""What survives a power cut: file systems written out, and a mark that says which packs were.

The mark is a pack's key, and no time: clocks are set back.
"""

import ctypes
import errno
import os
from pathlib import Path

from kvtool.store.layout import Layout, fsync_directory


def sync_all(layout: Layout, newest: int) -> None:
    """Has everything in store and stub tree survive a power cut (syncfs(2)). Raises OSError.

    Notes that packs with keys up to `newest`, which were sealed before, do. A mount calls it at its end, and
    a collection before it deletes anything: a snapshot that was replaced or deleted may come back after a
    power cut as long as that is not on the disk, and would then lack what was deleted.
    """
    for folder in (layout.root, layout.stubs):
        sync_folder(folder)
    _check_regular(layout.synced)
    layout.synced.write_text(f"{newest}\n")


def synced_up_to(layout: Layout) -> int:
    """The key of the newest pack that a power cut cannot have hit, 0 when that is not known."""
    try:
        _check_regular(layout.synced)
        return int(layout.synced.read_text())
    except (OSError, ValueError):  # never synced, or half written when the power went: that is a smaller one
        return 0


def forget_mark(layout: Layout) -> None:
    """For who makes the catalog anew, with other keys. Raises OSError."""
    if os.path.lexists(layout.synced):
        layout.synced.unlink()
        fsync_directory(layout.root)


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
