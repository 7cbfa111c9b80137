"""`kvtool verify` beside a mount and without one: what it says, and how damage heals."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from kvtool.store.layout import Layout
from tests import schemas
from tests.mounts import MountedStore, temporary_folder
from tests.stores import flip, pack_paths
from tests.synth import random_bytes

DATA = random_bytes(3 << 20)
OTHER = random_bytes(1 << 20, 2)


@pytest.fixture
def mount() -> Iterator[MountedStore]:
    with temporary_folder() as root, MountedStore(root) as mount:
        (mount.dir / "a").write_bytes(DATA)
        (mount.dir / "b").write_bytes(DATA[: 2 << 20] + OTHER)
        (mount.dir / "c").write_bytes(OTHER)
        yield mount


def verified(mount: MountedStore, code: int, *arguments: str) -> dict:  # type: ignore[type-arg]
    done = mount.kvtool("verify", *arguments, "--json", check=False)
    assert (done.returncode, done.stderr) == (code, "")
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, json.loads((schemas.FOLDER / "verify.json").read_text()))
    return answer  # type: ignore[no-any-return]


def first_pack(mount: MountedStore) -> Path:
    return max(pack_paths(Layout(mount.store, mount.stubs)), key=lambda path: path.stat().st_size)


def test_a_sound_store(mount: MountedStore) -> None:
    whole = verified(mount, 0)
    assert (whole["bad"], whole["damaged"], whole["bytes"]) == ([], [], mount_bytes(mount))
    assert verified(mount, 0, "c")["bytes"] <= len(OTHER)
    assert mount.kvtool("verify", "a").stdout.rstrip().endswith("all good")
    assert "no snapshot" in mount.kvtool("verify", "absent", check=False).stderr


def mount_bytes(mount: MountedStore) -> int:
    with_footers = mount.pack_bytes
    chunks = mount.json("status")["chunks"]
    return with_footers - 56 * chunks - len(pack_paths(Layout(mount.store, mount.stubs))) * (4096 + 32)


def test_damage_is_named_and_heals_when_the_same_bytes_are_saved(mount: MountedStore) -> None:
    path = first_pack(mount)
    flip(path, 4096 + 100_000)
    [bad] = verified(mount, 3)["bad"]
    assert (bad["kind"], bad["pack"]) == ("corrupt", str(path))
    assert bad["offset"] <= 4096 + 100_000 < bad["offset"] + bad["length"]
    assert bad["places"] == [
        {"snapshot": name, "offset": bad["offset"] - 4096} for name in sorted(["a", "b"])
    ]
    assert verified(mount, 0, "c")["bad"] == []
    text = mount.kvtool("verify", "a", check=False)
    assert (text.returncode, bad["chunk"] in text.stdout, "snapshot a" in text.stdout) == (3, True, True)
    assert verified(mount, 3, "--repair")["marked"] == 1
    assert verified(mount, 3)["bad"][0]["kind"] == "missing"
    (mount.dir / "again").write_bytes(DATA)
    assert verified(mount, 0)["bad"] == []
    for name in ("a", "again"):
        assert (mount.dir / name).read_bytes() == DATA
    mount.umount()
    for name in ("catalog.sqlite3", "catalog.sqlite3-wal", "catalog.sqlite3-shm"):
        (mount.store / name).unlink(missing_ok=True)
    mount.start()  # the catalog is made anew from the packs, and the bad copy stays out
    assert verified(mount, 0)["bad"] == []
    assert (mount.dir / "b").read_bytes() == DATA[: 2 << 20] + OTHER


def test_beside_saves_and_collections(mount: MountedStore) -> None:
    for turn in range(4):
        (mount.dir / "a").write_bytes(random_bytes(1 << 20, 50 + turn))
        os.unlink(mount.dir / "c")
        (mount.dir / "c").write_bytes(OTHER[: turn << 18])
        mount.kvtool("gc")
        assert verified(mount, 0)["bad"] == []
