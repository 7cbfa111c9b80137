"""The commands beside a mount and without one, for people and in JSON."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtool.store import lock
from kvtool.store.layout import Layout
from tests import processes
from tests.cli import Cli
from tests.mounts import MountedStore, connection_of, temporary_folder
from tests.stores import flip, listing, open_store, pack_paths, save
from tests.synth import Conversation, Shape, random_bytes

LIMIT = 60.0
DATA = random_bytes(3 << 20)


@pytest.fixture
def offline() -> Iterator[MountedStore]:
    """A store that is not mounted, with the snapshots a, b (longer by a bit), and odd names."""
    with temporary_folder() as root:
        with open_store(root) as store:
            save(store, DATA[:100_000], "a")
            save(store, DATA[:110_000], "b")
            (root / "stubs" / "d").mkdir()
            save(store, b"odd", "d/ne\nw \udcff")
            save(store, b"", "empty")
        lock.acquire(Layout(root / "store", root / "stubs")).release()
        (root / "mnt").mkdir()
        yield MountedStore(root)


@pytest.fixture
def cli(
    offline: MountedStore, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Commands on that store."""
    return Cli(offline.root, capsysbinary, monkeypatch, *offline.settings)


def unchanged(store: MountedStore) -> dict[str, tuple[object, ...]]:
    """What must not change: all but the lock and the catalog, whose log comes and goes with readers."""
    seen = listing(store.store, store.stubs)
    return {
        path: what
        for path, what in seen.items()
        if not path.startswith(f"{store.store}/catalog.")
        and path not in {f"{store.store}/lock", str(store.store)}
    }


def error_of(cli: Cli, store: MountedStore, code: int, *arguments: str) -> str:
    """The message of a command that fails, the same in one line and in JSON; nothing is changed."""
    seen = unchanged(store)
    done = cli(*arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, b"", 1), done
    answer = cli(*arguments, "--json")
    assert (answer.returncode, answer.stderr) == (code, "")
    error = json.loads(answer.stdout)["error"]
    assert error["exit"] == code
    assert unchanged(store) == seen
    return str(error["message"])


def test_a_mount_in_the_background_from_start_to_end(offline: MountedStore, cli: Cli) -> None:
    place = str(offline.dir)
    started = cli.json("mount", "--background", place)
    pid = started["pid"]
    try:
        assert started == {"mountpoint": place, "store": str(offline.store), "pid": pid}
        assert connection_of(offline.dir) is not None
        status = cli.json("status")
        assert (status["pid"], status["mountpoint"], status["unfinished_saves"]) == (pid, place, 0)
        assert f"mounted on  {place}".encode() in cli("status").stdout
        handle = os.open(offline.dir / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, b"appended")
        family = processes.family(pid)
        (offline.root / "link").symlink_to("mnt")
        ended = cli.json("umount", str(offline.root / "link"))
        assert ended["store"] == str(offline.store)
        assert not any(map(processes.alive, family))
        assert not lock.is_held(Layout(offline.store, offline.stubs))
        assert connection_of(offline.dir) is None
        with pytest.raises(OSError, match=r"."):
            os.close(handle)
        assert cli("cat", "log").stdout == b"appended"
        assert "ready" in (offline.store / "mount.log").read_text()
        assert (offline.store / "lock").read_text().startswith("- ")
        assert not (offline.store / "control.sock").exists()
    finally:
        processes.end(pid)
        if connection_of(offline.dir) is not None:
            subprocess.run(["fusermount3", "-uz", place], check=True)


def test_a_mount_whose_socket_was_deleted_is_not_taken_for_a_dead_one(
    offline: MountedStore, cli: Cli
) -> None:
    place = str(offline.dir)
    pid = cli.json("mount", "--background", place)["pid"]
    try:
        handle = os.open(offline.dir / "new", os.O_WRONLY | os.O_CREAT)
        os.write(handle, b"half")
        (offline.store / "control.sock").unlink()
        for command in (("umount", place), ("status",), ("gc",), ("config", "--running")):
            done = cli(*command)
            assert (done.returncode, done.stdout) == (11, b""), done
            assert "nobody answers at" in done.stderr
        assert connection_of(offline.dir) is not None
        os.write(handle, b" and half")
        os.close(handle)
        family = processes.family(pid)
        subprocess.run(["fusermount3", "-u", place], check=True, timeout=LIMIT)
        processes.wait_gone(family, LIMIT)
        assert cli("cat", "new").stdout == b"half and half"
    finally:
        processes.end(pid)
        if connection_of(offline.dir) is not None:
            subprocess.run(["fusermount3", "-uz", place], check=True)


