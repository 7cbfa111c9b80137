"""kvtool verify without a mount: for people and in JSON; marking, healing by a save, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from kvtool.store import badlist, catalog_files, lock, packs, recover, verify
from kvtool.store.layout import Layout
from kvtool.store.verify import Verified
from tests import processes
from tests.cli import Cli, Done
from tests.mounts import MountedStore, temporary_folder
from tests.property.check import content_of, stub_files
from tests.stores import flip, layout_in, listing, open_store, pack_paths, save, stub
from tests.synth import random_bytes

LIMIT = 60.0
DATA = random_bytes(400_000)
ODD = "d/ne\nw \udcff"


@pytest.fixture
def offline() -> Iterator[MountedStore]:
    """A store that is not mounted, with the snapshots a, b (which shares with it), one of an odd name."""
    with temporary_folder() as root:
        with open_store(root) as store:
            save(store, DATA[:200_000], "a")
            save(store, DATA[50_000:300_000], "b")
            (root / "stubs" / "d").mkdir()
            save(store, DATA[390_000:], ODD)
        lock.acquire(layout_in(root)).release()
        yield MountedStore(root)


@pytest.fixture
def cli(
    offline: MountedStore, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    return Cli(offline.root, capsysbinary, monkeypatch, *offline.settings)


def found_by(done: Done) -> dict[str, Any]:
    """What a verification says in JSON, which is as its schema says."""
    assert done.stderr == "", done
    answer: dict[str, Any] = json.loads(done.stdout)
    odd = done.stdout.replace(b"\\udcff", b"?")  # no text in the sense of JSON Schema
    TypeAdapter(Verified).validate_json(odd, strict=True)
    return answer


def damage(root: Path, name: str, number: int) -> tuple[str, Path, int]:
    """Flips a bit in a chunk of a snapshot. Returns its id, pack and offset there."""
    with open_store(root) as store:
        index = verify.stubs.read_index(stub(store, name))
        place = store.catalog.find([index.id(number)])[index.id(number)]
        path = store.packs.path(place.pack)
    flip(path, place.offset)
    return index.id(number).hex(), path, place.offset


def test_a_sound_store_and_an_empty_one(offline: MountedStore, cli: Cli) -> None:
    seen = listing(offline.stubs, offline.store / "packs")
    found = found_by(cli("verify", "--json"))
    assert (found["bad"], found["damaged"], found["marked"]) == ([], [], 0)
    stored = [entry for path in pack_paths(layout_in(offline.root)) for entry in packs.read_entries(path)[2]]
    assert (found["chunks"], found["bytes"]) == (len(stored), sum(entry.length for entry in stored))
    done = cli("verify")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.decode().splitlines()
    assert line.startswith(f"{found['chunks']} chunks, ")
    assert line.endswith(": all good")
    assert cli.json("verify", "a", "a")["bytes"] == 200_000
    assert cli.json("verify", ODD)["bytes"] == 10_000
    assert listing(offline.stubs, offline.store / "packs") == seen


def test_damage_is_told_by_snapshot_with_exit_code_3(offline: MountedStore, cli: Cli) -> None:
    chunk, path, offset = damage(offline.root, "a", 0)
    other, *_ = damage(offline.root, ODD, 1)
    done = cli("verify", "--json")
    found = found_by(done)
    assert (done.returncode, [bad["kind"] for bad in found["bad"]]) == (3, ["corrupt"] * 2)
    first = next(bad for bad in found["bad"] if bad["chunk"] == chunk)
    assert (first["pack"], first["offset"]) == (str(path), offset)
    assert first["places"] == [{"snapshot": "a", "offset": 0}]
    assert [
        place["snapshot"] for bad in found["bad"] if bad["chunk"] == other for place in bad["places"]
    ] == [ODD]
    done = cli("verify")
    lines = done.stdout.decode(errors="surrogateescape").splitlines()
    assert (done.returncode, done.stderr, lines[0]) == (3, "", "snapshot a")
    assert lines[1] == (
        f"  at 0: corrupt chunk {chunk} ({first['length']} bytes) in {path} at {offset}:"
        " the bytes are not those that the id names"
    )
    assert lines[2] == "snapshot d/ne\\nw \\udcff"
    assert lines[4].endswith("2 bad, in 2 snapshots")
    assert cli("verify", "a").returncode == 3
    assert cli("verify", "b").returncode == 0
    os.unlink(offline.stubs / "a")
    lines = cli("verify").stdout.decode(errors="surrogateescape").splitlines()
    assert lines[2:4] == ["needed by no snapshot", "  corrupt " + lines[3].removeprefix("  corrupt ")]


def test_damaged_files_are_told(offline: MountedStore, cli: Cli) -> None:
    foreign = offline.stubs / "foreign\n"
    foreign.write_text("x")
    path = pack_paths(layout_in(offline.root))[0]
    flip(path, path.stat().st_size - 3)
    done = cli("verify", "--json")
    damaged = found_by(done)["damaged"]
    assert (done.returncode, found_by(done)["bad"]) == (3, [])
    assert [(one["kind"], one["path"]) for one in damaged] == [("pack", str(path)), ("stub", str(foreign))]
    lines = cli("verify").stdout.decode().splitlines()
    assert lines[0].startswith(f"damaged pack {path}: ")
    assert lines[1].startswith(f"damaged stub {offline.stubs}/foreign\\n: ")
    assert lines[2].endswith("all chunks good; 2 damaged files")
    assert cli("verify", "foreign\n").returncode == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["absent"], 2, "there is no snapshot 'absent'"),
        (["a", "d"], 2, "is a directory"),
        (["../store/store.toml"], 2, "is not the name of a snapshot"),
        (["a", "--store.path", "/nonexistent"], 10, "there is no store at"),
    ],
)
def test_what_cannot_be_verified(
    offline: MountedStore, cli: Cli, arguments: list[str], code: int, words: str
) -> None:
    if "--store.path" in arguments:
        cli.flags = ()
    done = cli("verify", *arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, b"", 1)
    assert words in done.stderr
    error = json.loads(cli("verify", *arguments, "--json").stdout)["error"]
    assert (error["exit"], words in error["message"]) == (code, True)


def test_without_a_catalog_the_next_step_is_named(offline: MountedStore, cli: Cli) -> None:
    catalog_files.discard(offline.store / "catalog.sqlite3")
    done = cli("verify")
    assert (done.returncode, "start `kvtool mount` once" in done.stderr) == (10, True)


# -- marking


def contents(root: Path) -> dict[bytes, bytes]:
    """Every snapshot from the packs alone: of two copies of a chunk the good one, if any."""
    good = {}
    for path in pack_paths(layout_in(root)):
        pack_id, _, entries = packs.read_entries(path)
        for entry in entries:
            if badlist.look(layout_in(root), badlist.Copy(pack_id, *entry[:3])) is None:
                good[entry.id] = (path, entry)
    found = {}
    for name in stub_files(root / "stubs"):
        index = verify.stubs.read_index(os.path.join(os.fsencode(root / "stubs"), name))
        found[name] = content_of(index, good, name)
    return found


def test_repair_save_lose_the_catalog_and_every_snapshot_reads(offline: MountedStore, cli: Cli) -> None:
    before = contents(offline.root)
    for number in (3, 100, 900):
        damage(offline.root, "b", number)
    assert cli("verify", "a", "b").returncode == 3
    done = cli("verify", "--repair", "--json")
    found = found_by(done)
    assert (done.returncode, found["marked"], len(found["bad"])) == (3, 3, 3)
    done = cli("verify", "--repair", "--json")  # none is there any more to be marked
    assert (done.returncode, found_by(done)["marked"]) == (3, 0)
    assert {bad["kind"] for bad in found_by(done)["bad"]} == {"missing"}
    for again in range(2):
        catalog_files.discard(offline.store / "catalog.sqlite3")
        with recover.writer(Layout(offline.store, offline.stubs), sync=False) as (store, _, _):
            if not again:
                save(store, DATA[50_000:300_000])  # the same bytes under no name
        for name, data in before.items():
            assert cli("cat", os.fsdecode(name)).stdout == data
    assert found_by(cli("verify", "--json"))["bad"] == []
    assert contents(offline.root) == before


def test_what_no_snapshot_needs_is_dealt_with_by_marking(offline: MountedStore, cli: Cli) -> None:
    damage(offline.root, ODD, 1)
    os.unlink(os.fsencode(offline.stubs / ODD))
    assert cli("verify").returncode == 3
    done = cli("verify", "--repair")
    assert done.returncode == 0
    assert b"1 bad copies marked" in done.stdout
    assert cli("verify").returncode == 0


def test_what_was_found_is_told_when_it_cannot_be_marked(offline: MountedStore, cli: Cli) -> None:
    chunk, *_ = damage(offline.root, "a", 0)
    held = lock.acquire(layout_in(offline.root))
    done = cli("verify", "--repair", "--json")
    found = found_by(done)
    assert (done.returncode, found["marked"], found["bad"][0]["chunk"]) == (3, 0, chunk)
    assert "is in use" in found["failure"]
    done = cli("verify", "--repair")
    assert (done.returncode, chunk in done.stdout.decode(errors="replace")) == (3, True)
    assert done.stderr.startswith("nothing was marked: store ")
    held.release()


# -- the terminal


def test_interrupted_it_ends_with_130_and_leaves_no_process(offline: MountedStore) -> None:
    script = (
        "import signal, sys\n"
        "from kvtool.cli.main import entry\n"
        "from kvtool.store import hashers\n"
        "hashers.count_for = lambda size: 2\n"
        "hashers.look_at = lambda path, entries: signal.pause()\n"
        "sys.exit(entry())\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", script, "verify", *offline.settings],
        env=offline.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    processes.wait_until(lambda: len(processes.family(started.pid)) == 3, LIMIT, "two hashers")
    family = processes.family(started.pid)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=LIMIT)
    assert (started.returncode, out, err) == (130, b"", b"kvtool: error: interrupted\n")
    processes.wait_gone(family, LIMIT)
