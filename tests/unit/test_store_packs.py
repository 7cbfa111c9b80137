"""Packs as files: whole under every kind of short write, gone after every failure, never trusted blindly."""

import errno
import hashlib
import os
import signal
import threading
from pathlib import Path

import pytest

from kvtool.core import pack
from kvtool.errors import ChunkMissing, PackDamaged
from kvtool.store import packs
from kvtool.store.packs import PackFiles, PackWriter, list_packs, read_entries
from kvtool.store.store import Store
from tests.stores import flip, pack_paths, save
from tests.synth import random_bytes


def chunks(count: int, size: int = 50) -> list[tuple[bytes, memoryview]]:
    ids = [n.to_bytes(32, "big") for n in range(count)]
    return [(chunk_id, memoryview(hashlib.shake_128(chunk_id).digest(size))) for chunk_id in ids]


def sealed(store: Store, count: int = 3) -> Path:
    writer = PackWriter(store.layout)
    writer.append(chunks(count))
    store.catalog.add_pack(writer.id, writer.seal(sync=False), writer.entries)
    return store.layout.pack(writer.id)


def test_a_sealed_pack_describes_itself(store: Store) -> None:
    writer = PackWriter(store.layout)
    writer.append(chunks(2))
    writer.append(chunks(5)[2:])
    size = writer.seal(sync=True)
    path = store.layout.pack(writer.id)
    assert read_entries(path) == (writer.id, size, writer.entries)
    data = path.read_bytes()
    assert len(data) == size
    for (chunk_id, content), entry in zip(chunks(5), writer.entries, strict=True):
        assert entry.id == chunk_id
        assert data[entry.offset : entry.offset + entry.length] == content
    assert list(store.layout.incoming.iterdir()) == []
    assert list_packs(store.layout) == {writer.id: size}


