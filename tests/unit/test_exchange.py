"""kvtool export and import: what casync reads and writes, resumption, damage, and what is not taken in."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtool.core import index as chunk_index
from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.store import castore, exchange, stubs
from kvtool.store.castore import ChunkDirectory
from kvtool.store.exchange import Assembled, Export
from kvtool.store.ingest import ingest_file
from kvtool.store.layout import Layout
from tests.cli import Cli, Done
from tests.stores import (
    as_index,
    flags_of,
    flip,
    layout_in,
    listing,
    open_store,
    pack_paths,
    read,
    save,
)
from tests.synth import random_bytes

SIZES = ChunkSizes(1024, 4096, 16384)  # casync takes none below
DATA = random_bytes(400_000)
FILES = {"a": DATA[:200_000], "chat/b": DATA[:120_000] + DATA[300_000:], "empty": b"", "odd \udcff": DATA[:1]}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    with open_store(tmp_path, SIZES) as store:
        (tmp_path / "stubs" / "chat").mkdir()
        for name, data in FILES.items():
            save(store, data, name)
    return layout_in(tmp_path)


@pytest.fixture
def cli(
    layout: Layout,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    return Cli(tmp_path, capsysbinary, monkeypatch, *flags_of(layout))


@pytest.fixture
def other(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command line for a store of its own, with other chunk sizes, which has nothing yet."""
    flags = flags_of(layout_in(tmp_path / "other"))
    return Cli(tmp_path, capsysbinary, monkeypatch, *flags, "--chunk.max_size", "128KiB")


@pytest.fixture
def to(cli: Cli, tmp_path: Path) -> Path:
    """The directory of an export of all snapshots."""
    cli.json("export", *FILES, "--to", str(tmp_path / "to"))
    return tmp_path / "to"


def casync(*arguments: str | Path, check: bool = True) -> int:
    if not shutil.which("casync"):
        pytest.skip("casync is not installed")
    command = ["casync", *map(str, arguments)]
    return subprocess.run(command, check=check, timeout=60, capture_output=True).returncode


def chunk_files(folder: Path) -> list[Path]:
    return sorted((folder / "default.castr").glob("*/*"))


def refused(done: Done, code: int, *words: str) -> None:
    """The command failed with this code, in one line that has these words and a next step."""
    assert (done.returncode, done.stdout) == (code, b""), done
    assert done.stderr.count("\n") == 1
    for word in (*words, "; "):
        assert word in done.stderr


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


