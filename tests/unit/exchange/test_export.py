"""kvtool export: what casync reads of it, resumption, damage, and where nothing is written."""

import errno
import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtool.store import castore, durable, stubs
from kvtool.store.exchange import Export
from kvtool.store.layout import Layout
from tests.cli import Cli
from tests.exchange import DATA, FILES, SIZES, casync, chunk_files, refused
from tests.stores import (
    flip,
    listing,
    open_store,
    pack_paths,
    save,
)


def test_an_export_is_indexes_and_each_chunk_once(cli: Cli, layout: Layout, tmp_path: Path) -> None:
    answer = cli.json("export", *FILES, "a", "--to", str(tmp_path / "to"))
    assert answer["chunks"] == str(tmp_path / "to" / "default.castr")
    assert [row["name"] for row in answer["snapshots"]] == list(FILES)
    wanted: dict[str, bytes] = {}
    for row in answer["snapshots"]:
        raw = Path(row["index"]).read_bytes()
        assert row["index"] == str(tmp_path / "to" / f"{row['name']}.caibx")
        assert raw == (layout.stubs / row["name"]).read_bytes()
        assert len(raw) == 104 + 40 * row["chunks"]
        start = 0
        for at in range(64, 64 + 40 * row["chunks"], 40):
            end, digest = struct.unpack_from("<Q32s", raw, at)
            wanted[digest.hex()] = FILES[row["name"]][start:end]
            start = end
    found = {path.name: path.read_bytes() for path in chunk_files(tmp_path / "to")}
    assert found == wanted
    assert all(path.parent.name == path.name[:4] for path in chunk_files(tmp_path / "to"))
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in found.items())
    assert sum(row["new_chunks"] for row in answer["snapshots"]) == len(wanted)
    assert sum(row["new_bytes"] for row in answer["snapshots"]) == sum(map(len, wanted.values()))
    assert not list((tmp_path / "to").rglob("*.part"))


def test_casync_extracts_an_export_and_reads_stubs(to: Path, layout: Layout, tmp_path: Path) -> None:
    out = tmp_path / "out"
    casync("extract", to / "a.caibx", out)  # the chunks beside the index are where casync looks
    assert out.read_bytes() == FILES["a"]
    for name, data in FILES.items():
        casync("extract", f"--store={to}/default.castr", to / f"{name}.caibx", out)
        assert out.read_bytes() == data
        out.unlink()
        casync("extract", "--what=blob-index", f"--store={to}/default.castr", layout.stubs / name, out)
        assert out.read_bytes() == data
        out.unlink()


def test_casync_finds_a_damaged_chunk(to: Path, tmp_path: Path) -> None:
    flip(chunk_files(to)[0], 0)
    codes = [
        casync("extract", f"--store={to}/default.castr", to / f"{name}.caibx", tmp_path / "out", check=False)
        for name in ("a", "chat/b")
    ]
    assert any(codes)


