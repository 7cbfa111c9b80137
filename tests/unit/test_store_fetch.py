"""Reads are the right bytes or an error, whatever byte of a pack is wrong."""

import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from kvtool.core.index import Index
from kvtool.core.readplan import ReadPlan
from kvtool.errors import ChunkCorrupt, ChunkMissing, Damage
from kvtool.store.fetch import bring_segment, read_chunk, read_file
from kvtool.store.store import Store
from tests.stores import flip, pack_paths, read, save
from tests.synth import random_bytes

DATA = random_bytes(6000)


@pytest.fixture(autouse=True, params=["with sendfile", "without"])
def _sendfile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems do not let it read."""
    if request.param == "without":

        def refused(_out: int, _fd: int, _at: int, _count: int) -> int:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(os, "sendfile", refused)


def replace(path: Path, content: bytes) -> None:
    """Puts a new file in the place of another, as a restore from a backup does."""
    aside = path.with_name("aside")
    aside.write_bytes(content)
    aside.rename(path)


def plan(store: Store, index: Index, segment: int) -> ReadPlan:
    return ReadPlan.build(index, store.catalog.place(index), segment)


def segments(store: Store, index: Index, size: int) -> list[bytes]:
    found = []
    read_plan = plan(store, index, size)
    for number in range(len(read_plan)):
        segment = read_plan.segment(number)
        buffer = bytearray(b"\xee" * segment.length)
        bring_segment(store, read_plan, segment).copy(0, segment.length, memoryview(buffer))
        found.append(bytes(buffer))
    return found


@pytest.mark.parametrize("size", [1, 1000, 3000, 1 << 20])
def test_segments_of_any_size_join_to_the_file(store: Store, size: int) -> None:
    index = save(store, DATA)
    assert b"".join(segments(store, index, size)) == DATA


def test_a_file_of_chunks_from_several_packs(store: Store) -> None:
    save(store, DATA[:3000])
    save(store, DATA[2000:])
    index = save(store, DATA + DATA[1000:4000])
    assert len(pack_paths(store)) >= 3
    assert read(store, index) == DATA + DATA[1000:4000]


def test_every_flipped_byte_of_the_data_is_found_and_the_rest_is_right(store: Store) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    for offset in range(4096, 4096 + len(DATA), 97):
        flip(path, offset)
        with pytest.raises(ChunkCorrupt) as caught:
            read(store, index)
        start = 0
        for chunk_id, length in index.chunks():
            hit = start <= offset - 4096 < start + length
            assert hit == (chunk_id.hex() in caught.value.message)
            if hit:
                with pytest.raises(ChunkCorrupt, match=chunk_id.hex()):
                    read_chunk(store, chunk_id, length)
            else:
                assert read_chunk(store, chunk_id, length) == DATA[start : start + length]
            start += length
        flip(path, offset)
    assert read(store, index) == DATA


def test_a_flip_anywhere_else_in_the_pack_does_not_change_what_is_read(store: Store) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    for offset in [*range(0, 4096, 501), *range(4096 + len(DATA), path.stat().st_size, 13)]:
        flip(path, offset)
        assert read(store, index) == DATA


def test_a_pack_cut_short_anywhere_gives_an_error_or_the_right_bytes(store: Store) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    whole = path.read_bytes()
    for length in range(0, len(whole), 499):
        path.write_bytes(whole[:length])
        if length >= 4096 + len(DATA) + 32:
            assert read(store, index) == DATA
        else:
            with pytest.raises(Damage):
                read(store, index)
            with pytest.raises(Damage):
                segments(store, index, 1000)


def test_a_pack_with_another_content_is_found(store: Store) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    path.write_bytes(random_bytes(path.stat().st_size, 5))
    with pytest.raises(ChunkCorrupt):
        read(store, index)


def test_a_missing_pack_is_found_before_the_first_byte_and_the_chunk_is_named(store: Store) -> None:
    first = save(store, DATA[:3000])
    whole = save(store, DATA)
    paths = {row.id: row.key for row in store.catalog.packs()}
    gone = max(paths, key=lambda pack_id: paths[pack_id])
    lost = [
        chunk_id
        for chunk_id, where in store.catalog.find(i for i, _ in whole.chunks()).items()
        if where.pack == paths[gone]
    ]
    store.layout.pack(gone).unlink()
    store.packs.close()
    with pytest.raises(ChunkMissing) as caught:
        next(read_file(store, whole))
    assert any(chunk_id.hex() in caught.value.message for chunk_id in lost)
    assert read(store, first) == DATA[:3000]


def test_a_chunk_that_no_pack_holds_is_named(store: Store) -> None:
    index = save(store, DATA)
    store.catalog.drop_packs([1])
    with pytest.raises(ChunkMissing, match=index.id(0).hex()):
        next(read_file(store, index))
    with pytest.raises(ChunkMissing, match=index.id(0).hex()):
        read_chunk(store, index.id(0), index.length(0))


def test_reads_that_come_back_short_are_gone_on_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    index = save(store, DATA)
    preadv, sendfile = os.preadv, os.sendfile
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: preadv(fd, [buffers[0][:100]], at))
    monkeypatch.setattr(os, "sendfile", lambda out, fd, at, count: sendfile(out, fd, at, min(count, 100)))
    assert read(store, index) == DATA


def test_any_chunks_of_a_segment_are_copied(store: Store) -> None:
    save(store, DATA[:3000])
    index = save(store, DATA)
    whole = plan(store, index, 1 << 20)
    brought = bring_segment(store, whole, whole.segment(0))
    borders = [0, *index.ends]
    for first, start in enumerate(borders):
        for end in borders[first + 1 :]:
            found = bytearray(end - start)
            brought.copy(start, end, memoryview(found))
            assert found == DATA[start:end]


def test_what_decays_after_it_was_brought_is_never_handed_out(store: Store) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    whole = plan(store, index, 1 << 20)
    brought = bring_segment(store, whole, whole.segment(0))
    borders = [0, *index.ends]
    for offset in range(0, len(DATA), 97):
        flip(path, 4096 + offset)
        for start, end in pairwise(borders):
            found = bytearray(end - start)
            if start <= offset < end:
                with pytest.raises(ChunkCorrupt, match=str(path)):
                    brought.copy(start, end, memoryview(found))
            else:
                brought.copy(start, end, memoryview(found))
                assert found == DATA[start:end]
        flip(path, 4096 + offset)


def test_a_pack_that_goes_after_it_was_brought_is_an_error(store: Store) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    whole = plan(store, index, 1 << 20)
    brought, found = bring_segment(store, whole, whole.segment(0)), bytearray(len(DATA))
    os.truncate(path, 5000)
    with pytest.raises(ChunkMissing):
        brought.copy(0, len(DATA), memoryview(found))
    path.unlink()
    store.packs.close()
    with pytest.raises(ChunkMissing):
        brought.copy(0, len(DATA), memoryview(found))


@pytest.mark.parametrize(
    "damage", [lambda path: os.truncate(path, 4100), lambda path: flip(path, 4096)], ids=["cut", "flipped"]
)
def test_a_good_pack_in_the_place_of_a_damaged_one_is_read(
    store: Store, damage: Callable[[Path], None]
) -> None:
    index = save(store, DATA)
    [path] = pack_paths(store)
    good = path.read_bytes()
    for action in (lambda: read(store, index), lambda: read_chunk(store, index.id(0), index.length(0))):
        action()
        damage(path)
        with pytest.raises(Damage):
            action()
        replace(path, good)
        action()


def test_a_damaged_pack_is_opened_anew_beside_a_reader_and_closed_after_it(store: Store) -> None:
    save(store, DATA)
    before = len(os.listdir("/proc/self/fd"))
    with store.packs.lease(1) as first:
        store.packs.reopen(1)
        with store.packs.lease(1) as second:
            assert first != second
            assert os.pread(first, 100, 0) == os.pread(second, 100, 0)
    store.packs.reopen(1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_empty_file_has_no_pieces(store: Store, tmp_path: Path) -> None:
    assert list(read_file(store, save(store, b""))) == []
