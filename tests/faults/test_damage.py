"""Damaged bytes anywhere in a store: a reader gets the right ones or an error, and a mount goes on."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtool.cli.main import COMMANDS
from tests.cli import Cli
from tests.faults.damage import PACK_AND_STUB, REGIONS, Region, check_readers, damage, make
from tests.faults.operations import write
from tests.mounts import MountedStore
from tests.stores import flags_of, layout_in
from tests.synth import random_bytes

ExpectLog = Callable[[str], None]
MANNERS = ("flip", "cut", "zero")
CHECKS = {"fsck", "verify"}.intersection(COMMANDS)  # those that look for damage: see `Region.found_by`


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    make(folder)
    return folder


def places(region: Region, content: bytes, manner: str) -> list[int]:
    """Both ends of the region, and some places in between."""
    start, end = region.part(content)
    count = 12 if manner == "flip" else 3
    return sorted({start + (end - 1 - start) * i // (count - 1) for i in range(count)})


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("region", REGIONS, ids=lambda region: region.name)
def test_no_reader_gets_a_wrong_byte(
    made: Path,
    tmp_path: Path,
    expect_log: ExpectLog,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    region: Region,
    manner: str,
) -> None:
    expect_log("packs that the catalog knows are gone or damaged|moved to .*/quarantine|rebuilding it from")
    content = region.file(layout_in(made), "a").read_bytes()
    end = region.part(content)[1]
    for number, place in enumerate(places(region, content, manner)):
        root = tmp_path / str(number)
        shutil.copytree(made, root)
        layout = layout_in(root)
        path = region.file(layout, "a")
        damage(path, manner, place, end)
        for command in region.found_by.intersection(CHECKS) if path.read_bytes() != content else ():
            done = Cli(root, capsysbinary, monkeypatch, *flags_of(layout))(command)
            assert done.returncode == 3
            assert path.name.encode() in done.stdout
        check_readers(root)


def test_a_mount_goes_on(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--store.gc_interval", "0")
    mount.expect_log(r"(opening|reading) \S+ failed: |packs that the catalog knows|moved to .*/quarantine")
    layout = layout_in(mount.root)
    contents = {}
    for region in PACK_AND_STUB:
        for manner in MANNERS:
            path = mount.dir / f"{region.name} {manner}".replace(" ", "-")
            contents[path] = random_bytes(200_000, len(contents))
            write(path, contents[path], os.O_CREAT)
            file = region.file(layout, path.name)
            damage(file, manner, *region.part(file.read_bytes()))
            read(path, contents[path])
    mount.remount()
    for path, content in contents.items():
        assert path.stat().st_size in {len(content), (layout.stubs / path.name).stat().st_size}
        read(path, content)
        heal(path, content)


def read(path: Path, content: bytes) -> bool:
    """Whether it can be read; then it must be that, and what comes before an error the beginning of it."""
    found = b""
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while piece := os.read(fd, 1 << 20):
                found += piece
        finally:
            os.close(fd)
    except OSError as error:
        assert error.errno == errno.EIO, error  # noqa: PT017
        assert content.startswith(found), f"{path.name}: wrong bytes"
        return False
    assert found == content, f"{path.name}: wrong bytes"
    return True


def heal(path: Path, content: bytes) -> None:
    """Saving it again mends it: each time a chunk that a reader has met is stored anew."""
    for _ in range(20):
        write(path, content, os.O_CREAT | os.O_TRUNC)
        if read(path, content):
            return
    raise AssertionError(f"{path.name} cannot be saved again")
