"""fsck beside a mount: what saves, deletions and collections are doing is no damage; real damage is found."""

import json
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from kvtool.store import control
from kvtool.store.check import check_store
from kvtool.store.findings import Code
from kvtool.store.layout import Layout
from kvtool.store.repair import repair
from tests.mounts import MountedStore
from tests.stores import pack_paths
from tests.synth import random_bytes

TURNS = 25
DATA = random_bytes(1 << 20)


def busy(mount: MountedStore, number: int) -> None:
    """Saves new snapshots, over old ones too, appends, renames and deletes."""
    for turn in range(TURNS):
        path = mount.dir / f"{number}-{turn % 3}"
        part = path.with_suffix(".tmp")
        part.write_bytes(random_bytes(300_000, 1000 * number + turn) + DATA[: turn % 5 << 16])
        os.rename(part, path)
        with path.open("ab") as file:
            file.write(b"more")
        os.setxattr(path, "user.kvtool.label.turn", b"%d" % turn)
        with suppress(FileNotFoundError):
            (mount.dir / f"{number}-{(turn + 1) % 3}").unlink()


def collect(layout: Layout, saves: list[Future[None]]) -> None:
    while not all(save.done() for save in saves):
        control.ask(layout, "gc", dry_run=False)


def test_a_busy_mount_shows_no_damage(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--store.gc_interval", "0")
    layout = Layout(mount.store, mount.stubs)
    reports = []
    with ThreadPoolExecutor() as pool:
        saves = [pool.submit(busy, mount, number) for number in range(2)]
        collections = pool.submit(collect, layout, saves)
        while not all(save.done() for save in saves):
            reports.append(check_store(layout))
        for future in (*saves, collections):
            future.result()
    for report in reports:
        assert {found.code for found in report.findings} <= {Code.ORPHAN}, report
        assert report.in_use
    assert any(report.snapshots for report in reports)
    mount.umount()
    assert {found.code for found in repair(layout).findings} <= {Code.ORPHAN}


def test_damage_is_found_beside_a_mount_and_mended_after_it(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--store.gc_interval", "0")
    (mount.dir / "a").write_bytes(DATA)
    (mount.dir / "b").write_bytes(random_bytes(300_000, 2))
    first, second = sorted(pack_paths(Layout(mount.store, mount.stubs)), key=lambda path: path.stat().st_size)
    os.truncate(second, second.stat().st_size - 10)
    (mount.stubs / "foreign").write_text("x")
    found = mount.kvtool("fsck", "--json", check=False)
    report = json.loads(found.stdout)
    assert (found.returncode, report["in_use"]) == (3, True)
    assert [(finding["code"], finding["snapshots"]) for finding in report["findings"]] == [
        ("pack-no-trailer", ["a"]),
        ("stub-foreign", ["foreign"]),
    ]
    (mount.stubs / "foreign").unlink()
    mount.umount()
    assert [finding["outcome"] for finding in mount.json("fsck", "--repair")["findings"]] == ["mended"]
    assert (mount.store / "quarantine" / second.name).exists()
    assert first.exists()
    mount.start()
    assert (mount.dir / "a").read_bytes() == DATA
    assert check_store(Layout(mount.store, mount.stubs)).findings == []
