"""Files of every kind through a real mount: odd ones work, what is not offered is refused, damage is EIO."""

import errno
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from kvtool.store.layout import Layout
from tests import processes
from tests.mounts import MountedStore, temporary_folder
from tests.property.subject import OsSubject
from tests.property.tree import RENAME_EXCHANGE
from tests.stores import flip, pack_paths
from tests.synth import random_bytes

LIMIT = 60.0
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
SIZE, USES, LABEL = "user.kvtool.size", "user.kvtool.uses", "user.kvtool.label."
_numbers = count()


class Place(NamedTuple):
    """A folder in the mount that a test has for itself, and its stubs."""

    mount: MountedStore
    dir: Path
    stubs: Path


@pytest.fixture(scope="module")
def shared() -> Iterator[MountedStore]:
    """One mount for all tests here, open to other users."""
    with temporary_folder() as folder:
        folder.chmod(0o755)
        with MountedStore(folder, "--mount.allow_other", "--store.gc_interval", "0", limit=280) as mount:
            yield mount


@pytest.fixture
def place(shared: MountedStore) -> Place:
    name = f"t{next(_numbers)}"
    (shared.dir / name).mkdir(mode=0o755)
    return Place(shared, shared.dir / name, shared.stubs / name)


def fails(code: int, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(OSError, match=r".") as caught:
        call(*arguments)
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[code]


def bash(
    script: str, *arguments: object, before: list[str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [*(before or []), "bash", "-c", script, "bash", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)


def test_files_of_any_kind_come_back_also_after_a_restart(place: Place) -> None:
    kinds = [b"", b"x", bytes(1), bytes(1_000_000), bytes(3 << 20) + b"x", random_bytes(70_000)]
    for number, data in enumerate(kinds):
        path = place.dir / str(number)
        path.write_bytes(data)
        assert path.read_bytes() == data
        status = path.stat()
        assert (status.st_size, status.st_blksize) == (len(data), 1 << 20)
        assert status.st_blocks == -(-len(data) // 512)
    place.mount.remount()
    for number, data in enumerate(kinds):
        path = place.dir / str(number)
        assert path.stat().st_size == len(data)
        assert path.read_bytes() == data


@pytest.mark.parametrize(
    "name",
    [b"\xff\xfe", b"new\nline", b" ", b"-rf", b"a" * 255, "größe-数".encode(), b".hidden", b"\\x40", b"%s"],
)
def test_names_are_bytes(place: Place, name: bytes) -> None:
    path = os.fsencode(place.dir) + b"/" + name
    with open(path, "wb") as file:
        file.write(name)
    assert os.listdir(os.fsencode(place.dir)) == [name]
    os.rename(path, path[:-1] + b"!")
    os.mkdir(path)
    with open(path[:-1] + b"!", "rb") as file:
        assert file.read() == name
    fails(errno.ENAMETOOLONG, os.mkdir, os.fsencode(place.dir) + b"/" + b"x" * 256)


def test_the_private_part_is_not_there(shared: MountedStore) -> None:
    assert ".kvtool" not in os.listdir(shared.dir)
    fails(errno.ENOENT, os.stat, shared.dir / ".kvtool")
    fails(errno.EPERM, os.mkdir, shared.dir / ".kvtool")
    (shared.dir / "below").mkdir()
    (shared.dir / "below" / ".kvtool").mkdir()
    fails(errno.EPERM, os.rename, shared.dir / "below" / ".kvtool", shared.dir / ".kvtool")


def test_what_is_not_offered_is_refused(place: Place) -> None:
    (place.dir / "a").write_bytes(b"hello")
    (place.dir / "b").write_bytes(b"world")
    fails(errno.EPERM, os.link, place.dir / "a", place.dir / "c")
    fails(errno.EPERM, os.symlink, "a", place.dir / "c")
    fails(errno.EPERM, os.mkfifo, place.dir / "c")
    fails(errno.EPERM, os.mknod, place.dir / "c", stat.S_IFREG | 0o600)
    subject = OsSubject(os.fsencode(place.dir), "mount")
    fails(errno.EINVAL, subject.rename, b"a", b"b", RENAME_EXCHANGE)
    handle = subject.open(b"a", os.O_RDWR, 0)
    fails(errno.EOPNOTSUPP, subject.fallocate, handle, 100)
    subject.shut()
    assert sorted(os.listdir(place.dir)) == ["a", "b"]
    assert (place.dir / "a").read_bytes() == b"hello"


def test_statfs_is_that_of_the_store(place: Place) -> None:
    there, here = os.statvfs(place.mount.store), os.statvfs(place.dir)
    assert (here.f_bsize, here.f_blocks, here.f_files) == (there.f_bsize, there.f_blocks, there.f_files)
    assert here.f_bavail > 0
    assert here.f_namemax == 255


def test_kvtools_own_attributes_are_read_only_and_not_listed(place: Place) -> None:
    path = place.dir / "a"
    path.write_bytes(b"hello")
    os.setxattr(path, LABEL + "kind", b"chat")
    os.setxattr(path, "user.other", b"x")
    assert sorted(os.listxattr(path)) == [LABEL + "kind", "user.other"]
    assert os.getxattr(path, SIZE) == b"5"
    assert os.getxattr(path, USES) == b"0"
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", os.getxattr(path, "user.kvtool.created"))
    for name in (
        SIZE,
        USES,
        "user.kvtool.created",
        "user.kvtool.last_used",
        "user.kvtool.incomplete",
        "user.kvtool.new",
    ):
        fails(errno.EPERM, os.setxattr, path, name, b"1")
        fails(errno.EPERM, os.removexattr, path, name)
    fails(errno.EOPNOTSUPP, os.setxattr, path, "trusted.x", b"1")
    fails(errno.ENODATA, os.getxattr, path, "security.capability")
    fails(errno.ENODATA, os.getxattr, path, LABEL + "none")
    os.removexattr(path, "user.other")
    assert os.listxattr(path) == [LABEL + "kind"]


def test_the_size_attribute_is_that_of_what_is_being_written(place: Place) -> None:
    with (place.dir / "a").open("wb", buffering=0) as file:
        file.write(b"x" * 1000)
        assert os.getxattr(place.dir / "a", SIZE) == b"1000"
        assert os.fstat(file.fileno()).st_size == 1000


def test_cp_a_into_the_mount_and_out_of_it(place: Place) -> None:
    source = place.mount.root / f"source-{place.dir.name}"
    (source / "d").mkdir(parents=True)
    (source / "d" / "a").write_bytes(random_bytes(300_000))
    (source / "empty").touch(0o640)
    os.chmod(source / "d" / "a", 0o604)
    os.chown(source / "d" / "a", 12, 34)
    os.setxattr(source / "d" / "a", LABEL + "kind", b"chat")
    os.utime(source / "d" / "a", ns=(10**18 + 1, 10**18 + 2))
    done = bash('cp -a "$1" "$2/in" && cp -a "$2/in" "$3"', source, place.dir, place.mount.root / "out")
    assert (done.returncode, done.stderr) == (0, "")
    for copy in (place.dir / "in", place.mount.root / "out"):
        status = (copy / "d" / "a").stat()
        assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o604, 12, 34)
        assert status.st_mtime_ns == 10**18 + 2
        assert (copy / "d" / "a").read_bytes() == random_bytes(300_000)
        assert os.getxattr(copy / "d" / "a", LABEL + "kind") == b"chat"
        assert (copy / "empty").stat().st_mode & 0o7777 == 0o640


def test_labels_are_kept_over_a_rewrite_and_a_rename_of_a_temporary_file(place: Place) -> None:
    path, temporary = place.dir / "a", place.dir / "a.tmp"
    path.write_bytes(b"one")
    created = os.getxattr(path, "user.kvtool.created")
    os.setxattr(path, LABEL + "kind", b"chat")
    path.read_bytes()
    path.write_bytes(b"two")
    temporary.write_bytes(b"three")
    temporary.rename(path)
    assert os.getxattr(path, LABEL + "kind") == b"chat"
    assert os.getxattr(path, "user.kvtool.created") == created
    assert os.getxattr(path, USES) == b"1"
    assert path.read_bytes() == b"three"


def test_opens_of_one_restore_are_one_use_and_writing_is_none(place: Place) -> None:
    path = place.dir / "a"
    path.write_bytes(b"hello")
    with path.open("ab"):
        pass
    assert os.getxattr(path, USES) == b"0"
    for _ in range(3):
        path.read_bytes()
    assert os.getxattr(path, USES) == b"1"
    assert os.getxattr(path, "user.kvtool.last_used")


def test_modes_owners_and_the_group_of_a_setgid_directory(place: Place) -> None:
    old = os.umask(0o027)
    try:
        (place.dir / "a").touch()
        (place.dir / "d").mkdir()
        os.chown(place.dir / "d", 12, 34)
        (place.dir / "d").chmod(0o2775)
        (place.dir / "d" / "b").write_bytes(b"x")
        (place.dir / "d" / "e").mkdir()
    finally:
        os.umask(old)
    modes = {name: (place.dir / name).stat() for name in ("a", "d", "d/b", "d/e")}
    assert {name: oct(status.st_mode & 0o7777) for name, status in modes.items()} == {
        "a": "0o640",
        "d": "0o2775",
        "d/b": "0o640",
        "d/e": "0o2750",
    }
    assert [(s.st_uid, s.st_gid) for s in modes.values()] == [(0, 0), (12, 34), (0, 34), (0, 34)]
    (place.dir / "a").chmod(0o4755)
    os.chown(place.dir / "a", 65534, -1)
    status = (place.stubs / "a").stat()
    assert (status.st_uid, status.st_gid) == (65534, 0)


def test_another_user_may_do_what_the_modes_say(place: Place) -> None:
    (place.dir / "open").write_bytes(b"hello")
    (place.dir / "closed").write_bytes(b"secret")
    (place.dir / "closed").chmod(0o600)
    (place.dir / "his").mkdir()
    (place.dir / "his").chmod(0o777)
    script = """
        cat "$1/open"; cat "$1/closed"; echo x > "$1/open"; echo x > "$1/new"; chmod 777 "$1/open"
        setfattr -n user.x -v 1 "$1/open" 2>&1 | grep -o denied >&2
        echo his > "$1/his/file" && cat "$1/his/file"; mv "$1/open" "$1/his/"
    """
    done = bash(script, place.dir, before=AS_NOBODY)
    assert done.stdout == "hellohis\n"
    assert done.stderr.count("denied") + done.stderr.count("not permitted") >= 5
    status = (place.dir / "his" / "file").stat()
    assert (status.st_uid, status.st_gid) == (65534, 65534)
    assert (place.stubs / "his" / "file").stat().st_uid == 65534
    assert (place.dir / "open").read_bytes() == b"hello"


def test_without_allow_other_nobody_else_gets_in(mount: MountedStore) -> None:
    mount.root.chmod(0o755)
    (mount.dir / "a").write_bytes(b"hello")
    done = bash('cat "$1/a"; ls "$1"', mount.dir, before=AS_NOBODY)
    assert done.stdout == ""
    assert done.stderr.count("Permission denied") == 2


def test_a_foreign_file_in_the_stub_tree_is_listed_not_opened_and_stops_collections(place: Place) -> None:
    mount = place.mount
    mount.expect_log("opening /t[0-9]+/foreign failed: stub .*foreign: .* no chunk index")
    foreign = place.stubs / "foreign"
    foreign.write_text("hello")
    huge = place.stubs / "huge"
    with huge.open("wb") as file:
        file.truncate((1 << 42) + 104)
    assert sorted(os.listdir(place.dir)) == ["foreign", "huge"]
    assert (place.dir / "foreign").stat().st_size == 5
    assert (place.dir / "huge").stat().st_size == (1 << 42) + 104
    fails(errno.EIO, os.open, place.dir / "foreign", os.O_RDONLY)
    done = mount.kvtool("gc", check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "the collection stops" in done.stderr
    assert "foreign" in done.stderr or "huge" in done.stderr
    (place.dir / "foreign").rename(place.dir / "moved")
    (place.dir / "moved").unlink()
    (place.dir / "huge").unlink()
    assert os.listdir(place.stubs) == []
    mount.kvtool("gc")


def test_a_pipe_or_socket_in_the_stub_tree_is_a_file_that_cannot_be_read(place: Place) -> None:
    place.mount.expect_log("opening /t[0-9]+/(pipe|socket) failed: .* is not a stub but")
    os.mkfifo(place.stubs / "pipe")
    os.mknod(place.stubs / "socket", stat.S_IFSOCK | 0o600)
    for path in (place.dir / "pipe", place.dir / "socket"):
        assert path.is_file()
        for access in (os.O_RDONLY, os.O_WRONLY):  # the kernel would wait for the other end of a pipe
            fails(errno.EIO, os.open, path, access)
        path.write_bytes(b"hello")
        path.unlink()
    assert os.listdir(place.stubs) == []


def test_a_link_in_the_stub_tree_is_never_followed(place: Place) -> None:
    outside = place.mount.root / f"outside-{place.dir.name}"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (place.stubs / "file").symlink_to(outside / "secret")
    (place.stubs / "dir").symlink_to(outside)
    (place.dir / "a").write_bytes(b"hello")
    for name in ("file", "dir"):
        link = place.dir / name
        assert stat.S_ISLNK(link.lstat().st_mode)
        for call in (os.stat, os.listdir, Path.read_bytes, os.readlink):
            with pytest.raises(OSError, match=r"."):
                call(link)  # type: ignore[operator]
        with pytest.raises(OSError, match=r"."):
            link.write_bytes(b"changed")
        with pytest.raises(OSError, match=r"."):
            os.truncate(link, 0)
        with pytest.raises(OSError, match=r"."):
            os.chown(link, 1, 1, follow_symlinks=False)
    with pytest.raises(OSError, match=r"."):
        (place.dir / "dir" / "new").write_bytes(b"x")
    with pytest.raises(OSError, match=r"."):
        (place.dir / "dir" / "secret").unlink()
    done = place.mount.kvtool("cat", f"{place.dir.name}/file", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    (place.dir / "a").rename(place.dir / "file")
    (place.dir / "dir").unlink()
    assert (place.dir / "file").read_bytes() == b"hello"
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert outside.stat().st_uid == 0


def test_a_missing_chunk_is_eio_at_open_with_one_line_that_names_snapshot_and_chunk(place: Place) -> None:
    mount = place.mount
    path = place.dir / "a"
    before = set(pack_paths(Layout(mount.store, mount.stubs)))
    path.write_bytes(random_bytes(300_000, 31))
    mount.remount()
    [pack] = set(pack_paths(Layout(mount.store, mount.stubs))) - before
    content = pack.read_bytes()
    pack.unlink()
    pattern = f"opening /{place.dir.name}/a failed: chunk [0-9a-f]{{64}} is missing"
    mount.expect_log(pattern)
    lines = len(mount.log)
    fails(errno.EIO, path.read_bytes)
    processes.wait_until(lambda: len(mount.log) > lines, 30, "a line in the log")
    assert len(mount.log) == lines + 1
    assert re.search(pattern, mount.log[-1])
    assert path.stat().st_size == 300_000
    assert mount.kvtool("cat", f"{place.dir.name}/a", check=False).returncode == 3
    pack.write_bytes(content)
    assert path.read_bytes() == random_bytes(300_000, 31)


def test_a_damaged_chunk_is_eio_where_it_is_and_the_rest_can_be_read(place: Place) -> None:
    mount = place.mount
    path = place.dir / "a"
    data = random_bytes(10 << 20, 32)
    before = set(pack_paths(Layout(mount.store, mount.stubs)))
    path.write_bytes(data)
    mount.remount()
    [pack] = set(pack_paths(Layout(mount.store, mount.stubs))) - before
    flip(pack, 4096 + (9 << 20))
    mount.expect_log(f"reading /{place.dir.name}/a failed: chunk [0-9a-f]{{64}} in pack .* is damaged")
    mount.expect_log(f"opening /{place.dir.name}/a failed: chunk [0-9a-f]{{64}} .* is not in the store")
    fd = os.open(path, os.O_RDONLY)
    assert os.pread(fd, 1 << 20, 0) == data[: 1 << 20]
    fails(errno.EIO, os.pread, fd, 4096, 9 << 20)
    fails(errno.EIO, path.read_bytes)
    assert os.pread(fd, 1 << 20, 2 << 20) == data[2 << 20 : 3 << 20]
    flip(pack, 4096 + (9 << 20))
    assert os.pread(fd, 1 << 20, 9 << 20) == data[9 << 20 :]
    os.close(fd)
    (place.dir / "again").write_bytes(data)  # what was found damaged is stored anew
    assert path.read_bytes() == data
