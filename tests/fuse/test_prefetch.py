"""The prefetch in a real mount: what it reads is warm, and it is in nobody's way."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import processes
from tests.mounts import MountedStore
from tests.synth import random_bytes

HINT = b"user.kvtool.prefetch"
LIMIT = 30.0
SMALL, LARGE = random_bytes(5 << 20, 1), random_bytes(40 << 20, 2)


def fetched(mount: MountedStore) -> tuple[int, int]:
    status = mount.json("status")
    return status["bytes_fetched"], status["bytes_prefetched"]


def save_cold(path: Path, data: bytes) -> None:
    """Saves it, and has the kernel forget its pages."""
    path.write_bytes(data)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def hint(path: Path) -> None:
    os.setxattr(path, HINT, b"1")


def wait(path: Path) -> None:
    processes.wait_until(lambda: os.getxattr(path, HINT) == b"0", LIMIT, "the prefetch")


def reader_of(mount: MountedStore) -> list[int]:
    """The process that reads, if there is one."""
    found = []
    for pid in mount.processes:
        try:
            found += [pid] * (b"kvtool.store.warm" in Path(f"/proc/{pid}/cmdline").read_bytes())
        except FileNotFoundError:
            continue
    return found


def until_reading(mount: MountedStore) -> None:
    """Waits until the large file is being read, or was: all must be well in any case."""
    done = mount.dir / "large"
    processes.wait_until(
        lambda: bool(reader_of(mount)) or os.getxattr(done, HINT) == b"0", LIMIT, "the reader"
    )


@pytest.fixture
def mount(mount: MountedStore) -> MountedStore:
    save_cold(mount.dir / "small", SMALL)
    save_cold(mount.dir / "large", LARGE)
    return mount


def test_the_next_restore_is_warm(mount: MountedStore) -> None:
    hint(mount.dir / "small")
    wait(mount.dir / "small")
    assert fetched(mount) == (0, len(SMALL))
    assert (mount.dir / "small").read_bytes() == SMALL
    assert fetched(mount) == (0, len(SMALL))


def test_the_command(mount: MountedStore) -> None:
    done = mount.kvtool("prefetch", "small", "large", "small", "--wait")
    assert done.stdout == "2 of 2 snapshots are in the page cache\n"
    assert fetched(mount) == (0, len(SMALL) + len(LARGE))
    assert (mount.dir / "large").read_bytes() == LARGE
    assert fetched(mount)[0] == 0
    assert mount.json("prefetch", "small") == {"names": ["small"], "read": False, "given_up": {}}
    for name, code, words in (("absent", 2, "no snapshot 'absent'"), ("../x", 2, "not the name")):
        done = mount.kvtool("prefetch", "small", name, check=False)
        assert (done.returncode, done.stdout) == (code, "")
        assert words in done.stderr
    with (mount.dir / "new").open("wb"):
        done = mount.kvtool("prefetch", "new", "small", "--json", check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, list(answer["given_up"])) == (1, ["new"])
    assert answer["given_up"]["new"].startswith("it is being written")
    mount.umount()
    done = mount.kvtool("prefetch", "small", check=False)
    assert done.returncode == 1
    assert "no mount of store" in done.stderr
    mount.start()


def test_many_hints_are_read_one_after_the_other(mount: MountedStore) -> None:
    names = [mount.dir / f"file-{at}" for at in range(6)]
    for name in names:
        save_cold(name, SMALL)
    most = 0
    for name in names:
        hint(name)
    while any(os.getxattr(name, HINT) == b"1" for name in names):
        most = max(most, len(reader_of(mount)))
    assert most == 1
    assert fetched(mount) == (0, len(names) * len(SMALL))


def ends_by_umount(mount: MountedStore) -> None:
    mount.umount()


def ends_at_once(mount: MountedStore) -> None:
    mount.kill(signal.SIGTERM)


def ends_by_force(mount: MountedStore) -> None:
    mount.kill(signal.SIGKILL)


@pytest.mark.parametrize("end", [ends_by_umount, ends_at_once, ends_by_force])
def test_it_is_in_no_ones_way_when_the_mount_ends(
    mount: MountedStore, end: Callable[[MountedStore], None]
) -> None:
    for name in ("large", "small"):
        hint(mount.dir / name)
    until_reading(mount)
    family, began = mount.processes, time.monotonic()
    end(mount)
    processes.wait_gone(family, LIMIT)
    assert time.monotonic() - began < LIMIT
    mount.start()
    assert (mount.dir / "large").read_bytes() == LARGE


def test_it_goes_when_the_file_does(mount: MountedStore) -> None:
    for act in (
        lambda: (mount.dir / "large").write_bytes(SMALL),
        lambda: os.rename(mount.dir / "small", mount.dir / "large"),
        lambda: (mount.dir / "large").unlink(),
    ):
        save_cold(mount.dir / "small", SMALL)
        save_cold(mount.dir / "large", LARGE)
        hint(mount.dir / "large")
        until_reading(mount)
        act()
        processes.wait_until(lambda: not reader_of(mount), LIMIT, "the reader to end")
        assert mount.json("status")["prefetching"] == 0
        assert (mount.dir / "large").exists() == (act.__code__.co_names[-1] != "unlink")
        processes.wait_until(
            lambda: os.listdir(mount.stubs / ".kvtool") == ["store-id"], LIMIT, "the old content to go"
        )


def test_a_restore_of_the_same_file_takes_over(mount: MountedStore) -> None:
    hint(mount.dir / "large")
    until_reading(mount)
    command = ["cmp", "-", str(mount.dir / "large")]
    subprocess.run(command, input=LARGE, timeout=LIMIT, check=True)
    wait(mount.dir / "large")
    processes.wait_until(lambda: not reader_of(mount), LIMIT, "the reader to end")
    assert sum(fetched(mount)) >= len(LARGE)


def test_a_damaged_snapshot(mount: MountedStore) -> None:
    from kvtool.store.layout import Layout
    from tests.stores import flip, pack_paths

    pack = min(pack_paths(Layout(mount.store, mount.stubs)), key=lambda path: path.stat().st_size)
    flip(pack, 4096 + 100)
    mount.expect_log("reading /small failed: chunk .* is damaged")
    mount.expect_log("damaged")
    done = mount.kvtool("prefetch", "small", "--wait", check=False)
    assert done.returncode == 1
    assert "small: given up: " in done.stdout
    assert "Input/output error" in done.stdout
