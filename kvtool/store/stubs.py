"""Stubs: the plain files that stand for snapshots. Content: the chunk index. Extended attributes: the rest.

A stub is always replaced whole, by rename. One made by `create` is empty and marked incomplete until its
first commit, and is dropped after a crash.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from kvtool.core import index as chunk_index
from kvtool.core.index import Index
from kvtool.errors import IndexDamaged, Unfinished
from kvtool.store.layout import Layout, fsync_directory

PREFIX = b"user.kvtool."
LABEL = PREFIX + b"label."
SIZE = PREFIX + b"size"
CREATED = PREFIX + b"created"
USES = PREFIX + b"uses"
LAST_USED = PREFIX + b"last_used"
INCOMPLETE = PREFIX + b"incomplete"
ASIDE = b"new-"
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a stub's extended attributes say: bytes, ISO 8601 times, number of uses, labels by name."""

    size: int
    created: str
    uses: int
    last_used: str
    labels: dict[str, str]
    incomplete: bool


def now() -> bytes:
    """The present time as the attributes write it, in UTC."""
    return datetime.now(UTC).strftime(TIME).encode()


def read_index(path: bytes) -> Index:
    """The index in the stub at `path`. Raises IndexDamaged when it is no stub, Unfinished, OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            text = f"{os.fsdecode(path)} is not a stub but a link or a device"
            raise IndexDamaged(text, hint="move it away") from None
        raise
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            text = f"{os.fsdecode(path)} is not a stub but a special file"
            raise IndexDamaged(text, hint="move it away")
        try:
            # First the header: a file that is none may be of any size.
            head = file.read(chunk_index.HEADER_SIZE)
            chunk_index.check_header(head)
            return chunk_index.decode(head + file.read())
        except IndexDamaged as error:
            if not head and get(path, INCOMPLETE) is not None:
                text = f"{os.fsdecode(path)} is being saved for the first time"
                raise Unfinished(text, hint="it can be read once it is closed") from None
            text = f"stub {os.fsdecode(path)}: {error.message}"
            raise IndexDamaged(text, hint="delete the snapshot, or save it again") from None


def get(path: bytes, name: bytes) -> bytes | None:
    """One extended attribute, None when it is not set."""
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError as error:
        if error.errno in {errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM}:
            return None
        raise


def get_all(path: bytes) -> dict[bytes, bytes]:
    """All extended attributes in the `user` namespace."""
    names = (os.fsencode(name) for name in os.listxattr(path, follow_symlinks=False))
    return {
        name: os.getxattr(path, name, follow_symlinks=False) for name in names if name.startswith(b"user.")
    }


def attributes(path: bytes) -> Attributes:
    """The attributes of a stub, with zeros and empty text for what is not set or not readable."""
    found = get_all(path)

    def number(name: bytes) -> int:
        text = found.get(name, b"0")
        return int(text) if text.isdigit() else 0

    def text(name: bytes) -> str:
        return found.get(name, b"").decode("utf-8", "replace")

    labels = {
        os.fsdecode(name.removeprefix(LABEL)): os.fsdecode(value)
        for name, value in sorted(found.items())
        if name.startswith(LABEL)
    }
    return Attributes(number(SIZE), text(CREATED), number(USES), text(LAST_USED), labels, INCOMPLETE in found)


def seconds_of(text: str) -> float:
    """The seconds since the epoch of a time in an attribute; 0 for what is none."""
    try:
        # Twenty times as fast as strptime, of which a listing would need thousands.
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def malformed(found: Mapping[bytes, bytes]) -> list[bytes]:
    """The names of those attributes but the size whose values kvtool would never have written."""
    return [
        *(name for name in (USES,) if name in found and not found[name].isdigit()),
        *(name for name in (CREATED, LAST_USED) if name in found and not _is_time(found[name])),
    ]


def unknown(found: Mapping[bytes, bytes]) -> list[bytes]:
    """The names below `user.kvtool.` that this version does not know."""
    known = {SIZE, CREATED, USES, LAST_USED, INCOMPLETE}
    return [
        name
        for name in sorted(found)
        if name.startswith(PREFIX) and name not in known and not name.startswith(LABEL)
    ]


def count_use(path: bytes) -> None:
    """Notes one more use of the snapshot, now."""
    text = get(path, USES) or b"0"
    os.setxattr(path, USES, b"%d" % (int(text) + 1 if text.isdigit() else 1))
    os.setxattr(path, LAST_USED, now())


def inherit(source: bytes, target: bytes) -> None:
    """Gives the stub `source`, about to replace `target`, what goes on living under that name.

    The earlier date of creation, the uses of both, the later last use, and the labels it lacks.
    """
    mine, old = get_all(source), get_all(target)
    merged = {name: value for name, value in old.items() if name.startswith(LABEL) and name not in mine}
    if CREATED in old:
        merged[CREATED] = min(old[CREATED], mine.get(CREATED, old[CREATED]))
    if USES in old and old[USES].isdigit():
        own = mine.get(USES, b"0")
        merged[USES] = b"%d" % (int(old[USES]) + (int(own) if own.isdigit() else 0))
    if LAST_USED in old:
        merged[LAST_USED] = max(old[LAST_USED], mine.get(LAST_USED, b""))
    for name, value in merged.items():
        if mine.get(name) != value:
            os.setxattr(source, name, value)


def create(layout: Layout, path: bytes, mode: int, uid: int | None, gid: int | None) -> None:
    """Makes an empty stub, marked incomplete; `uid` and `gid` None leave the owner as it comes.

    Raises FileExistsError; the caller makes sure that nobody else makes names meanwhile.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    aside = _aside(layout)
    os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        os.setxattr(aside, INCOMPLETE, b"1")
        os.setxattr(aside, CREATED, now())
        if uid is not None and gid is not None:
            os.chown(aside, uid, gid)
        os.chmod(aside, mode)
        os.rename(aside, path)
    except BaseException:
        drop(aside)
        raise


