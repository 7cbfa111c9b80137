"""kvtool import: what casync and an export wrote, resumption, damage, and what is not taken in."""

import errno
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
from kvtool.store import exchange, packs
from kvtool.store.castore import ChunkDirectory
from kvtool.store.exchange import Assembled, Export
from kvtool.store.ingest import ingest_file
from kvtool.store.layout import Layout
from tests.cli import Cli
from tests.exchange import DATA, FILES, SIZES, casync, refused
from tests.stores import (
    as_index,
    flip,
    layout_in,
    open_store,
    pack_paths,
    read,
    save,
)


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
    refused(other("import", index, "--store", index), 2, f"no chunk directory {index}", "--store")
    refused(other("import", index, "--store", ""), 2, "--store", "empty")
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


@pytest.mark.parametrize("command", ["import", "chunk"])
def test_what_would_lose_or_misplace_a_snapshot_is_refused(
    command: str, to: Path, other: Cli, tmp_path: Path
) -> None:
    index, again = str(to / "a.caibx"), str(tmp_path / "again" / "a.caibx")
    shutil.copytree(to, tmp_path / "again")
    stored = other.json(command, index)["snapshots"][0]["name"]
    # The second would replace the first.
    refused(other(command, index, again), 2, f"would be stored as '{stored}'", "--name")
    refused(other(command, index, again, "--dry-run"), 2, f"would be stored as '{stored}'")
    stubs = layout_in(tmp_path / "other").stubs
    refused(other(command, index, "--name", f"{stored}/b"), 2, f"{stubs / stored} is no directory", "--name")
    (tmp_path / "elsewhere").mkdir()
    (stubs / "link").symlink_to(tmp_path / "elsewhere")
    refused(other(command, index, "--name", "link/b"), 2, f"{stubs}/link is no directory")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_full_disk_of_the_store_is_named(to: Path, other: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _buffers: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packs.os, "writev", full)
    refused(other("import", str(to / "a.caibx")), 1, "/other/store/incoming: No space")


def test_an_index_that_memory_has_no_room_for(to: Path, other: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def enormous(_data: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(exchange.caibx, "decode", enormous)
    refused(other("import", str(to / "a.caibx")), 1, "Cannot allocate memory")