def test_a_mount_in_the_background_that_fails_says_why(offline: MountedStore, cli: Cli) -> None:
    place = str(offline.dir)
    assert "does not exist" in error_of(cli, offline, 2, "mount", "--background", place + "x")
    held = lock.acquire(Layout(offline.store, offline.stubs))
    assert "is in use by process" in error_of(cli, offline, 11, "mount", "--background", place)
    held.release()


def test_a_mountpoint_that_looks_like_a_flag(offline: MountedStore, cli: Cli) -> None:
    place = offline.root / "-odd"
    place.mkdir()
    command = [sys.executable, "-m", "kvtool", "mount", "--background", *offline.settings, "--", "-odd"]
    done = subprocess.run(
        command, env=offline.environment, cwd=offline.root, capture_output=True, check=False, timeout=LIMIT
    )
    try:
        assert done.returncode == 0, done.stderr
        assert connection_of(place) is not None
    finally:
        if connection_of(place) is not None:
            offline.kvtool("umount", str(place))


def test_umount_of_nothing_and_of_a_dead_mount(mount: MountedStore) -> None:
    nothing = mount.root / "nothing"
    nothing.mkdir()
    for place in (nothing, mount.root / "absent"):
        done = mount.kvtool("umount", str(place), check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no kvtool mount is at" in done.stderr
    (mount.dir / "a").write_bytes(b"hello")
    mount.kill()
    assert connection_of(mount.dir) is not None
    with pytest.raises(OSError, match=r"not connected"):
        os.statvfs(mount.dir)
    assert mount.json("umount", str(mount.dir))["mountpoint"] == str(mount.dir)
    assert connection_of(mount.dir) is None
    mount.start()
    assert (mount.dir / "a").read_bytes() == b"hello"


def test_status_without_a_mount(offline: MountedStore, cli: Cli) -> None:
    assert "no mount of store" in error_of(cli, offline, 1, "status")


def test_commands_on_a_store_that_is_not_there(offline: MountedStore, cli: Cli) -> None:
    offline.store = offline.root / "absent"
    cli.flags = tuple(offline.settings)
    for command in (["status"], ["inspect"], ["inspect", "a"], ["cat", "a"], ["gc"], ["gc", "--dry-run"]):
        assert "there is no store at" in error_of(cli, offline, 10, *command)
    assert not offline.store.exists()


def test_inspect_lists_what_snapshots_cost_also_beside_a_mount(offline: MountedStore, cli: Cli) -> None:
    rows = {row["name"]: row for row in cli.json("inspect")["snapshots"]}
    assert set(rows) == {"a", "b", "d/ne\nw \udcff", "empty"}
    assert (rows["a"]["size"], rows["b"]["size"], rows["empty"]["size"]) == (100_000, 110_000, 0)
    assert rows["a"]["unique_bytes"] + rows["a"]["shared_bytes"] == 100_000
    assert rows["a"]["shared_bytes"] == rows["b"]["shared_bytes"] > 90_000
    assert len(cli("inspect").stdout.splitlines()) >= 5
    one = cli.json("inspect", "a")
    assert (one["size"], one["missing"], one["packs"], one["runs"]) == (100_000, None, 1, 1)
    assert one["chunks"] == rows["a"]["chunks"]
    assert b"size           100000 (" in cli("inspect", "a").stdout
    offline.dir.rmdir()
    with offline:
        os.setxattr(offline.dir / "a", "user.kvtool.label.kind", b"chat")
        (offline.dir / "a").read_bytes()
        [row] = cli.json("inspect", "--match", "a")["snapshots"]
        assert (row["uses"], row["labels"]) == (1, {"kind": "chat"})


def test_inspect_counts_the_tokens_of_a_llama_snapshot(offline: MountedStore, cli: Cli) -> None:
    with open_store(offline.root) as store:
        save(store, Conversation(Shape(layers=2, row=64)).turn(9000).snapshot().data, "slot")
        save(store, struct.pack("<III", 0x67677371, 4, 1000), "cut")
    assert cli.json("inspect", "slot")["llama"]["tokens"] == 9000
    assert [cli.json("inspect", name)["llama"] for name in ("a", "empty", "cut")] == [None, None, None]


def test_inspect_tells_of_damage_with_exit_code_3(offline: MountedStore, cli: Cli) -> None:
    (offline.stubs / "foreign").write_text("x")
    done = cli("inspect", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 3
    assert [entry["name"] for entry in found["damaged"]] == ["foreign"]
    assert len(found["snapshots"]) == 4
    assert "foreign" in error_of(cli, offline, 3, "inspect", "foreign")
    with open_store(offline.root) as store:
        gone = store.packs.path(store.catalog.packs()[0].key)
    gone.unlink()
    done = cli("inspect", "a", "--json")
    assert (done.returncode, "is missing" in json.loads(done.stdout)["missing"]) == (3, True)


def test_cat_writes_the_bytes_of_any_name(offline: MountedStore, cli: Cli) -> None:
    for name, data in {
        "a": DATA[:100_000],
        "b": DATA[:110_000],
        "empty": b"",
        "d/ne\nw \udcff": b"odd",
    }.items():
        assert cli("cat", name).stdout == data
    output = offline.root / "out"
    assert cli.json("cat", "a", "--output", str(output))["size"] == 100_000
    assert output.read_bytes() == DATA[:100_000]


def test_cat_to_a_closed_pipe_ends_without_a_word(offline: MountedStore, cli: Cli) -> None:
    with open_store(offline.root) as store:
        save(store, DATA, "large")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "kvtool", "cat", "large", *offline.settings]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=LIMIT)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "there is no snapshot 'absent'"),
        ("d", "is a directory"),
        ("../store/store.toml", "is not the name of a snapshot"),
        ("/etc/passwd", "is not the name of a snapshot"),
        ("d/../a", "is not the name of a snapshot"),
        (".kvtool/store-id", "is not the name of a snapshot"),
        ("", "is not the name of a snapshot"),
        ("x" * 256, "is not the name of a snapshot"),
    ],
)
def test_names_that_are_none(offline: MountedStore, cli: Cli, name: str, words: str) -> None:
    assert words in error_of(cli, offline, 2, "cat", name)
    if name not in {"absent", "d"}:
        assert words in error_of(cli, offline, 2, "chunk", "/etc/hostname", f"--name={name}")


