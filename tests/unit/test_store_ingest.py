"""Saves: the same chunks however the bytes come, only new ones stored, nothing left of a failure."""

import errno
import hashlib
import io
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
import xxhash

from kvtool.core import chunker
from kvtool.core.chunker import ChunkSizes
from kvtool.errors import ChunkCorrupt, ChunkMissing
from kvtool.store.ingest import Ingest, ingest_file
from kvtool.store.packs import read_entries
from kvtool.store.store import Store
from tests.stores import SIZES, as_index, feed, flip, open_store, pack_paths, read, save
from tests.synth import random_bytes

ZEROS = bytes(20_000)


def one_pass(data: bytes, sizes: ChunkSizes = SIZES) -> list[tuple[bytes, int]]:
    found, start = [], 0
    for length in chunker.cut(data, sizes, final=True):
        found.append((hashlib.sha256(data[start : start + length]).digest(), length))
        start += length
    return found


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in pairwise([0, *sorted(cuts), len(data)])]


@pytest.mark.parametrize("data", [random_bytes(30_000), ZEROS, random_bytes(9000) + ZEROS + b"x"])
def test_any_split_gives_the_chunks_of_one_pass(store: Store, data: bytes) -> None:
    draw = random.Random(1)
    for count in (0, 1, 2, 5, 40, 400):
        ingest = Ingest(store)
        feed(ingest, split(data, [draw.randrange(len(data)) for _ in range(count)]))
        assert ingest.digest == xxhash.xxh3_128_digest(data)
        index = as_index(store, ingest.finish())
        assert list(index.chunks()) == one_pass(data)
    assert read(store, index) == data


@pytest.mark.parametrize("data", [random_bytes(12_000, 2), ZEROS[:9000], ZEROS[: 4 * SIZES.max_size]])
def test_appends_that_take_the_last_chunk_back_give_the_chunks_of_one_pass(store: Store, data: bytes) -> None:
    draw = random.Random(2)
    for _ in range(15):
        index = None
        for piece in split(data, [draw.randrange(len(data)) for _ in range(4)]):
            if index is None or not len(index):
                head, resume = None, None
            else:
                last = len(index) - 1
                head, resume = index.head(last), (index.id(last), index.length(last))
            ingest = Ingest(store, resume=resume)
            feed(ingest, [piece] if piece else [])
            index = as_index(store, ingest.finish(), head)
        assert index is not None
        assert list(index.chunks()) == one_pass(data)
        assert read(store, index) == data


def test_an_append_to_a_last_chunk_of_exactly_the_largest_size(store: Store) -> None:
    before = save(store, ZEROS[: 2 * SIZES.max_size])
    assert [length for _, length in before.chunks()] == [SIZES.max_size] * 2
    ingest = Ingest(store, resume=(before.id(1), before.length(1)))
    feed(ingest, [b"tail"])
    index = as_index(store, ingest.finish(), before.head(1))
    assert list(index.chunks()) == one_pass(ZEROS[: 2 * SIZES.max_size] + b"tail")
    assert read(store, index) == ZEROS[: 2 * SIZES.max_size] + b"tail"


def test_an_append_of_nothing_gives_the_last_chunk_again(store: Store) -> None:
    data = random_bytes(5000)
    before = save(store, data)
    last = len(before) - 1
    saved = Ingest(store, resume=(before.id(last), before.length(last))).finish()
    assert list(as_index(store, saved, before.head(last)).chunks()) == list(before.chunks())
    assert saved.new_bytes == 0
    assert len(pack_paths(store)) == 1


def test_a_chunk_that_cannot_be_taken_back_fails_the_append(store: Store) -> None:
    index = save(store, random_bytes(3000))
    with pytest.raises(ChunkMissing):
        Ingest(store, resume=(bytes(32), 100))
    with pytest.raises(ChunkMissing):
        Ingest(store, resume=(index.id(0), index.length(0) + 1))
    flip(pack_paths(store)[0], 4096)
    with pytest.raises(ChunkCorrupt, match=index.id(0).hex()):
        Ingest(store, resume=(index.id(0), index.length(0)))


@pytest.mark.parametrize("data", [b"", b"x", ZEROS, bytes(1), bytes(SIZES.max_size), random_bytes(70)])
def test_small_and_blank_files(store: Store, data: bytes) -> None:
    index = save(store, data)
    assert read(store, index) == data
    assert list(index.chunks()) == one_pass(data)
    assert len(pack_paths(store)) == (1 if data else 0)
    again = ingest_file(store, io.BytesIO(data))
    assert (again.new_chunks, again.new_bytes) == (0, 0)


def test_a_chunk_that_comes_twice_in_a_save_is_stored_once(store: Store) -> None:
    saved = ingest_file(store, io.BytesIO(ZEROS))
    assert len(saved.lengths) == 20
    assert saved.new_chunks == len({saved.ids[i : i + 32] for i in range(0, len(saved.ids), 32)}) == 2
    [path] = pack_paths(store)
    assert len(read_entries(path)[2]) == 2
    assert saved.new_bytes == SIZES.max_size + 20_000 % SIZES.max_size


