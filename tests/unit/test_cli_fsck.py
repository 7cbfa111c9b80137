"""The command fsck, without a mount: what it says, and how it ends."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvtool.store import lock
from kvtool.store.layout import Layout
from tests import schemas
from tests.cli import Cli
from tests.stores import flip, layout_in, listing, open_store, pack_paths, save
from tests.synth import random_bytes

ODD = "ne\nw \udcff"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with two snapshots, each with a pack of its own; one has an odd name."""
    with open_store(tmp_path) as store:
        save(store, random_bytes(3000, 1), "a")
        save(store, random_bytes(4000, 2), ODD)
    return layout_in(tmp_path)


def lines(cli: Cli, code: int, *arguments: str) -> list[str]:
    """What the command writes for people."""
    done = cli("fsck", *arguments)
    assert done.returncode == code, done
    return done.stdout.decode(errors="surrogateescape").splitlines()


def answer(cli: Cli, code: int, *arguments: str) -> Any:
    """What it answers with --json, as the schema has it."""
    done = cli("fsck", *arguments, "--json")
    assert (done.returncode, done.stderr) == (code, ""), done
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads((schemas.FOLDER / "fsck.json").read_text()))
    return found


def lose_bytes(layout: Layout) -> None:
    """Of the larger pack, the odd snapshot's, one chunk and the header are damaged."""
    path = max(pack_paths(layout), key=lambda path: path.stat().st_size)
    flip(path, 5000)
    flip(path, 10)


def test_a_sound_store(layout: Layout, cli: Cli) -> None:
    assert lines(cli, 0) == ["2 snapshots, 2 packs, 29 chunks: clean"]
    report = answer(cli, 0)
    assert report == {
        "store": str(layout.root),
        "stubs": str(layout.stubs),
        "in_use": False,
        "snapshots": 2,
        "packs": 2,
        "chunks": 29,
        "findings": [],
    }
    assert lines(cli, 0, "--repair") == ["2 snapshots, 2 packs, 29 chunks: clean"]


def test_findings_of_the_store_come_first_then_those_of_each_snapshot(layout: Layout, cli: Cli) -> None:
    lose_bytes(layout)
    os.setxattr(layout.stubs / "a", "user.kvtool.size", b"5")
    (layout.stubs / ODD).write_bytes(bytes(200))
    (layout.root / "note\x1b").touch()
    found = lines(cli, 3)
    assert [line.partition(":")[0] for line in found] == [
        "info foreign",
        "fixable pack-header",
        "snapshot a",
        "  fixable stub-size",
        r"snapshot ne\nw \udcff",
        "  damage stub-damaged",
        "2 snapshots, 2 packs, 14 chunks",
    ]
    assert found[0].endswith(r"note\x1b: is not kvtool's")
    assert found[-1].endswith(": 1 damage, 2 fixable, 1 info")
    assert "kvtool fsck --repair" in cli("fsck").stderr
    report = answer(cli, 3)
    assert [finding["code"] for finding in report["findings"]] == [
        "foreign",
        "pack-header",
        "stub-damaged",
        "stub-size",
    ]
    assert report["findings"][2]["snapshots"] == [ODD]


def test_only_information_is_no_failure(layout: Layout, cli: Cli) -> None:
    (layout.root / "note").touch()
    assert lines(cli, 0)[-1].endswith(": 0 damage, 0 fixable, 1 info")
    assert cli("fsck").stderr == ""


def test_a_dry_run_says_what_would_be_done_and_does_nothing(layout: Layout, cli: Cli) -> None:
    lose_bytes(layout)
    before = listing(layout.packs, layout.stubs)
    found = lines(cli, 3, "--repair", "--dry-run")
    assert found[1:3] == [
        r"  concerns ne\nw \udcff",
        "  repair: chunks whose SHA-256 is right go to a new pack, the pack to quarantine/",
    ]
    assert listing(layout.packs, layout.stubs) == before
    assert not layout.lock.exists()


def test_a_repair_says_what_is_mended_and_what_is_left(layout: Layout, cli: Cli) -> None:
    lose_bytes(layout)
    found = lines(cli, 3, "--repair")
    assert found[2].endswith("(mended)")
    assert found[3] == r"snapshot ne\nw \udcff"
    assert found[-2].endswith("(left)")
    report = answer(cli, 3, "--repair")
    [finding] = report["findings"]
    assert (finding["code"], finding["outcome"]) == ("stub-chunk-missing", "left")
    report = answer(cli, 3, "--repair", "--quarantine-snapshots")
    assert [(f["code"], f["outcome"]) for f in report["findings"] if f["severity"] != "info"] == [
        ("stub-chunk-missing", "mended")
    ]
    assert answer(cli, 0, "--repair", "--quarantine-snapshots")["snapshots"] == 1


def test_a_damaged_store_toml_and_a_lost_store_id(layout: Layout, cli: Cli) -> None:
    layout.format.write_text("rubbish")
    assert "fixable store-toml: " in lines(cli, 3)[0]
    assert answer(cli, 0, "--repair")["findings"][0]["outcome"] == "mended"
    layout.stub_store_id.unlink()
    assert answer(cli, 3, "--repair")["findings"][0]["code"] == "stubs-no-id"
    assert answer(cli, 0, "--repair", "--adopt-stubs")["findings"][0]["outcome"] == "mended"
    assert cli("cat", "a").stdout == random_bytes(3000, 1)


@pytest.mark.parametrize("flag", ["--dry-run", "--adopt-stubs", "--quarantine-snapshots"])
def test_flags_of_a_repair_alone(cli: Cli, flag: str) -> None:
    done = cli("fsck", flag)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == f"kvtool: error: {flag} goes with --repair\n"


def test_a_store_in_use_is_checked_and_not_repaired(layout: Layout, cli: Cli) -> None:
    held = lock.acquire(layout)
    assert answer(cli, 0)["in_use"] is True
    done = cli("fsck", "--repair")
    assert (done.returncode, done.stdout) == (11, b"")
    assert "unmount it first" in done.stderr
    assert json.loads(cli("fsck", "--repair", "--json").stdout)["error"]["exit"] == 11
    held.release()


def test_no_store_and_a_later_one(layout: Layout, cli: Cli, tmp_path: Path) -> None:
    text = layout.format.read_text()
    layout.format.write_text(text.replace("version = 1", "version = 2"))
    for arguments in ((), ("--repair",)):
        assert "upgrade kvtool" in cli("fsck", *arguments).stderr
        done = cli("fsck", *arguments, "--store.path", str(tmp_path / "absent"))
        assert done.returncode == 10
    cli.flags = ("--store.path", str(tmp_path / "absent"))
    done = cli("fsck", "--repair")
    assert (done.returncode, len(done.stderr.splitlines())) == (10, 1)
    assert not (tmp_path / "absent").exists()