def test_cat_of_damage_leaves_what_is_there(offline: MountedStore, cli: Cli) -> None:
    output = offline.root / "out"
    output.write_text("precious")
    with open_store(offline.root) as store:
        path = store.packs.path(store.catalog.packs()[0].key)
    flip(path, 5000)
    done = cli("cat", "a", "--output", str(output))
    assert (done.returncode, output.read_text()) == (3, "precious")
    done = cli("cat", "a")
    assert (done.returncode, done.stdout) == (3, b"")
    path.unlink()
    assert "is missing" in error_of(cli, offline, 3, "cat", "a", "--output", str(output))
    assert output.read_text() == "precious"


def test_chunk_stores_files_under_any_name(offline: MountedStore, cli: Cli) -> None:
    odd = offline.root / "odd\n \udcfe"
    odd.write_bytes(DATA[:5000])
    fresh = offline.root / "fresh"
    fresh.write_bytes(DATA[:100_000] + random_bytes(3000, 9))
    seen = unchanged(offline)
    would = cli.json("chunk", "--dry-run", str(odd), str(fresh))
    assert unchanged(offline) == seen
    assert would["snapshots"][0]["new_bytes"] < 2000
    assert 3000 <= would["snapshots"][1]["new_bytes"] < 6000
    did = cli.json("chunk", str(odd), str(fresh))
    assert did["snapshots"] == would["snapshots"]
    assert [row["name"] for row in did["snapshots"]] == ["odd\n \udcfe", "fresh"]
    assert cli("cat", "odd\n \udcfe").stdout == DATA[:5000]
    assert cli("cat", "fresh").stdout == fresh.read_bytes()
    again = cli.json("chunk", str(fresh), "--name", "new/deep/name")
    assert again["snapshots"][0]["new_bytes"] == 0
    assert cli("cat", "new/deep/name").stdout == fresh.read_bytes()
    assert cli("chunk", str(odd)).stdout.startswith(rb"odd\n \udcfe: ")


