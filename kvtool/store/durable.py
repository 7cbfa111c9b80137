"""What survives a power cut: file systems written out, and a mark that says up to when they were."""

import ctypes
import errno
import os
import time
from pathlib import Path

from kvtool.store.layout import Layout

_SLACK = 10.0  # seconds: file systems keep coarser times than the clock


def sync_all(layout: Layout) -> None:
    """Has everything in store and stub tree survive a power cut (syncfs(2)), and notes when. Raises OSError.

    A collection does so before it deletes anything: a snapshot that was replaced or deleted may come back
    after a power cut as long as that is not on the disk, and would then lack what was deleted.
    """
    began = time.time()
    for folder in (layout.root, layout.stubs):
        _syncfs(folder)
    _check_regular(layout.synced)
    layout.synced.write_text(f"{began:.0f}\n")


def may_be_lost(layout: Layout, path: Path) -> bool:
    """Whether a power cut may have hit the file at `path`: it was written after the last `sync_all`."""
    try:
        _check_regular(layout.synced)
        return path.stat().st_mtime > float(layout.synced.read_text()) - _SLACK
    except (OSError, ValueError):  # never synced, or half written when the power went
        return True


def _check_regular(path: Path) -> None:
    """Raises OSError for anything else that is there: opening a pipe would wait for ever."""
    if os.path.lexists(path) and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file; move it away", str(path))


def _syncfs(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(fd)
