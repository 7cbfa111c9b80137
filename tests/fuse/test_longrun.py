"""The long run itself: a short one passes, and it notices wrong bytes and growth."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.longrun import samples
from tests.longrun.__main__ import long_run
from tests.longrun.load import Client, WrongBytes
from tests.longrun.samples import MiB, Sample
from tests.mounts import MountedStore

SAMPLE = Sample(0, 0, 70 * MiB, 140 * MiB, 3, 45, 9, 3, 30 * MiB)


def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert long_run(minutes=5, steps=130) == 0
    said = capsys.readouterr().out
    assert said.startswith("| minutes | steps | mount MiB |")
    assert said.endswith("Every byte was right, and nothing grew.\n")


@pytest.mark.parametrize(
    ("what", "step", "name"),
    [
        ("mount", MiB // 2, "memory of the mount's process"),
        ("memory", MiB, "memory of all its processes"),
        ("packs", 2, "open packs"),
        ("fds", 1, "other open descriptors"),
        ("threads", 1, "threads"),
        ("processes", 1, "processes"),
    ],
)
def test_growth_is_found(what: str, step: int, name: str) -> None:
    run = [replace(SAMPLE, **{what: getattr(SAMPLE, what) + step * n}) for n in range(100)]
    [found] = samples.growth(run)
    assert found.startswith(f"{name}: ")
    assert not samples.growth([SAMPLE] * 100)
    assert len(samples.rows(run)) == samples.PARTS + 1


def arenas(pid: int) -> int:
    """How many arenas beside the first glibc has made: 64 MiB each, aligned, most of it not yet usable."""
    found, before = 0, 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, access, *_ = line.split()
        start, end = (int(word, 16) for word in span.split("-"))
        found += access == "---p" and end % (64 * MiB) == 0 and before % (64 * MiB) == 0
        before = start
    return found


def test_the_threads_of_a_mount_share_one_arena(mount: MountedStore) -> None:
    for name in "abcd":
        (mount.dir / name).write_bytes(os.urandom(16 * MiB))
    mount.remount()
    for name in "abcd":
        (mount.dir / name).read_bytes()
    assert arenas(mount.pid) == 0


def test_wrong_bytes_are_found(tmp_path: Path) -> None:
    """In a plain directory, which is as good as a mount for this."""
    client = Client(tmp_path / "client", 1)
    client.do(client.turn)
    client.do(client.append)
    client.compare_all()
    [name] = client.files
    with open(client.folder / name, "r+b") as file:
        file.seek(100)
        file.write(os.urandom(8))
    for step in (client.restore, client.read_part, client.append, client.compare_all):
        with pytest.raises(WrongBytes, match="not those that were saved"):
            step()
    os.unlink(client.folder / name)
    with pytest.raises(WrongBytes, match="holds"):
        client.compare_all()
