"""A disk that is full: the save fails and nothing else, and deleting snapshots gets out of it."""

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import pytest

from tests.mounts import MountedStore
from tests.synth import random_bytes


@pytest.fixture
def small_disk(mounts: Callable[..., MountedStore]) -> Iterator[MountedStore]:
    """A mount whose store and stubs lie on a disk of 24 MiB."""
    mounted = mounts("--store.gc_interval", "0")
    mounted.umount()
    for folder in (mounted.store, mounted.stubs):
        subprocess.run(["rm", "-r", "--", str(folder)], check=True)
    disk = mounted.root / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(disk)], check=True)
    mounted.store, mounted.stubs = disk / "store", disk / "stubs"
    try:
        mounted.start()
        yield mounted
        if mounted.running:
            mounted.umount()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def write(path: Path, data: bytes) -> None:
    """Writes as a program does that looks at every error."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest[: 1 << 20]) :]
    except OSError:
        with pytest.raises(OSError, match=r"."):
            os.close(fd)
        raise
    os.close(fd)


def test_a_full_disk_fails_the_save_and_nothing_else(small_disk: MountedStore) -> None:
    mount = small_disk
    mount.expect_log("saving /[ab] failed: .*No space left")
    old = random_bytes(10 << 20, 1)
    write(mount.dir / "a", old)
    for name in ("a", "b"):
        with pytest.raises(OSError, match=r".") as caught:
            write(mount.dir / name, random_bytes(20 << 20, 2))
        assert caught.value.errno == errno.ENOSPC
    (mount.dir / "b").unlink()
    assert list((mount.store / "incoming").iterdir()) == []
    mount.remount()
    assert (mount.dir / "a").read_bytes() == old
    assert [path.name for path in mount.dir.iterdir()] == ["a"]
    (mount.dir / "a").unlink()
    assert mount.json("gc")["packs"] == 1
    fresh = random_bytes(18 << 20, 3)
    write(mount.dir / "b", fresh)
    mount.remount()
    assert (mount.dir / "b").read_bytes() == fresh


@pytest.mark.parametrize("mounted", [True, False])
def test_gc_frees_space_on_a_disk_without_a_free_byte(small_disk: MountedStore, mounted: bool) -> None:
    mount = small_disk
    write(mount.dir / "a", random_bytes(10 << 20, 1))
    write(mount.dir / "kept", random_bytes(1 << 20, 2))
    if not mounted:
        mount.umount()
    filler = mount.root / "disk" / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(repeat(bytes(4096)))
    (mount.dir if mounted else mount.stubs).joinpath("a").unlink()
    if not mounted:  # to open the catalog takes some pages
        os.truncate(filler, filler.stat().st_size - (64 << 10))
    done = mount.kvtool("gc", "--json", check=False)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["packs"] == 1
    filler.unlink()
    if not mounted:
        mount.start()
    assert (mount.dir / "kept").read_bytes() == random_bytes(1 << 20, 2)
    assert mount.json("gc")["packs"] == 0


def test_gc_needs_no_byte_for_its_mark(small_disk: MountedStore) -> None:
    mount = small_disk
    for name in "ab":
        write(mount.dir / name, random_bytes(8 << 20, ord(name)))
    (mount.dir / "a").unlink()
    with (mount.root / "disk" / "filler").open("wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space"):
            file.writelines(repeat(bytes(4096)))
        assert mount.json("gc")["packs"] == 1
    (mount.root / "disk" / "filler").unlink()
    assert (mount.dir / "b").read_bytes() == random_bytes(8 << 20, ord("b"))
