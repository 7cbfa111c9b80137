"""What went wrong for somebody once: damage that stays, copies of descriptors, sizes too large."""

import errno
import os
import signal
from pathlib import Path

import pytest

from tests import processes
from tests.mounts import MountedStore
from tests.synth import random_bytes

DATA = random_bytes(3_000_000, 7)


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def write_for_ever(fd: int) -> None:
    while True:
        os.write(fd, bytes(1 << 20))


def damage_the_pack(mount: MountedStore) -> None:
    (pack,) = (mount.store / "packs").glob("*/*.pack")
    with pack.open("r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)
        file.seek(1_000_000)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_what_was_damaged_is_stored_anew_by_the_next_save(mount: MountedStore) -> None:
    put(mount.dir / "a", DATA)
    mount.umount()
    damage_the_pack(mount)
    mount.remount()
    mount.expect_log("reading /a failed: chunk .* is damaged")
    mount.expect_log("opening /a failed: chunk .* is not in the store")
    with pytest.raises(OSError, match="Input/output error"):
        (mount.dir / "a").read_bytes()
    put(mount.dir / "b", DATA)
    assert (mount.dir / "b").read_bytes() == DATA
    assert (mount.dir / "a").read_bytes() == DATA  # healed, too


@pytest.mark.parametrize("old", [b"", DATA])
def test_a_copied_descriptor_closed_before_the_first_write_commits_nothing(
    mount: MountedStore, old: bytes
) -> None:
    path = mount.dir / "a"
    if old:
        put(path, old)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.close(os.dup(fd))  # as a shell does for `> a`
    os.write(fd, DATA[:1_500_000])
    mount.kill(signal.SIGKILL)
    with pytest.raises(OSError, match="not connected"):
        os.close(fd)
    mount.remount()
    if old:
        assert path.read_bytes() == old
    else:
        assert not path.exists()


def test_an_empty_file_survives_a_kill_once_it_is_closed(mount: MountedStore) -> None:
    put(mount.dir / "empty", b"")
    put(mount.dir / "after", b"x")
    processes.wait_until(lambda: mount.json("status")["open_files"] == 0, 30, "the last close")
    mount.kill(signal.SIGKILL)
    mount.remount()
    assert (mount.dir / "empty").read_bytes() == b""


def test_a_size_that_cannot_be_leaves_the_file_as_it_was(mount: MountedStore) -> None:
    path = mount.dir / "a"
    put(path, DATA)
    with pytest.raises(OSError, match="File too large") as caught:
        os.truncate(path, 1 << 60)
    assert caught.value.errno == errno.EFBIG
    with path.open("r+b") as file, pytest.raises(OSError, match="File too large"):
        os.pwrite(file.fileno(), b"x", 1 << 60)
    assert path.read_bytes() == DATA


def test_the_pack_of_a_killed_worker_is_gone_when_the_next_one_works(mount: MountedStore) -> None:
    mount.expect_log("the ingest worker .* ended unasked")
    mount.expect_log("saving /a failed")
    incoming = mount.store / "incoming"
    worker = mount.json("status")["worker_pid"]
    # From here on no process is started: it would close its copy of the descriptor, which commits.
    fd = os.open(mount.dir / "a", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, random_bytes(12 << 20, 8))
    processes.wait_until(lambda: any(incoming.iterdir()), 30, "a pack in incoming/")
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(OSError, match="Input/output error"):
        write_for_ever(fd)
    with pytest.raises(OSError, match="Input/output error"):
        os.close(fd)
    put(mount.dir / "b", DATA)
    assert (mount.dir / "b").read_bytes() == DATA
    assert not any(incoming.iterdir())
