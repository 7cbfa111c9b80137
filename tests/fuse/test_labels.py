"""kvtool label beside a mount and without one, and that labels outlive rewrites."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests import schemas
from tests.cli import Cli
from tests.mounts import MountedStore
from tests.stores import flags_of, layout_in, open_store, save
from tests.synth import random_bytes

ODD = "ne\nw \udcff"


@pytest.fixture
def cli(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands on a store without a mount, with two snapshots and a directory."""
    with open_store(tmp_path) as store:
        save(store, b"a", "a")
        save(store, b"odd", ODD)
    layout = layout_in(tmp_path)
    (layout.stubs / "d").mkdir()
    return Cli(tmp_path, capsysbinary, monkeypatch, *flags_of(layout))


def labels(cli: Cli, *arguments: str) -> dict[str, str]:
    answer = cli.json("label", *arguments)
    jsonschema.validate(answer, json.loads((schemas.FOLDER / "label.json").read_text()))
    assert answer["name"] == arguments[0]
    return dict(answer["labels"])


def test_set_list_and_remove_without_a_mount(cli: Cli, tmp_path: Path) -> None:
    assert labels(cli, "a") == {}
    assert labels(cli, "a", "project=demo", "keep=a=b") == {"keep": "a=b", "project": "demo"}
    assert cli("label", "a").stdout == b"keep=a=b\nproject=demo\n"
    assert os.getxattr(tmp_path / "stubs/a", "user.kvtool.label.project") == b"demo"
    assert labels(cli, "a", "project=", "new=1") == {"keep": "a=b", "new": "1"}
    assert labels(cli, "a", "--delete", "keep", "--delete", "new") == {}
    assert labels(cli, ODD, "k\n\udcfe=v\n\udcfd") == {"k\n\udcfe": "v\n\udcfd"}
    assert cli("label", ODD).stdout == rb"k\n\udcfe=v\n\udcfd" + b"\n"
    [row] = cli.json("inspect", "--match", "ne*")["snapshots"]
    assert row["labels"] == {"k\n\udcfe": "v\n\udcfd"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent", "a=b"], "there is no snapshot 'absent'"),
        (["d", "a=b"], "'d' is a directory"),
        (["../x", "a=b"], "is not the name of a snapshot"),
        (["a", "word"], "'word' is not a label"),
        (["a", "=b"], "a label needs a name"),
        (["a", "old="], "there is no label 'old'"),
        (["a", "x=1", "--delete", "old"], "there is no label 'old'"),
        (["a", "k" * 250 + "=v"], "does not fit"),
        (["a", "k=" + "v" * 70_000], "does not fit"),
    ],
)
def test_what_is_no_label(cli: Cli, arguments: list[str], words: str) -> None:
    done = cli("label", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr
    assert labels(cli, "a") == {}


@pytest.fixture
def mounted(mount: MountedStore) -> Iterator[MountedStore]:
    (mount.dir / "a").write_bytes(random_bytes(100_000))
    yield mount
    mount.remount()
    mount.kvtool("gc")
    assert mount.kvtool("fsck").stdout.endswith("clean\n")


def label(mount: MountedStore, *arguments: str) -> dict[str, str]:
    return dict(mount.json("label", *arguments)["labels"])


def test_beside_a_mount_and_kept_across_rewrites(mounted: MountedStore) -> None:
    path = mounted.dir / "a"
    before = path.stat().st_ctime_ns
    assert label(mounted, "a", "project=demo") == {"project": "demo"}
    assert path.stat().st_ctime_ns > before  # the kernel's copy of the attributes is dropped
    assert os.getxattr(path, "user.kvtool.label.project") == b"demo"
    os.setxattr(path, "user.kvtool.label.kind", b"chat")
    everything = {"kind": "chat", "project": "demo"}
    assert label(mounted, "a") == everything
    path.write_bytes(random_bytes(50_000, 2))
    assert label(mounted, "a") == everything
    with path.open("ab") as file:
        file.write(b"more")
        file.flush()
        # Between the first write and the commit, as with a long save.
        assert label(mounted, "a", "kind=", "turn=2") == {"project": "demo", "turn": "2"}
        assert path.stat().st_size == 50_004
    assert label(mounted, "a") == {"project": "demo", "turn": "2"}
    aside = mounted.dir / "a.tmp"
    aside.write_bytes(random_bytes(60_000, 3))
    assert label(mounted, "a.tmp", "turn=3") == {"turn": "3"}
    aside.rename(path)
    assert label(mounted, "a") == {"project": "demo", "turn": "3"}
    assert path.read_bytes() == random_bytes(60_000, 3)


def test_the_mount_refuses_what_the_command_refuses(mounted: MountedStore) -> None:
    for arguments, words in (
        (["a", "old="], "there is no label 'old'"),
        (["a", "k=" + "v" * 60_000], "does not fit"),
        (["absent", "k=v"], "there is no snapshot"),
    ):
        done = mounted.kvtool("label", *arguments, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_an_error_is_the_same_beside_a_mount_and_without_one(mounted: MountedStore) -> None:
    def error() -> object:
        return json.loads(mounted.kvtool("label", "a", "old=", "--json", check=False).stdout)["error"]

    beside = error()
    mounted.umount()
    assert error() == beside
    mounted.start()
