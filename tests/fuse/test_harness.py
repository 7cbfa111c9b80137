"""The harness itself: it must clean up after whatever a test does to a mount."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvtool.store.mounts import take_down
from tests import processes
from tests.bench.floor import BareMount
from tests.mounts import MountedStore, MountFailed, connection_of, temporary_folder


def test_a_mount_comes_and_goes(mount: MountedStore) -> None:
    (mount.dir / "a").write_bytes(b"hello")
    assert mount.connection is not None
    assert mount.pid in mount.processes
    mount.remount()
    assert (mount.dir / "a").read_bytes() == b"hello"
    mount.umount()
    assert mount.connection is None


def test_a_killed_mount_can_be_started_again(mount: MountedStore) -> None:
    (mount.dir / "a").write_bytes(b"hello")
    mount.kill()
    assert not mount.running
    mount.start()
    assert (mount.dir / "a").read_bytes() == b"hello"


def test_a_hung_mount_is_aborted_and_named() -> None:
    pids = []

    def hang(folder: Path) -> None:
        with MountedStore(folder, limit=3) as mount:
            pids.extend(mount.processes)
            os.kill(mount.pid, signal.SIGSTOP)
            with pytest.raises(OSError, match=r"not connected|abort"):
                os.stat(mount.dir / "nothing")

    with temporary_folder() as folder:
        with pytest.raises(MountFailed, match="aborted after"):
            hang(folder)
        processes.wait_gone(pids, 5)
        assert connection_of(folder / "mnt") is None


def test_a_failing_test_leaves_nothing() -> None:
    pids = []

    def fail(folder: Path) -> None:
        with MountedStore(folder) as mount:
            pids.extend(mount.processes)
            raise ZeroDivisionError

    with temporary_folder() as folder:
        with pytest.raises(ZeroDivisionError):
            fail(folder)
        processes.wait_gone(pids, 5)
        assert connection_of(folder / "mnt") is None


def test_a_folder_with_a_space_is_found_in_mountinfo(tmp_path: Path) -> None:
    with MountedStore(tmp_path / "with a space") as mount:
        assert mount.connection is not None


def test_no_thread_of_a_watchdog_stays() -> None:
    before = threading.active_count()
    with temporary_folder() as folder, MountedStore(folder):
        assert threading.active_count() > before
    processes.wait_until(lambda: threading.active_count() <= before, 5, "the watchdog to end")


def test_ctrl_c_leaves_nothing_of_the_bare_mount() -> None:
    pids = []

    def interrupted(folder: Path) -> None:
        with BareMount(folder / "bare", folder / "plain") as bare:
            assert bare.file.read_bytes() == b"hello"
            pids.extend(bare.processes)
            assert os.getpgid(pids[0]) != os.getpgrp()  # a terminal tells all of a group
            os.kill(pids[0], signal.SIGINT)
            raise KeyboardInterrupt

    with temporary_folder() as folder:
        (folder / "plain").write_bytes(b"hello")
        with pytest.raises(KeyboardInterrupt):
            interrupted(folder)
        processes.wait_gone(pids, 5)
        assert connection_of(folder / "bare") is None


def test_the_bare_mount_dies_with_who_started_it() -> None:
    script = """if True:
        import pathlib, sys
        from tests.bench.floor import BareMount
        with BareMount(pathlib.Path(sys.argv[1]), pathlib.Path("/dev/null")) as bare:
            print(*bare.processes, flush=True)
            sys.stdin.read()
    """
    with temporary_folder() as folder:
        place = folder / "bare"
        command = [sys.executable, "-c", script, str(place)]
        starter = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with starter:
            assert starter.stdout
            pid = int(starter.stdout.readline())
            starter.kill()
        processes.wait_gone([pid], 5)
        take_down(place)
        assert connection_of(place) is None
