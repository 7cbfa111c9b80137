"""A mount and its service manager: ready when it serves, pings while it serves, a word when it stops."""

import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.manager import LIMIT, Manager
from tests.mounts import MountedStore, connection_of, temporary_folder
from tests.synth import random_bytes

WATCHDOG = 0.2  # seconds


@pytest.fixture
def managed() -> Iterator[tuple[Manager, MountedStore]]:
    """A mount that has not started yet, and who is to be told."""
    with temporary_folder() as folder, Manager(folder) as manager:
        told = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(int(WATCHDOG * 1e6))}
        yield manager, MountedStore(folder, env=told)


def test_it_is_ready_when_it_serves_and_tells_figures(managed: tuple[Manager, MountedStore]) -> None:
    manager, mount = managed
    seen: list[object] = []

    def when_ready() -> None:
        seen.append(manager.next())
        seen.append(connection_of(mount.dir))
        (mount.dir / "first").write_bytes(random_bytes(1 << 20))
        seen.append(sorted(path.name for path in mount.stubs.iterdir()))

    watching = Thread(target=when_ready)
    watching.start()
    with mount:
        watching.join(LIMIT)
        assert seen == [{"READY": "1", "STATUS": "serves"}, mount.connection, [".kvtool", "first"]]
        manager.until("STATUS", "1.0 MiB stored; 1 save of 1 MiB since the start, 1 MiB of it new; 0 saves")
        with (mount.dir / "second").open("wb", buffering=0) as file:
            file.write(b"x")
            manager.until("STATUS", "1 save under way, 1 file open")
    assert "STOPPING" in [name for message in manager.waiting() for name in message]


def test_pings_come_only_while_it_serves(managed: tuple[Manager, MountedStore]) -> None:
    manager, mount = managed
    with mount:
        for _ in range(3):
            manager.until("WATCHDOG", "1")
        mount.signal(signal.SIGSTOP)
        try:
            manager.waiting()
            with pytest.raises(TimeoutError):
                manager.next(4 * WATCHDOG)
        finally:
            mount.signal(signal.SIGCONT)
        manager.until("WATCHDOG", "1")


@pytest.mark.parametrize("end", ["signal", "umount"])
def test_it_says_that_it_stops(managed: tuple[Manager, MountedStore], end: str) -> None:
    manager, mount = managed
    with mount:
        manager.until("READY")
        if end == "signal":
            mount.kill(signal.SIGTERM)
        else:
            mount.umount()
        assert manager.until("STOPPING") == {"STOPPING": "1", "STATUS": "commits what is unfinished"}


def test_a_mount_in_the_background_says_nothing(
    tmp_path: Path, mount: MountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount.umount()
    with Manager(tmp_path) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
        mount.kvtool("mount", str(mount.dir), "--background")
        mount.kvtool("umount", str(mount.dir))
        assert manager.waiting() == []


def test_a_manager_that_is_not_there_is_a_warning() -> None:
    with (
        temporary_folder() as folder,
        MountedStore(folder, env={"NOTIFY_SOCKET": str(folder / "no")}) as mount,
    ):
        mount.expect_log(r"service manager cannot be told: NOTIFY_SOCKET=/\S*/no: .* No such file")
        (mount.dir / "a").write_bytes(b"x")
        mount.umount()
        assert sum("service manager" in line for line in mount.log) == 1
