"""Written regression tests: each thing that went wrong elsewhere, or was found hard, under its own name."""

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests import processes
from tests.mounts import MountedStore, temporary_folder
from tests.property.check import check_store
from tests.property.draws import CHUNK_FLAGS
from tests.property.subject import OsSubject

FLAGS = [*CHUNK_FLAGS, "--store.gc_interval=0"]
MiB = 1 << 20


def data(seed: int, length: int) -> bytes:
    """`length` bytes, the same for the same seed."""
    return random.Random(seed).randbytes(length)


@pytest.fixture(scope="module")
def shared() -> Iterator[MountedStore]:
    """One mount for all tests that leave it whole; in the end its store is checked."""
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        mounted = stack.enter_context(MountedStore(folder, *FLAGS, limit=240))
        yield mounted
        check_store(mounted.store, mounted.stubs)


@pytest.fixture
def folder(shared: MountedStore, request: pytest.FixtureRequest) -> Path:
    """An empty directory of the mount for one test."""
    path = shared.dir / request.node.name[:100].replace("/", "_")
    path.mkdir()
    return path


@pytest.fixture
def own(mounts: Callable[..., MountedStore]) -> MountedStore:
    """A mount for one test, which may hurt it."""
    return mounts(*FLAGS)


def stub_of(mounted: MountedStore, path: Path) -> Path:
    return mounted.stubs / path.relative_to(mounted.dir)


def committed_size(mounted: MountedStore, path: Path) -> int:
    """What survives a crash, by the stub."""
    with suppress(OSError):
        return int(os.getxattr(stub_of(mounted, path), "user.kvtool.size"))
    return -1


# Three ways to truncate