@pytest.mark.parametrize("digest", ["sha256", "sha512-256"])
def test_what_casync_made_is_taken_in(digest: str, other: Cli, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    index, store = tmp_path / "made.caibx", tmp_path / "made.castr"
    casync("make", f"--digest={digest}", "--compression=gzip", f"--store={store}", index, tmp_path / "data")
    refused(other("import", str(index), "--store", str(store)), 2, "compressed", "casync extract")
    for packed in store.glob("*/*.cacnk"):  # as a store without compression has them
        plain = subprocess.run(["gzip", "-dc"], input=packed.read_bytes(), capture_output=True, check=True)
        packed.with_suffix("").write_bytes(plain.stdout)
        packed.unlink()
    [row] = other.json("import", str(index), "--store", str(store))["snapshots"]
    assert (row["name"], row["size"]) == ("made", len(DATA))
    assert other("cat", "made").stdout == DATA


def test_a_directory_trees_index_is_refused(other: Cli, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    casync("make", f"--store={tmp_path}/x.castr", tmp_path / "x.caidx", tmp_path / "tree")
    refused(other("import", str(tmp_path / "x.caidx")), 2, "x.caidx", "directory tree")


def test_import_takes_an_export_in(to: Path, other: Cli, cli: Cli, tmp_path: Path) -> None:
    store = str(to / "default.castr")
    rows = other.json("import", str(to / "a.caibx"), str(to / "empty.caibx"))["snapshots"]
    assert [(row["name"], row["size"]) for row in rows] == [("a", 200_000), ("empty", 0)]
    other.json("import", str(to / "chat/b.caibx"), "--store", store, "--name", "new/b")
    assert [other("cat", name).stdout for name in ("a", "empty", "new/b")] == [
        FILES["a"],
        b"",
        FILES["chat/b"],
    ]
    assert other("fsck").stdout.endswith(b": clean\n")
    # Where the chunk sizes are the same nothing is new, and the snapshot there is replaced as by a save.
    before = pack_paths(layout_in(tmp_path))
    text = cli("import", str(to / "a.caibx"), "--name", "empty").stdout.decode()
    assert text.startswith("empty: 195.3 KiB in ")
    assert text.endswith(" 0 B in 0 chunks new\n")
    assert pack_paths(layout_in(tmp_path)) == before
    assert (tmp_path / "stubs" / "empty").read_bytes() == (to / "a.caibx").read_bytes()


@settings(max_examples=15, deadline=None, database=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(0, 6), st.booleans())
def test_round_trip(pieces: list[bytes], repeats: int, same_sizes: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = b"".join(pieces) * repeats
        with open_store(root / "one") as store:
            save(store, data, "x")
            done = Export(store, str(root / "to")).run("x")
            assert done.size == len(data)
        sizes = ChunkSizes(64, 256, 1024) if same_sizes else ChunkSizes(100, 512, 4096)
        with open_store(root / "two", sizes) as store:
            source = Assembled(str(root / "to" / "x.caibx"), None)
            index = as_index(store, ingest_file(store, source, seal_every=1500))
            assert read(store, index) == data
            assert not same_sizes or index.ids == source.index.ids


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
    assert not to.exists()
    to.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (to / "chat").symlink_to(tmp_path / "elsewhere")
    refused(cli("export", "chat/b", "--to", str(to)), 2, "chat", "is no directory")
    assert not list((tmp_path / "elsewhere").iterdir())
    (to / "a.caibx").mkdir()
    refused(cli("export", "a", "--to", str(to)), 2, "is a directory")
    (layout.stubs / "default.castr").mkdir()
    (layout.stubs / "a").rename(layout.stubs / "default.castr" / "a")
    refused(cli("export", "default.castr/a", "--to", str(to)), 2, "chunk directory")


def lose(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_large(path: Path) -> None:
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lose, "is missing"),
        (shorten, "is damaged"),
        (lambda path: flip(path, 5), "is damaged"),
        (to_pipe, "is damaged"),
        (to_link, "is damaged"),
        (to_folder, "is damaged"),
        (to_large, "is damaged"),
    ],
)
def test_a_bad_chunk_ends_an_import(
    harm: Callable[[Path], None],
    word: str,
    to: Path,
    other: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "SEAL_EVERY", 1)
    monkeypatch.setattr("kvtool.store.ingest._READ_SIZE", 30_000)
    other.json("import", str(to / "empty.caibx"))
    index = chunk_index.decode((to / "a.caibx").read_bytes())
    number = len(index) - 2
    bad = Path(os.fsdecode(ChunkDirectory(os.fsencode(to / "default.castr")).file(index.id(number))))
    good = bad.read_bytes()
    harm(bad)
    there = layout_in(tmp_path / "other")
    at = f"a.caibx at {index.ends[number - 1]}: chunk {index.id(number).hex()}"
    refused(other("import", str(to / "a.caibx"), "--dry-run"), 3, at, word)
    assert not pack_paths(there)
    refused(other("import", str(to / "a.caibx")), 3, at, word)
    assert not (there.stubs / "a").exists()
    assert not list(there.incoming.iterdir())
    # What was sealed is found by the next attempt, and freed by a collection.
    kept = sum(path.stat().st_size for path in pack_paths(there))
    assert kept > 100_000
    if bad.is_dir():
        bad.rmdir()
    bad.unlink(missing_ok=True)
    bad.write_bytes(good)
    [row] = other.json("import", str(to / "a.caibx"))["snapshots"]
    assert 0 < row["new_bytes"] < 100_000
    assert other("cat", "a").stdout == FILES["a"]
    assert other("fsck").stdout.endswith(b": clean\n")


def test_a_collection_frees_what_a_failed_import_left(
    to: Path, other: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SEAL_EVERY", 1)
    monkeypatch.setattr("kvtool.store.ingest._READ_SIZE", 30_000)
    other.json("import", str(to / "empty.caibx"))
    index = chunk_index.decode((to / "a.caibx").read_bytes())
    Path(
        os.fsdecode(ChunkDirectory(os.fsencode(to / "default.castr")).file(index.id(len(index) - 1)))
    ).unlink()
    assert other("import", str(to / "a.caibx")).returncode == 3
    assert pack_paths(layout_in(tmp_path / "other"))
    other.json("gc")
    assert not pack_paths(layout_in(tmp_path / "other"))


def own(**changes: int) -> bytes:
    """An index of two chunks as kvtool writes it, with some u64 words changed, by their numbers."""
    index = Index(SIZES).extended(stubs_array(2000, 3000), bytes(64))
    words = bytearray(chunk_index.encode(index))
    for number, value in changes.items():
        struct.pack_into("<Q", words, 8 * int(number[1:]), value)
    return bytes(words)


def stubs_array(*lengths: int) -> "chunk_index.array[int]":
    return chunk_index.array("Q", lengths)


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        (b"", 3, "0 bytes"),
        (b"hello\n" * 100, 3, "header"),
        (own()[:-1], 3, "bytes are no chunk index"),
        (own() + b"x", 3, "bytes are no chunk index"),
        (own(w1=7), 3, "header"),
        (own(w2=1 << 63 | 1), 2, "directory tree"),
        (own(w5=1 << 40, w8=1 << 39, w13=1 << 40), 3, "are more than"),
        (own(w8=1 << 62), 3, "chunk"),
        (own(w8=0), 3, "chunk 0"),
        (own(w22=0), 3, "tail"),
    ],
    ids=["empty", "text", "short", "long", "magic", "archive", "huge", "length", "zero", "tail"],
)
def test_an_odd_index_is_refused(content: bytes, code: int, word: str, other: Cli, tmp_path: Path) -> None:
    odd = tmp_path / "odd.caibx"
    odd.write_bytes(content)
    refused(other("import", str(odd)), code, str(odd), word)
    assert not (tmp_path / "other").exists()


