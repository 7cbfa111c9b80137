"""Where a mount may be put, and what the kernel says of those that are there."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from kvtool.errors import KvtoolError, UsageError
from kvtool.store import lock
from kvtool.store.layout import Layout

_FUSE_DEVICE = (10, 229)  # Linux's list of devices (devices.txt)
_PREFIX = "kvtool:"
_FUSE_CONF = Path("/etc/fuse.conf")


@dataclass(frozen=True, slots=True)
class Mounted:
    """A kvtool mount in this mount namespace: its place, the store's path, and device number MAJ:MIN."""

    mountpoint: Path
    store: Path
    device: str


def fsname(layout: Layout) -> str:
    """The name that the mount has in the table of mounts; ASCII without commas, as libfuse's options want."""
    return _PREFIX + quote(os.fsencode(layout.root))


def mounts() -> Iterator[Mounted]:
    """All kvtool mounts, from /proc/self/mountinfo (proc(5)): a hung mount is not touched."""
    # Split at line feeds alone: a name may hold what else ends a line.
    for line in Path("/proc/self/mountinfo").read_bytes().removesuffix(b"\n").split(b"\n"):
        left, _, right = line.partition(b" - ")
        fields, (kind, source, *_) = left.split(b" "), right.split(b" ")
        name = _unescape(source)
        if kind.startswith(b"fuse") and name.startswith(_PREFIX):
            store = os.fsdecode(unquote_to_bytes(name[len(_PREFIX) :]))
            yield Mounted(Path(_unescape(fields[4])), Path(store), fields[2].decode())


def find(mountpoint: Path) -> Mounted | None:
    """The kvtool mount at that path, the topmost one."""
    place = _resolve(mountpoint)
    found = None
    for mounted in mounts():
        if mounted.mountpoint == place:
            found = mounted
    return found


def check(mountpoint: Path, layout: Layout) -> Path:
    """The absolute path, when a mount of the store can be put there; a dead kvtool mount is taken down first.

    Raises UsageError naming what is in the way, KvtoolError when FUSE cannot be used.
    """
    place = _resolve(mountpoint)
    _take_down_dead(place)
    try:
        status = os.stat(place)
    except NotADirectoryError:
        raise UsageError(
            f"mountpoint {mountpoint} lies below a file", hint="name an empty directory"
        ) from None
    except FileNotFoundError:
        raise UsageError(
            f"mountpoint {mountpoint} does not exist", hint=f"make it: mkdir -p {mountpoint}"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"mountpoint {mountpoint} is not a directory", hint="name an empty directory")
    if (there := find(place)) is not None:
        raise UsageError(
            f"a mount of store {there.store} is already at {mountpoint}", hint=f"kvtool umount {mountpoint}"
        )
    for name, other in (("store", layout.root), ("stub tree", layout.stubs)):
        tree = _resolve(other)
        if place == tree or place in tree.parents or tree in place.parents:
            raise UsageError(
                f"mountpoint {mountpoint} and the {name} {other} overlap",
                hint="mount on a directory of its own",
            )
    if os.listdir(place):
        raise UsageError(f"mountpoint {mountpoint} is not empty", hint="name an empty directory")
    if not os.path.exists("/dev/fuse"):
        raise KvtoolError(
            "/dev/fuse does not exist", hint="load the module (modprobe fuse) or give it to the container"
        )
    device = os.stat("/dev/fuse")
    if not stat.S_ISCHR(device.st_mode) or device.st_rdev != os.makedev(*_FUSE_DEVICE):
        raise KvtoolError("/dev/fuse is not the FUSE device", hint="give the host's own to the container")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise KvtoolError(
            "no permission for /dev/fuse", hint="run as root, or make it readable and writable for you"
        )
    return place


def check_allow_other() -> None:
    """Asked when mounting failed: raises UsageError if fuse.conf keeps this user from letting others in."""
    if os.geteuid() == 0:
        return
    try:
        lines = _FUSE_CONF.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    if "user_allow_other" not in map(str.strip, lines):
        raise UsageError(
            f"mount.allow_other: {_FUSE_CONF} does not have the line user_allow_other, without which only"
            " root may let other users into a mount",
            hint=f"as root: echo user_allow_other >> {_FUSE_CONF}; or set mount.allow_other to false",
        )


def take_down(mountpoint: Path) -> None:
    """Unmounts, busy or not. Raises KvtoolError."""
    command = ["umount", "-l", "--", str(mountpoint)]
    if os.geteuid() != 0:
        command = ["fusermount3", "-uz", "--", str(mountpoint)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and find(mountpoint) is not None:
        raise KvtoolError(f"cannot unmount {mountpoint}: {done.stderr.strip()}")


def ask(mountpoint: Path) -> "subprocess.Popen[bytes]":
    """Starts a process that asks a mount something which the kernel never answers by itself; exit code 0 once
    it has the answer.

    A process: a mount that waits for its own answer could not even be killed.
    """
    question = "import os, sys; os.statvfs(sys.argv[1])"
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", question, str(mountpoint)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _take_down_dead(place: Path) -> None:
    """Takes down what a killed mount left behind: "Transport endpoint is not connected"."""
    while (there := find(place)) is not None and not lock.is_held(Layout(there.store, there.store)):
        try:
            os.statvfs(place)  # stat(2) may be answered from what the kernel remembers
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                return
            take_down(place)
        else:
            return


def _resolve(path: Path) -> Path:
    """The absolute path without links. A kvtool mount there is not touched, since it may hang."""
    place = Path(os.path.realpath(path.absolute().parent)) / path.absolute().name
    if any(mounted.mountpoint == place for mounted in mounts()):
        return place
    return Path(os.path.realpath(place))


def _unescape(field: bytes) -> str:
    """A field of mountinfo, where blanks and the like are octal."""
    return os.fsdecode(field.decode("latin-1").encode("latin-1").decode("unicode_escape").encode("latin-1"))