def test_an_export_is_resumed(layout: Layout, cli: Cli, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop_after(bytes_done: int) -> Callable[[int], None]:
        left = [bytes_done]

        def done(count: int) -> None:
            left[0] -= count
            if left[0] <= 0:
                raise Stop

        return done

    to = tmp_path / "to"
    with open_store(tmp_path, SIZES) as store:
        with pytest.raises(Stop):
            Export(store, str(to)).run("a", stop_after(100_000))
        assert not (to / "a.caibx").exists()
        first = {path: path.stat().st_mtime_ns for path in chunk_files(to)}
        done = Export(store, str(to)).run("a")
    assert 0 < len(first) < done.chunks
    assert len(first) + done.new_chunks == len(chunk_files(to)) == done.chunks
    assert {path: path.stat().st_mtime_ns for path in first} == first
    assert cli.json("export", "a", "--to", str(to))["snapshots"][0]["new_chunks"] == 0


def test_an_interrupted_export_leaves_nothing_half_done(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_source: object, _target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(castore.os, "rename", interrupt)
    assert cli("export", "a", "--to", str(tmp_path / "to")).returncode == 130
    assert not [path for path in (tmp_path / "to").rglob("*") if path.is_file()]


def test_two_exports_at_once_keep_apart_though_their_process_ids_are_the_same(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers."""
    to = tmp_path / "to"
    rename = os.rename
    with open_store(tmp_path, SIZES) as store:

        def other_first(source: bytes, target: bytes) -> None:
            monkeypatch.setattr(castore.os, "rename", rename)
            Export(store, str(to)).run("chat/b")
            rename(source, target)

        monkeypatch.setattr(castore.os, "rename", other_first)
        Export(store, str(to)).run("a")
    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in chunk_files(to)} == {
        path.name for path in chunk_files(to)
    }


def test_what_killed_exports_left_aside_is_removed_an_hour_later(cli: Cli, to: Path) -> None:
    old, new = (to / "default.castr" / f".{name}.part" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    chunk_files(to)[0].unlink()
    cli.json("export", *FILES, "--to", str(to))
    assert (old.exists(), new.exists()) == (False, True)


def test_what_others_left_aside_is_no_reason_to_fail(
    cli: Cli, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = to / "default.castr" / ".old.part"
    old.touch()
    os.utime(old, (0, 0))
    chunk_files(to)[0].unlink()

    def not_ours(path: bytes) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(castore.os, "unlink", not_ours)
    cli.json("export", *FILES, "--to", str(to))
    assert old.exists()


def test_an_index_is_written_when_its_chunks_are_on_the_disk_whoever_wrote_them(
    to: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (to / "a.caibx").unlink()  # as when an export was killed after the last chunk
    synced = []

    def note(folder: Path) -> None:
        assert not (to / "a.caibx").exists()
        synced.append(folder)

    monkeypatch.setattr(durable, "sync_folder", note)
    assert cli.json("export", "a", "--to", str(to))["snapshots"][0]["new_chunks"] == 0
    assert synced == [to / "default.castr"]


def test_names_that_are_too_long_are_told_before_anything_is_written(
    cli: Cli, layout: Layout, tmp_path: Path
) -> None:
    longest, too_long = "n" * 249, "n" * 250
    for name in (longest, too_long):
        (layout.stubs / name).write_bytes((layout.stubs / "a").read_bytes())
    refused(cli("export", "a", too_long, "--to", str(tmp_path / "to")), 2, "too long for an index")
    assert not (tmp_path / "to").exists()
    cli.json("export", longest, "--to", str(tmp_path / "to"))
    assert (tmp_path / "to" / f"{longest}.caibx").exists()


def test_a_full_disk_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_source: object, _target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(castore.os, "rename", full)
    refused(cli("export", "a", "--to", str(tmp_path / "to")), 1, f"{tmp_path}/to/default.castr/", "No space")


def test_what_is_there_is_told_by_its_size_or_its_bytes(to: Path, cli: Cli) -> None:
    short, wrong, link = chunk_files(to)[:3]
    good = {path: path.read_bytes() for path in (short, wrong, link)}
    short.write_bytes(b"x")
    flip(wrong, 0)
    link.unlink()
    link.symlink_to(wrong)
    rows = cli.json("export", *FILES, "--to", str(to))["snapshots"]
    assert sum(row["new_chunks"] for row in rows) == 2  # the wrong one is as long as it should be
    rows = cli.json("export", *FILES, "--to", str(to), "--verify")["snapshots"]
    assert sum(row["new_chunks"] for row in rows) == 1
    assert {path: path.read_bytes() for path in good} == good
    assert not link.is_symlink()


def test_an_index_is_replaced_by_a_newer_export(to: Path, cli: Cli, tmp_path: Path) -> None:
    with open_store(tmp_path, SIZES) as store:
        save(store, DATA[:50_000], "a")
    before = listing(to / "default.castr")
    done = cli("export", "a", "--to", str(to), "--dry-run")
    assert done.stdout.endswith(b"to be written\n")
    assert (to / "a.caibx").read_bytes() != (tmp_path / "stubs" / "a").read_bytes()
    assert listing(to / "default.castr") == before
    cli.json("export", "a", "--to", str(to))
    assert (to / "a.caibx").read_bytes() == (tmp_path / "stubs" / "a").read_bytes()


def test_a_dry_run_counts_what_would_be_written_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    would = cli.json("export", *FILES, "--to", str(tmp_path / "to"), "--dry-run")
    assert not (tmp_path / "to").exists()
    did = cli.json("export", *FILES, "--to", str(tmp_path / "to"))
    assert would == did | {"dry_run": True}


def test_a_damaged_snapshot_gets_no_index_and_others_do(layout: Layout, cli: Cli, tmp_path: Path) -> None:
    [pack] = [path for path in pack_paths(layout) if path.stat().st_size > 190_000]
    index = stubs.read_index(os.fsencode(layout.stubs / "a"))
    number = len(index) - 1  # none of those that are shared
    flip(pack, 4096 + index.ends[number - 1])
    done = cli("export", *FILES, "--to", str(tmp_path / "to"))
    assert done.returncode == 3
    line = done.stdout.decode(errors="surrogateescape").splitlines()[-1]
    for word in ("'a'", f" at {index.ends[number - 1]}: ", index.id(number).hex(), str(pack), "damaged"):
        assert word in line
    assert not (tmp_path / "to" / "a.caibx").exists()
    assert not (
        tmp_path / "to" / "default.castr" / index.id(number).hex()[:4] / index.id(number).hex()
    ).exists()
    assert (tmp_path / "to" / "chat" / "b.caibx").exists()
    pack.unlink()
    done = cli("export", "a", "--to", str(tmp_path / "gone"), "--json")
    [damaged] = json.loads(done.stdout)["damaged"]
    assert done.returncode == 3
    assert index.id(0).hex() in damaged["message"]
    (layout.stubs / "a").write_bytes(b"no index")
    assert cli("export", "a", "--to", str(tmp_path / "to")).returncode == 3


def test_a_snapshot_saved_again_meanwhile_is_exported_as_it_is_now(tmp_path: Path, layout: Layout) -> None:
    with open_store(tmp_path, SIZES) as store:
        work = Export(store, str(tmp_path / "to"))

        def save_again(_count: int) -> None:
            if pack_paths(layout):
                for path in pack_paths(layout):
                    path.unlink()
                store.packs.close()
                save(store, DATA[250_000:], "a")
                pack_paths(layout)[0].rename(tmp_path / "kept")
                (tmp_path / "kept").rename(store.packs.path(max(row.key for row in store.catalog.packs())))

        calls = iter([save_again])
        done = work.run("a", lambda count: next(calls, lambda _count: None)(count))
        assert done.size == 150_000
        assert (tmp_path / "to" / "a.caibx").read_bytes() == (layout.stubs / "a").read_bytes()


def test_no_export_where_it_would_do_harm(cli: Cli, layout: Layout, tmp_path: Path) -> None:
    to = tmp_path / "to"
    refused(cli("export", "a", "--to", str(layout.stubs / "chat")), 2, "lies in")
    refused(cli("export", "a", "--to", str(layout.root)), 2, "lies in")
    refused(cli("export", "a", "../a", "--to", str(to)), 2, "'../a'")
    refused(cli("export", "a", "absent", "--to", str(to)), 2, "'absent'")
    refused(cli("export", "a"), 2, "--to")
    refused(cli("export", "a", "--to", ""), 2, "--to", "empty")
    assert not to.exists()
    to.mkdir()
    (to / "default.castr").symlink_to(layout.packs)
    refused(cli("export", "a", "--to", str(to)), 2, "default.castr", "lies in")
    (to / "default.castr").unlink()
    (to / "default.castr").touch()
    refused(cli("export", "a", "--to", str(to)), 2, "default.castr is no directory")
    (to / "default.castr").unlink()
    (tmp_path / "elsewhere").mkdir()
    (to / "chat").symlink_to(tmp_path / "elsewhere")
    refused(cli("export", "chat/b", "--to", str(to)), 2, "chat", "is no directory")
    assert not list((tmp_path / "elsewhere").iterdir())
    (to / "a.caibx").mkdir()
    refused(cli("export", "a", "--to", str(to)), 2, "is a directory")
    (layout.stubs / "default.castr").mkdir()
    (layout.stubs / "a").rename(layout.stubs / "default.castr" / "a")
    refused(cli("export", "default.castr/a", "--to", str(to)), 2, "chunk directory")
    (layout.stubs / layout.root.name).mkdir()
    (layout.stubs / "chat" / "b").rename(layout.stubs / layout.root.name / "b")
    beside = str(layout.root.parent)
    refused(cli("export", f"{layout.root.name}/b", "--to", beside), 2, f"lies in {layout.root}")
