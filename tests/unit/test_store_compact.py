"""Compaction: what is needed of half-dead packs moves, in order and verified, and nothing is lost."""

import hashlib
import os
import random
from array import array

import pytest

from kvtool.core import pack
from kvtool.core.index import Index
from kvtool.store import collect, collector, compact, fetch, packs, stubs
from kvtool.store.collect import Collected, PackUse
from kvtool.store.store import Store
from tests.stores import flip, pack_paths, read, save, stub
from tests.synth import random_bytes


def parts(index: Index, numbers: range, data: bytes) -> bytes:
    """The bytes of those chunks of `data`."""
    return b"".join(data[index.ends[i] - index.length(i) : index.ends[i]] for i in numbers)


def survey(store: Store) -> collect.Survey:
    return collect.survey(store, collect.mark(store), collect.newest_pack(store))


@pytest.fixture
def half_dead(store: Store) -> tuple[bytes, Index]:
    """A store with one pack, of whose chunks the first half is needed by `a`; the bytes of that."""
    data = random_bytes(40_000)
    whole = save(store, data)
    kept = data[: whole.ends[len(whole) // 2]]
    return kept, save(store, kept, "a")


def test_of_a_half_dead_pack_the_rest_moves_and_the_pack_goes(
    store: Store, half_dead: tuple[bytes, Index]
) -> None:
    data, index = half_dead
    [old] = pack_paths(store)
    before = old.stat().st_size
    would = collector.run(store, dry_run=True)
    assert pack_paths(store) == [old]
    freed = collector.run(store)
    [new] = pack_paths(store)
    assert new != old
    assert freed == Collected(packs=1, rewritten=1, bytes=before - new.stat().st_size) == would
    assert new.stat().st_size == pack.size_of(len(index), len(data))
    assert read(store, index) == data
    assert collector.run(store) == Collected()


def test_a_pack_of_which_a_quarter_is_dead_stays(store: Store) -> None:
    data = random_bytes(40_000)
    whole = save(store, data)
    save(store, data[: whole.ends[len(whole) * 4 // 5]], "a")
    assert collector.run(store) == Collected()


def test_what_is_worth_it() -> None:
    def use(key: int, *, live: int, dead: int) -> PackUse:
        return PackUse(key, pack.size_of(live + dead, (live + dead) << 16), live, live << 16)

    full = [use(key, live=100, dead=0) for key in range(3)]
    heavy, dead, light = use(10, live=60, dead=40), use(11, live=0, dead=9), use(12, live=80, dead=20)
    assert [each.dead for each in (full[0], dead)] == [0, 9 * ((1 << 16) + 56)]
    assert compact.choose([*full, heavy, dead, light]) == [heavy]
    small = [use(20 + key, live=2, dead=0) for key in range(compact.ENOUGH)]
    assert compact.choose([*full, *small[1:]]) == []
    assert compact.choose([heavy, *full, *small]) == [heavy, *small]
    large = [use(key, live=3000, dead=3000) for key in range(5)]
    assert [len(group) for group in compact.rounds(large)] == [1] * 5
    assert [len(group) for group in compact.rounds([use(k, live=900, dead=900) for k in range(9)])] == [
        4,
        4,
        1,
    ]


def test_chunks_follow_the_newest_snapshot(store: Store) -> None:
    data = random_bytes(60_000)
    whole = save(store, data)
    count = len(whole)
    order = [*range(0, count, 4), *range(1, count, 4)]
    backwards = order[::-1]
    for name, numbers, age in (("old", order, 1), ("new", backwards, 2)):
        lengths = array("Q", [whole.length(i) for i in numbers])
        index = Index(store.sizes).extended(lengths, b"".join(whole.id(i) for i in numbers))
        stubs.replace(stubs.prepare(store.layout, index, sync=False), stub(store, name))
        os.utime(stub(store, name), ns=(0, age))
    collector.run(store)
    [new] = pack_paths(store)
    assert [entry.id for entry in packs.read_entries(new)[2]] == [whole.id(i) for i in backwards]


def test_many_small_packs_become_one(store: Store) -> None:
    contents = {f"n{i}": random_bytes(1000 + i, i) for i in range(compact.ENOUGH)}
    indexes = {name: save(store, data, name) for name, data in contents.items()}
    freed = collector.run(store)
    assert (freed.packs, freed.rewritten, len(pack_paths(store))) == (compact.ENOUGH, 1, 1)
    assert freed.bytes > 4096 * (compact.ENOUGH - 2)
    assert {name: read(store, index) for name, index in indexes.items()} == contents
    assert collector.run(store) == Collected()


def test_a_reader_under_way_finds_what_has_moved(store: Store, half_dead: tuple[bytes, Index]) -> None:
    data, index = half_dead
    plan = fetch.plan_file(store, index)
    collector.run(store)
    segment = plan.segment(0)
    brought, found = fetch.bring_segment(store, plan, segment), bytearray(segment.length)
    brought.copy(0, segment.length, memoryview(found))
    assert found == data


def test_a_damaged_chunk_keeps_its_pack(store: Store, half_dead: tuple[bytes, Index]) -> None:
    data, index = half_dead
    [old] = pack_paths(store)
    location = store.catalog.find([index.id(3)])[index.id(3)]
    flip(old, location.offset)
    freed = collector.run(store)
    assert (freed.packs, freed.rewritten) == (0, 1)
    assert old in pack_paths(store)
    assert store.catalog.find([index.id(3)]) == {}
    whole = parts(index, range(3), data)
    assert read(store, index.head(3)) == whole
    save(store, data, "a")  # heals it
    collector.run(store)
    assert old not in pack_paths(store)
    assert read(store, index) == data


@pytest.mark.parametrize("step", ["written", "adopted"])
def test_what_dies_half_way_is_cleared_up_by_the_next(
    store: Store, half_dead: tuple[bytes, Index], step: str
) -> None:
    data, index = half_dead
    [rewritten] = compact.rewrite(store, survey(store))
    if step == "adopted":
        compact.adopt(store, rewritten.pack_id)
    else:
        path = store.layout.pack(rewritten.pack_id)
        store.catalog.add_pack(rewritten.pack_id, path.stat().st_size, packs.read_entries(path)[2])
    assert read(store, index) == data
    collector.run(store)
    assert len(pack_paths(store)) == 1
    assert read(store, index) == data


def test_a_full_disk_stops_it_before_it_writes(
    store: Store, half_dead: tuple[bytes, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs
    full = os.statvfs_result((4096, 4096, 100, 10, 10, *real("/")[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert collector.run(store) == Collected()


@pytest.mark.parametrize("seed", range(5))
def test_any_history_ends_with_little_dead(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    contents: dict[str, bytes] = {}
    for _ in range(60):
        name = f"s{chance.randrange(8)}"
        base = contents.get(f"s{chance.randrange(8)}", b"")
        cut = chance.randrange(len(base) + 1)
        contents[name] = base[:cut] + chance.randbytes(chance.randrange(6000)) + base[cut:][:20_000]
        save(store, contents[name], name)
        if chance.random() < 0.3:
            gone = chance.choice(sorted(contents))
            del contents[gone]
            os.unlink(stub(store, gone))
        if chance.random() < 0.2:
            collector.run(store)
    collector.run(store)
    live = {}
    for name, data in contents.items():
        index = stubs.read_index(stub(store, name))
        assert hashlib.sha256(read(store, index)).digest() == hashlib.sha256(data).digest()
        live.update(dict(index.chunks()))
    held = sum(path.stat().st_size - pack.size_of(0, 0) for path in pack_paths(store))
    assert 3 * held <= 4 * sum(length + 56 for length in live.values())