@pytest.mark.parametrize("access", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_truncation_inside_open(shared: MountedStore, folder: Path, access: int) -> None:
    path = folder / "slot"
    path.write_bytes(data(1, 300_000))
    os.close(os.open(path, access | os.O_TRUNC))
    assert path.read_bytes() == b""
    assert committed_size(shared, path) == 0


@pytest.mark.parametrize("size", [0, 1, 4096, 299_999, 300_000, 300_001, MiB])
def test_truncation_through_a_handle(shared: MountedStore, folder: Path, size: int) -> None:
    path, content = folder / "slot", data(1, 300_000)
    path.write_bytes(content)
    with path.open("r+b") as file:
        os.ftruncate(file.fileno(), size)
        assert path.stat().st_size == size
    assert path.read_bytes() == content[:size].ljust(size, b"\0")
    assert committed_size(shared, path) == size


@pytest.mark.parametrize("size", [0, 1, 4096, 299_999, 300_001, MiB])
def test_lone_truncate_by_path(shared: MountedStore, folder: Path, size: int) -> None:
    """No open and no flush comes with it."""
    path, content = folder / "slot", data(1, 300_000)
    path.write_bytes(content)
    os.truncate(path, size)
    assert committed_size(shared, path) == size
    assert path.read_bytes() == content[:size].ljust(size, b"\0")


def test_truncate_by_path_while_the_file_is_being_written(folder: Path) -> None:
    path = folder / "slot"
    with path.open("wb", buffering=0) as file:
        file.write(data(1, 100_000))
        os.truncate(path, 50_000)
        file.write(data(2, 10))
    assert path.read_bytes() == data(1, 50_000) + bytes(50_000) + data(2, 10)


# Saves


def test_reopen_for_append_right_after_close(folder: Path) -> None:
    path, content = folder / "slot", data(3, 400_000)
    path.write_bytes(content[:100_000])
    for start in range(100_000, 400_000, 7_001):
        with path.open("ab", buffering=0) as file:
            file.write(content[start : start + 7_001])
            assert path.stat().st_size == min(start + 7_001, 400_000)
    assert path.read_bytes() == content


def test_save_over_a_longer_snapshot(folder: Path) -> None:
    path = folder / "slot"
    path.write_bytes(data(1, 3 * MiB))
    path.write_bytes(data(2, 100_000))
    assert path.stat().st_size == 100_000
    assert path.read_bytes() == data(2, 100_000)


def test_old_handle_new_content_two_more_opens(folder: Path) -> None:
    """The page cache is the inode's: old pages read late by an old handle must not reach a new one."""
    path, new = folder / "slot", data(2, 2 * MiB)
    path.write_bytes(data(1, 2 * MiB))
    with path.open("rb", buffering=0) as old:
        path.write_bytes(new)
        with path.open("rb", buffering=0) as second:
            late = old.read(MiB)
            assert second.read() == new
        assert late == new[:MiB]
        with path.open("rb", buffering=0) as third:
            assert third.read() == new
        assert old.read() == new[MiB:]


def test_bytes_stored_through_a_shared_mapping_after_close(shared: MountedStore, folder: Path) -> None:
    path, content = folder / "slot", bytearray(data(1, 200_000))
    path.write_bytes(content)
    # Not the mmap module: it keeps a descriptor of its own, whose close would flush once more.
    subject = OsSubject(os.fsencode(folder), "mount")
    mapping = subject.map(handle := subject.open(b"slot", os.O_RDWR, 0), writable=True)
    subject.close(handle)
    subject.map_store(mapping, 70_000, data(2, 100))
    content[70_000:70_100] = data(2, 100)
    subject.unmap(mapping)
    subject.shut()
    assert path.read_bytes() == content
    shared.remount()
    assert path.read_bytes() == content


@pytest.mark.parametrize("first", ["reader", "writer", "both ways"])
def test_a_reader_sees_every_write_to_a_file_that_is_being_saved(folder: Path, first: str) -> None:
    path, expected = folder / "file", bytearray(b"old" * 3000)
    path.write_bytes(expected)
    readers = [os.open(path, os.O_RDONLY)] if first != "writer" else []
    for fd in readers:
        assert os.pread(fd, 1 << 20, 0) == expected
    flags = {"reader": os.O_WRONLY, "writer": os.O_WRONLY, "both ways": os.O_RDWR}[first]
    writer = os.open(path, flags | os.O_APPEND * (first == "writer"))
    try:
        readers.append(os.open(path, os.O_RDONLY))
        for turn in range(40):
            at = len(expected) if first == "writer" or turn % 4 else 1000 * turn % len(expected)
            piece = bytes([turn + 1]) * (700 * turn + 1)
            assert os.pwrite(writer, piece, at) == len(piece)
            expected[at : at + len(piece)] = piece
            for fd in readers:
                near = max(0, at + len(piece) - 5000)
                assert os.pread(fd, 5000, near) == expected[near : near + 5000]
                assert os.pread(fd, len(piece), at) == piece
            assert path.read_bytes() == expected
    finally:
        for fd in (writer, *readers):
            os.close(fd)
    assert path.read_bytes() == expected


def test_two_writers_on_one_file(folder: Path, tmp_path: Path) -> None:
    paths = [folder / "slot", tmp_path / "plain"]
    for path in paths:
        with path.open("wb", buffering=0) as one, path.open("r+b", buffering=0) as two:
            for turn in range(6):
                one.write(data(turn, 30_000))
                two.seek(turn * 41_000)
                two.write(data(100 + turn, 20_000))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_rename_of_a_file_whose_save_is_under_way(folder: Path) -> None:
    path, content = folder / "slot", data(1, 500_000)
    with path.open("wb", buffering=0) as file:
        file.write(content[:200_000])
        path.rename(folder / "elsewhere")
        file.write(content[200_000:])
    assert os.listdir(folder) == ["elsewhere"]
    assert (folder / "elsewhere").read_bytes() == content


def test_unlink_of_a_file_whose_save_is_under_way(shared: MountedStore, folder: Path) -> None:
    path, content = folder / "slot", data(1, 500_000)
    with path.open("w+b", buffering=0) as file:
        file.write(content[:200_000])
        path.unlink()
        file.write(content[200_000:])
        assert os.pread(file.fileno(), MiB, 0) == content
    assert os.listdir(folder) == []
    assert not stub_of(shared, path).exists()


def test_another_file_takes_the_name_while_the_save_is_under_way(folder: Path) -> None:
    path = folder / "slot"
    with path.open("wb", buffering=0) as file:
        file.write(data(1, 200_000))
        (folder / "other").write_bytes(b"the other")
        (folder / "other").rename(path)
        file.write(data(2, 200_000))
    assert path.read_bytes() == b"the other"


def test_rename_of_a_tmp_file_over_an_open_snapshot(folder: Path) -> None:
    path, old, new = folder / "slot", data(1, 3 * MiB), data(2, MiB)
    path.write_bytes(old)
    with path.open("rb", buffering=0) as reader:
        assert reader.read(1000) == old[:1000]
        (folder / "slot.tmp").write_bytes(new)
        (folder / "slot.tmp").rename(path)
        assert path.read_bytes() == new
        assert reader.read() == old[1000:]
        assert os.fstat(reader.fileno()).st_size == len(old)
    assert os.listdir(folder) == ["slot"]


# Restores and logs


def test_tail_read_then_restore_from_the_start(shared: MountedStore, folder: Path) -> None:
    path, content = folder / "slot", data(1, 24 * MiB)
    path.write_bytes(content)
    shared.remount()  # so that nothing comes from the kernel's cache
    with path.open("rb") as file:
        file.seek(-32, os.SEEK_END)
        assert file.read() == content[-32:]
        file.seek(0)
        assert file.read(100) == content[:100]
    with path.open("rb", buffering=0) as file:
        got = bytearray()
        while piece := file.read(777_777):
            got += piece
    assert got == content


def test_a_log_held_open_and_appended_to_for_long(own: MountedStore) -> None:
    """It is readable all the time, and what was left alone for some seconds survives a crash."""
    path, lines = own.dir / "log", b""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(1500):
        line = b"%06d something happened\n" % number
        os.write(log, line)
        lines += line
        if number % 100 == 0:
            assert path.stat().st_size == len(lines)
            assert path.read_bytes() == lines
    processes.wait_until(lambda: committed_size(own, path) == len(lines), 30, "the idle commit")
    own.kill()
    with suppress(OSError):
        os.close(log)
    own.remount()
    assert path.read_bytes() == lines
    with path.open("ab") as file:
        file.write(b"and on\n")
    assert path.read_bytes() == lines + b"and on\n"


def test_a_manifest_replaced_a_thousand_times(own: MountedStore) -> None:
    """Nothing grows beyond what collection frees."""
    path, aside = own.dir / "manifest.json", own.dir / "manifest.json.tmp"
    for number in range(1000):
        aside.write_bytes(b'{"turn": %d}\n' % number + data(5, 3000))
        aside.rename(path)
    own.kvtool("gc")
    assert own.pack_bytes < 20_000
    assert len(list(own.stubs.rglob("*"))) == len({".kvtool", "store-id", "manifest.json"})
    assert path.read_bytes() == b'{"turn": 999}\n' + data(5, 3000)
    assert own.json("status")["packs"] == 1


# A save that fails in the middle


def break_save(own: MountedStore, path: Path) -> None:
    """Save to `path` and kill the ingest worker in the middle: the client sees EIO."""
    # Asked first: the kernel flushes an open file when a child that inherited it begins another program.
    worker = own.json("status")["worker_pid"]
    assert worker in own.processes
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, data(2, 3 * MiB))
        processes.end(worker)
        processes.wait_gone([worker], 10)
        assert refused(lambda: write_for_long(descriptor))
    finally:
        with suppress(OSError):
            os.close(descriptor)