@pytest.mark.parametrize("step", [1, 7, 4095, 4097])
def test_short_writes_lose_nothing(store: Store, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    writev = os.writev
    calls = []

    def short(fd: int, buffers: list[memoryview]) -> int:
        calls.append(len(buffers))
        rest, part = step, []
        for buffer in buffers:
            part.append(buffer[:rest])
            rest -= len(part[-1])
            if not rest:
                break
        return writev(fd, part)

    monkeypatch.setattr(os, "writev", short)
    path = sealed(store, 20)
    monkeypatch.undo()
    _, _, entries = read_entries(path)
    data = path.read_bytes()
    assert [data[e.offset : e.offset + e.length] for e in entries] == [bytes(c) for _, c in chunks(20)]
    assert len(calls) > 3 or step > 4095


def test_no_writev_gets_more_buffers_than_the_kernel_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writev = os.writev
    calls = []

    def counted(fd: int, buffers: list[memoryview]) -> int:
        calls.append(len(buffers))
        return writev(fd, buffers)

    monkeypatch.setattr(os, "writev", counted)
    path = sealed(store, 2500)
    assert calls == [1, 1024, 1024, 452, 1]
    assert len(read_entries(path)[2]) == 2500


def test_a_discarded_pack_leaves_nothing(store: Store) -> None:
    writer = PackWriter(store.layout)
    writer.append(chunks(2))
    writer.discard()
    writer.discard()
    assert list(store.layout.incoming.iterdir()) == []
    sealed_one = PackWriter(store.layout)
    sealed_one.append(chunks(2))
    sealed_one.seal(sync=False)
    sealed_one.discard()
    assert pack_paths(store) == []


def test_a_full_disk_at_the_header_leaves_no_file_and_no_descriptor(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, buffers: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="full"):
        PackWriter(store.layout)
    assert list(store.layout.incoming.iterdir()) == []
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
def test_a_failing_seal_can_be_discarded(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    writer = PackWriter(store.layout)
    writer.append(chunks(2))

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match="broken"):
        writer.seal(sync=True)
    writer.discard()
    assert list(store.layout.incoming.iterdir()) == []
    assert pack_paths(store) == []


@pytest.mark.parametrize("is_new", [True, False])
def test_with_sync_the_data_is_synced_before_the_name_and_the_folders_after(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    calls = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            what = arguments[0]
            if isinstance(what, int):
                what = os.readlink(f"/proc/self/fd/{what}")
            calls.append((name, Path(os.fspath(what)).name))  # type: ignore[arg-type]
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "fdatasync", "rename", "close"):
        noted(name)
    writer = PackWriter(store.layout)
    name = f"{writer.id.hex()}.pack"
    writer.append(chunks(1))
    if not is_new:  # a save that synced nothing may have made the folder
        store.layout.pack(writer.id).parent.mkdir()
    writer.seal(sync=True)
    folder = writer.id.hex()[:2]
    synced = [call for call in calls if call[0] != "close"]
    assert synced == [("fdatasync", name), ("rename", name), ("fsync", folder), ("fsync", "packs")]
    calls.clear()
    writer = PackWriter(store.layout)
    writer.append(chunks(1))
    writer.seal(sync=False)
    assert [call for call, _ in calls if call != "close"] == ["rename"]


def damages(size: int) -> dict[str, int]:
    """A byte in every part of a pack of 3 chunks whose change must be noticed."""
    footer = size - pack.TRAILER_SIZE - 3 * 56
    return {
        "magic": 0,
        "version": 8,
        "zero": 13,
        "pack id": 20,
        "padding": 4095,
        "chunk id": footer,
        "offset": footer + 56 + 32,
        "length": footer + 56 + 40,
        "checksum": footer + 2 * 56 + 48,
        "footer offset": size - 32,
        "count": size - 24,
        "footer checksum": size - 16,
        "end magic": size - 1,
    }


@pytest.mark.parametrize("part", damages(10000))
def test_a_changed_byte_is_damage(store: Store, part: str) -> None:
    path = sealed(store)
    flip(path, damages(path.stat().st_size)[part])
    with pytest.raises(PackDamaged):
        read_entries(path)


def test_a_pack_cut_short_or_lengthened_anywhere_is_damage(store: Store) -> None:
    path = sealed(store)
    data = path.read_bytes()
    lengths = [0, 1, 4095, 4096, 4097, 4127, 4128, 4200, len(data) - 33, len(data) - 32, len(data) - 1]
    for wrong in [*(data[:length] for length in lengths), data + b"\0", data + data]:
        path.write_bytes(wrong)
        with pytest.raises(PackDamaged):
            read_entries(path)


def test_a_pack_under_another_name_is_damage(store: Store) -> None:
    path = sealed(store)
    other = path.rename(path.with_name("0" * 32 + ".pack"))
    with pytest.raises(PackDamaged, match="holds the header of pack"):
        read_entries(other)


@pytest.mark.parametrize(
    ("offset", "length"), [(4095, 50), (4096, 0), (4096, 51), (4147, 1), (1 << 63, 1), (4096, (1 << 64) - 1)]
)
def test_a_footer_that_points_outside_the_data_is_damage(store: Store, offset: int, length: int) -> None:
    path = sealed(store, 1)
    data = path.read_bytes()
    _, _, [entry] = read_entries(path)
    wrong = entry._replace(offset=offset, length=length)
    path.write_bytes(data[: 4096 + 50] + pack.footer([wrong], 4096 + 50))
    with pytest.raises(PackDamaged, match="outside its data"):
        read_entries(path)


def test_a_footer_with_a_count_of_billions_is_damage_at_once(store: Store) -> None:
    path = sealed(store)
    data = bytearray(path.read_bytes())
    data[-24:-16] = (1 << 60).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(PackDamaged, match="does not fit"):
        read_entries(path)


def test_only_packs_in_their_places_are_listed(store: Store) -> None:
    path = sealed(store)
    (store.layout.packs / "note").touch()
    (path.parent / "note.txt").touch()
    (path.parent / ("z" * 32 + ".pack")).touch()
    (path.parent / (path.stem.upper() + ".pack")).touch()
    elsewhere = store.layout.packs / ("00" if path.parent.name != "00" else "01")
    elsewhere.mkdir()
    (elsewhere / path.name).write_bytes(path.read_bytes())
    folder = store.layout.pack(b"\xaa" * 16)
    folder.mkdir(parents=True)
    link = store.layout.pack(b"\xbb" * 16)
    link.parent.mkdir(exist_ok=True)  # the pack may have it too: ids are random
    link.symlink_to(path)
    assert list_packs(store.layout) == {bytes.fromhex(path.stem): path.stat().st_size}


def test_many_threads_share_a_bounded_number_of_open_packs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_OPEN_FILES", 4)
    contents = {}
    for _ in range(12):
        path = sealed(store, 1)
        flip(path, 4096)  # so that no two are alike
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(path.name[:32].encode())
        contents[path.name] = path.read_bytes()[4096:4128]
    rows = store.catalog.packs()
    files = PackFiles(store.layout, store.catalog)
    before = len(os.listdir("/proc/self/fd"))
    wrong: list[object] = []
    start = threading.Barrier(8)

    def read(seed: int) -> None:
        start.wait(10)
        for turn in range(300):
            row = rows[(seed * 7 + turn * 5) % len(rows)]
            try:
                with files.lease(row.key) as fd:
                    if os.pread(fd, 32, 4096) != row.id.hex().encode():
                        wrong.append(row)
            except OSError as error:
                wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert len(os.listdir("/proc/self/fd")) - before <= 4 + 8
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_leased_pack_stays_open_when_all_is_closed(store: Store) -> None:
    path = sealed(store, 1)
    key = store.catalog.packs()[0].key
    with store.packs.lease(key) as fd:
        path.unlink()
        store.packs.close()
        assert os.pread(fd, 50, 4096) == chunks(1)[0][1]
    store.packs.close()
    with pytest.raises(ChunkMissing, match="is gone"), store.packs.lease(key):
        pass


def test_a_pack_that_the_catalog_does_not_know_is_missing(store: Store) -> None:
    with pytest.raises(ChunkMissing, match="not in the catalog"), store.packs.lease(99):
        pass
    assert store.packs.data_end(99) == 0


def test_data_end_is_what_the_file_can_hold(store: Store) -> None:
    save(store, random_bytes(5000))
    [path] = pack_paths(store)
    key = store.catalog.packs()[0].key
    assert store.packs.data_end(key) == path.stat().st_size - pack.TRAILER_SIZE
    os.truncate(path, 10)
    assert store.packs.data_end(key) < 0
    path.unlink()
    assert store.packs.data_end(key) == 0


def test_a_pack_that_is_deleted_while_they_are_listed_is_left_out(store: Store) -> None:
    paths = [store.layout.pack(b"\xaa" * 15 + bytes([last])) for last in range(3)]
    paths[0].parent.mkdir()
    for path in paths:
        path.touch()
    listed = packs.scan(store.layout)
    first, _, _ = next(listed)
    for path in paths:
        path.unlink()
    assert first in paths
    assert list(listed) == []


def test_a_pipe_in_place_of_a_pack_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.pack"
    os.mkfifo(path)
    signal.alarm(20)  # it would hang
    for read in (packs.read_entries, packs.read_table):
        with pytest.raises(PackDamaged, match="not a regular file"):
            read(path)
    signal.alarm(0)
