"""One writer a store: an flock on STORE/lock, released by the kernel when its last holder dies.

The pid in the file is only information for the error message. What is still written there when the lock
is free says that its last holder did not stop cleanly, and in which boot it ran.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from kvtool.errors import StoreLocked
from kvtool.store.layout import Layout

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class StoreLock:
    """The held lock: its descriptor (an inherited copy holds it too), and how the last holder stopped."""

    fd: int
    unclean: bool
    rebooted: bool

    def mended(self) -> None:
        """Notes that what the last stop left has been mended: from here on it is this boot's writer."""
        _write(self.fd, _BOOT_ID.read_text().strip())

    def release(self) -> None:
        """Lets go after a clean stop."""
        os.ftruncate(self.fd, 0)
        os.close(self.fd)


def acquire(layout: Layout) -> StoreLock:
    """Locks the store at `layout`, whose directory must exist; raises StoreLocked naming the holder."""
    fd = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 128, 0).decode(errors="replace").partition(" ")[0] or "unknown"
        os.close(fd)
        raise StoreLocked(
            f"store {layout.root} is in use by process {pid}",
            hint=f"work in its mount, or unmount it first: see `kvtool status --store.path {layout.root}`",
        ) from None
    _, _, boot = os.pread(fd, 128, 0).decode(errors="replace").strip().partition(" ")
    this_boot = _BOOT_ID.read_text().strip()
    # An earlier boot stays noted until its damage is mended: this process may be killed before.
    _write(fd, boot or this_boot)
    return StoreLock(fd, unclean=bool(boot), rebooted=bool(boot) and boot != this_boot)


def is_held(layout: Layout) -> bool:
    """Whether some process has the store locked."""
    try:
        fd = os.open(layout.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _write(fd: int, boot: str) -> None:
    text = f"{os.getpid()} {boot}\n".encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