def write_for_long(descriptor: int) -> None:
    for _ in range(100):
        os.write(descriptor, data(3, MiB))


def refused(act: Callable[[], object]) -> bool:
    """Whether it answers EIO."""
    try:
        act()
    except OSError as error:
        return error.errno == errno.EIO
    return False


@pytest.fixture
def failed(own: MountedStore) -> Path:
    """A file whose save has failed while it replaced an older content."""
    own.expect_log("the ingest worker .* ended unasked|saving .* failed")
    path = own.dir / "slot"
    path.write_bytes(data(1, 100_000))
    break_save(own, path)
    return path


def test_after_a_failed_save_appending_and_renaming_fail_too(failed: Path) -> None:
    """llama-server ignores what fclose says and goes on: it must harm neither old content nor a good file."""
    good = failed.with_name("good")
    good.write_bytes(b"good")
    assert refused(lambda: failed.open("ab"))
    assert refused(lambda: failed.open("rb"))
    assert refused(lambda: failed.rename(good))
    assert refused(lambda: os.truncate(failed, 5))
    assert good.read_bytes() == b"good"
    assert sorted(os.listdir(failed.parent)) == ["good", "slot"]


def test_a_failed_save_is_mended_by_truncation(failed: Path) -> None:
    failed.write_bytes(data(4, 200_000))
    assert failed.read_bytes() == data(4, 200_000)
    failed.rename(failed.with_name("moved"))
    assert failed.with_name("moved").read_bytes() == data(4, 200_000)


def test_a_failed_save_is_mended_by_unlink(failed: Path) -> None:
    failed.unlink()
    assert os.listdir(failed.parent) == []
    failed.write_bytes(data(5, 100))
    assert failed.read_bytes() == data(5, 100)


def test_a_failed_save_leaves_the_last_commit(own: MountedStore, failed: Path) -> None:
    own.remount()
    assert failed.read_bytes() == data(1, 100_000)
    assert check_store(own.store, own.stubs) == {b"slot": data(1, 100_000)}


def test_a_failed_new_file_is_gone_after_the_next_start(own: MountedStore, failed: Path) -> None:
    own.remount()
    break_save(own, own.dir / "new")
    own.remount()
    assert os.listdir(own.dir) == ["slot"]


def test_other_saves_go_on_after_the_worker_died(failed: Path) -> None:
    other = failed.with_name("other")
    other.write_bytes(data(6, 500_000))
    assert other.read_bytes() == data(6, 500_000)