def test_a_huge_file_that_is_no_index_is_not_read_whole(other: Cli, tmp_path: Path) -> None:
    (tmp_path / "huge.caibx").write_bytes(own())
    os.truncate(tmp_path / "huge.caibx", 104 + 40 * (1 << 33))
    refused(other("import", str(tmp_path / "huge.caibx")), 3, "tail")


def test_what_import_does_not_take(to: Path, other: Cli, tmp_path: Path) -> None:
    index = str(to / "a.caibx")
    os.mkfifo(tmp_path / "pipe")
    refused(other("import", str(tmp_path / "pipe")), 2, "regular file")
    refused(other("import", str(to)), 2, "regular file")
    refused(other("import", index, "--store", str(tmp_path / "absent")), 2, "absent", "--store")
    refused(other("import", index, index, "--name", "x"), 2, "--name")
    refused(other("import", index, "--name", "../x"), 2, "'../x'")
    assert "No such file" in other("import", str(tmp_path / "absent.caibx")).stderr
    assert not (tmp_path / "other" / "stubs" / "a").exists()


def test_a_stub_is_taken_in_like_an_index(to: Path, layout: Layout, other: Cli) -> None:
    other.json("import", str(layout.stubs / "a"), "--store", str(to / "default.castr"))
    assert other("cat", "a").stdout == FILES["a"]


def test_the_bytes_come_in_buffers_of_any_size(to: Path) -> None:
    source = Assembled(str(to / "a.caibx"), None)
    got = bytearray()
    buffer = memoryview(bytearray(777))
    while count := source.readinto(buffer):
        got += buffer[:count]
    assert bytes(got) == FILES["a"]