def test_saving_again_stores_nothing_and_part_of_it_only_the_rest(store: Store) -> None:
    data = random_bytes(50_000)
    save(store, data)
    again = ingest_file(store, io.BytesIO(data))
    assert (again.new_chunks, again.new_bytes) == (0, 0)
    more = ingest_file(store, io.BytesIO(data + random_bytes(500, 7)))
    assert 500 <= more.new_bytes <= 500 + SIZES.max_size
    assert len(pack_paths(store)) == 2


def test_a_dry_run_counts_and_stores_nothing(store: Store) -> None:
    data = random_bytes(5000)
    saved = ingest_file(store, io.BytesIO(data), dry_run=True)
    assert saved.new_bytes == 5000
    assert pack_paths(store) == []
    assert store.catalog.packs() == []
    assert list(store.layout.incoming.iterdir()) == []


def test_a_hit_whose_pack_is_gone_is_written_anew(store: Store) -> None:
    data = random_bytes(20_000)
    index = save(store, data)
    pack_paths(store)[0].unlink()
    store.packs.close()
    saved = ingest_file(store, io.BytesIO(data))
    assert saved.new_bytes == 20_000
    assert read(store, index) == data


def test_a_hit_beyond_the_end_of_a_short_pack_is_written_anew(store: Store) -> None:
    data = random_bytes(20_000)
    index = save(store, data)
    [path] = pack_paths(store)
    os.truncate(path, 4096 + 10_000)
    saved = ingest_file(store, io.BytesIO(data))
    assert 0 < saved.new_bytes < 20_000
    assert read(store, index) == data


class FullAfter:
    """os.writev with a disk that is full after some calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.writev = os.writev

    def __call__(self, fd: int, buffers: list[memoryview]) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= 1
        return self.writev(fd, buffers)


@pytest.mark.parametrize("calls", range(5))
def test_a_full_disk_at_any_write_leaves_nothing_and_the_next_save_works(
    store: Store, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    data = random_bytes(9 << 20)  # header, three reads' chunks, footer
    monkeypatch.setattr(os, "writev", FullAfter(calls))
    with pytest.raises(OSError, match="No space"):
        ingest_file(store, io.BytesIO(data))
    monkeypatch.undo()
    assert list(store.layout.incoming.iterdir()) == []
    assert pack_paths(store) == []
    assert store.catalog.packs() == []
    assert read(store, save(store, data[:10_000])) == data[:10_000]


def test_a_catalog_that_fails_at_the_end_leaves_no_pack(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(type(store.catalog), "add_pack", full)
    with pytest.raises(OSError, match="full"):
        ingest_file(store, io.BytesIO(random_bytes(5000)))
    assert pack_paths(store) == []


def test_a_given_up_save_leaves_nothing(store: Store) -> None:
    ingest = Ingest(store)
    feed(ingest, [random_bytes(20_000)])
    assert len(list(store.layout.incoming.iterdir())) == 1
    ingest.discard()
    ingest.discard()
    assert list(store.layout.incoming.iterdir()) == []


def test_pieces_may_be_fed_before_those_before_are_settled(store: Store) -> None:
    data = random_bytes(40_000)
    ingest = Ingest(store)
    buffers = [bytearray(ingest.headroom) + data[at : at + 4000] for at in range(0, len(data), 4000)]
    for number, buffer in enumerate(buffers):
        ingest.feed(memoryview(buffer), ingest.headroom, 4000)
        if number >= 2:
            ingest.settle()
    index = as_index(store, ingest.finish())
    assert list(index.chunks()) == one_pass(data)
    assert read(store, index) == data


def test_the_chunks_of_a_save_under_way_are_known(store: Store) -> None:
    data = random_bytes(20_000)
    index = save(store, data)
    ingest = Ingest(store)
    feed(ingest, [data, random_bytes(5000, 8)])
    assert list(ingest.ids[: len(index) - 1]) == [index.id(i) for i in range(len(index) - 1)]
    assert ingest.finish().ids == b"".join(ingest.ids)


def test_two_saves_of_the_same_at_once_are_both_whole(store: Store) -> None:
    data = random_bytes(10_000)
    first, second = Ingest(store), Ingest(store)
    feed(first, [data])
    feed(second, [data])
    indexes = [as_index(store, ingest.finish()) for ingest in (first, second)]
    assert [read(store, index) for index in indexes] == [data, data]
    assert {location.pack for location in store.catalog.find([indexes[0].id(0)]).values()} == {
        store.catalog.packs()[0].key
    }


def test_the_default_sizes_cut_as_one_pass_too(tmp_path: Path) -> None:
    sizes = ChunkSizes()
    data = random_bytes(9 << 20, 3) + bytes(1 << 20)
    with open_store(tmp_path, sizes) as store:
        index = save(store, data)
        assert list(index.chunks()) == one_pass(data, sizes)
        assert read(store, index) == data


def test_what_is_sealed_early_keeps_its_place(store: Store) -> None:
    first, second = random_bytes(20_000, 1), random_bytes(20_000, 2)
    save(store, first)
    for path in pack_paths(store):
        path.unlink()
    ingest = Ingest(store)
    feed(ingest, [first])
    ingest.seal()
    feed(ingest, [second])
    index = as_index(store, ingest.finish())
    assert read(store, index) == first + second
    assert len(pack_paths(store)) == 2
