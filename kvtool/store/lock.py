"""One writer a store: an flock on STORE/lock, released by the kernel when its last holder dies.

The file says in which boot its last holder ran, and its pid, in place of which a clean stop leaves a `-`.
Only the file of a lock that was never held is empty.

The store's directory is locked too: people delete a file `lock` that is in their way, and two writers would
lose what the other has just saved.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from kvtool.errors import StoreLocked
from kvtool.store.layout import Layout

_NOBODY = "-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class StoreLock:
    """The held lock: its descriptor (an inherited copy holds it too), and how the last holder stopped.

    `rebooted`: the machine has been off since, maybe by a power cut, so the store is unclean in any case.
    """

    fd: int
    unclean: bool
    rebooted: bool
    folder_fd: int | None

    def mended(self) -> None:
        """Notes that what the last stop left has been mended: from here on it is this boot's writer."""
        _write(self.fd, _this_boot())

    def release(self) -> None:
        """Lets go after a clean stop."""
        _write(self.fd, _this_boot(), holder=_NOBODY)
        self.abandon()

    def abandon(self) -> None:
        """Lets go and leaves the rest to the next writer."""
        os.close(self.fd)
        if self.folder_fd is not None:
            os.close(self.folder_fd)


def acquire(layout: Layout) -> StoreLock:
    """Locks the store at `layout`, whose directory must exist; raises StoreLocked naming the holder."""
    fd = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 128, 0).decode(errors="replace").partition(" ")[0]
        os.close(fd)
        raise StoreLocked(
            f"store {layout.root} is in use by process {holder if holder.isdigit() else 'unknown'}",
            hint=f"work in its mount, or unmount it first: see `kvtool status --store.path {layout.root}`;"
            " one that is no longer there writes what was saved to the disk",
        ) from None
    try:
        folder_fd = _lock_folder(layout)
    except BlockingIOError:
        os.close(fd)
        raise StoreLocked(
            f"store {layout.root} is in use, though its file `lock` has been deleted",
            hint="unmount it (`grep kvtool /proc/mounts` says where it is), or wait for the command in it",
        ) from None
    holder, _, boot = os.pread(fd, 128, 0).decode(errors="replace").strip().partition(" ")
    is_new = not os.fstat(fd).st_size
    rebooted = not is_new and boot != _this_boot()
    # An earlier boot stays noted until its damage is mended: this process may be killed before.
    _write(fd, (boot or "unknown") if rebooted else _this_boot())
    if is_new:
        os.fsync(fd)  # after a power cut it must not look as if nobody had ever held it
    unclean = rebooted or not (is_new or holder == _NOBODY)
    return StoreLock(fd, unclean=unclean, rebooted=rebooted, folder_fd=folder_fd)


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


def _lock_folder(layout: Layout) -> int | None:
    """Locks the store's directory; None where the file system cannot. Raises BlockingIOError."""
    fd = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:  # NFS locks no directory
        os.close(fd)
        return None
    return fd


def _this_boot() -> str:
    return _BOOT_ID.read_text().strip()


def _write(fd: int, boot: str, holder: str | None = None) -> None:
    text = f"{holder or os.getpid()} {boot}\n".encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