def prepare(layout: Layout, index: Index, *, sync: bool) -> bytes:
    """Writes a new stub's content aside and returns its path there; `replace` puts it in place."""
    aside = _aside(layout)
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(fd, "wb") as file:
            file.write(chunk_index.encode(index))
            file.flush()
            if sync:
                os.fsync(fd)
        os.setxattr(aside, SIZE, b"%d" % index.size)
    except BaseException:
        drop(aside)
        raise
    return aside


def replace(aside: bytes, path: bytes, mtime_ns: int | None = None) -> None:
    """Commits: moves the stub `aside` over `path`, with mode, owner, atime and attributes of the one there.

    `mtime_ns` None takes the time of now. Without a stub at `path` (an offline save) the attributes are those
    of a new file. The stub aside is removed on failure.
    """
    try:
        keep = {CREATED: now()}
        atime_ns = time.time_ns()
        old = None
        with suppress(FileNotFoundError):
            old = os.lstat(path)
            atime_ns = old.st_atime_ns
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(aside, old.st_uid, old.st_gid)
            os.chmod(aside, stat.S_IMODE(old.st_mode))
            keep |= get_all(path)
        for name, value in keep.items():
            if name not in {SIZE, INCOMPLETE}:
                os.setxattr(aside, name, value)
        os.utime(aside, ns=(atime_ns, time.time_ns() if mtime_ns is None else mtime_ns))
        parent = os.path.dirname(path)
        directory = os.stat(parent)
        os.rename(aside, path)
        if old is not None:  # writing into a file is no change of its directory
            os.utime(parent, ns=(directory.st_atime_ns, directory.st_mtime_ns))
    except BaseException:
        drop(aside)
        raise


def drop(path: bytes) -> None:
    """Removes a stub that nothing refers to, or an empty directory, if it is there."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)


def name_of(layout: Layout, path: bytes) -> str:
    """The name in the mount of the stub at `path`."""
    return os.fsdecode(os.path.relpath(path, os.fsencode(layout.stubs)))


def walk(layout: Layout, failed: Callable[[bytes, OSError], None] | None = None) -> Iterator[bytes]:
    """The path of every file in the stub tree that is no directory, in order.

    A directory that cannot be read is left out and told to `failed`; without that it raises OSError.
    """
    pending = [os.fsencode(layout.stubs)]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except FileNotFoundError:
            if folder == os.fsencode(layout.stubs):
                raise
            continue  # removed or renamed since
        except OSError as error:
            if failed is None:
                raise
            failed(folder, error)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.path != os.fsencode(layout.stub_private):
                    pending.append(entry.path)
            else:
                yield entry.path


def drop_leftovers(layout: Layout) -> int:
    """Removes stubs being written and incomplete ones; only when no mount runs. Returns how many."""
    dropped = 0
    private = os.fsencode(layout.stub_private)
    for name in os.listdir(private):
        if name.startswith(ASIDE):
            drop(os.path.join(private, name))
            dropped += 1
    for path in walk(layout):
        if get(path, INCOMPLETE) is not None:
            os.unlink(path)
            dropped += 1
    return dropped


def sync_name(layout: Layout, path: bytes) -> None:
    """Makes the name `path` in the stub tree survive a power cut, and those of the directories it lies in."""
    top = os.fsencode(layout.stubs)
    while len(path) > len(top):
        path = os.path.dirname(path)
        with suppress(FileNotFoundError):  # renamed or removed since, and the name with it
            fsync_directory(path)


def _is_time(value: bytes) -> bool:
    try:
        datetime.strptime(value.decode(), TIME)  # noqa: DTZ007  (its Z is a letter to strptime)
    except ValueError:
        return False
    return True


def _aside(layout: Layout) -> bytes:
    return os.path.join(os.fsencode(layout.stub_private), ASIDE + os.urandom(8).hex().encode())