def test_chunk_makes_a_store_where_there_is_none(offline: MountedStore, cli: Cli) -> None:
    offline.store, offline.stubs = offline.root / "s2", offline.root / "s2" / "stubs"
    cli.flags = tuple(offline.settings)
    cli.json("chunk", "/etc/hostname")
    assert cli("cat", "hostname").stdout == Path("/etc/hostname").read_bytes()


def test_chunk_refuses_what_it_cannot_store(offline: MountedStore, cli: Cli) -> None:
    assert "does not exist" in error_of(cli, offline, 2, "chunk", "/nonexistent/file")
    assert "is not a regular file" in error_of(cli, offline, 2, "chunk", str(offline.root))
    assert "is not a regular file" in error_of(cli, offline, 2, "chunk", "/dev/null")
    assert "goes with one file" in error_of(
        cli, offline, 2, "chunk", "/etc/hostname", "/etc/passwd", "--name", "x"
    )
    assert "is a directory" in error_of(cli, offline, 2, "chunk", "/etc/hostname", "--name", "d")
    below = error_of(cli, offline, 2, "chunk", "/etc/hostname", "--name", "a/below a file")
    assert "is no directory" in below


def test_chunk_dry_run_and_gc_beside_a_mount(mount: MountedStore) -> None:
    (mount.dir / "a").write_bytes(DATA)
    (mount.dir / "b").write_bytes(random_bytes(200_000, 5))
    [row] = mount.json("chunk", "--dry-run", str(mount.dir / "a"))["snapshots"]
    assert (row["size"], row["new_bytes"]) == (len(DATA), 0)
    assert mount.json("gc")["packs"] == 0
    (mount.dir / "a").unlink()
    would = mount.json("gc", "--dry-run")
    assert (would["packs"], would["dry_run"]) == (1, True)
    assert would["bytes"] > len(DATA)
    assert len(pack_paths(Layout(mount.store, mount.stubs))) == 2
    did = mount.json("gc")
    assert did == would | {"dry_run": False}
    assert len(pack_paths(Layout(mount.store, mount.stubs))) == 1
    assert mount.json("status")["last_collection"] == {"packs": 1, "rewritten": 0, "bytes": did["bytes"]}
    assert mount.kvtool("gc").stdout.startswith("0 packs")
    (mount.dir / "a").write_bytes(DATA)
    mount.remount()
    assert (mount.dir / "a").read_bytes() == DATA


def test_gc_without_a_mount(offline: MountedStore, cli: Cli) -> None:
    assert cli.json("gc")["packs"] == 0
    (offline.stubs / "b").unlink()
    (offline.stubs / "foreign").write_text("x")
    for more in ([], ["--dry-run"]):
        message = error_of(cli, offline, 3, "gc", *more)
        assert "foreign" in message
    (offline.stubs / "foreign").unlink()
    seen = unchanged(offline)
    assert cli.json("gc", "--dry-run")["packs"] == 1
    assert unchanged(offline) == seen
    (offline.store / "incoming" / "left.pack").touch()
    did = cli.json("gc")
    assert (did["packs"], did["leftovers"]) == (1, 1)
    assert cli("cat", "a").stdout == DATA[:100_000]
    offline.stubs.rename(offline.root / "unmounted")
    assert "is not there" in error_of(cli, offline, 10, "gc")
