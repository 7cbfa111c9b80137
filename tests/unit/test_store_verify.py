"""Verification of small stores: what is found, where, who needs it, and what is only in flux."""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvtool.core import pack
from kvtool.core.pack import HEADER_SIZE
from kvtool.store import badlist, collector, packs, stubs, targets
from kvtool.store.badlist import Copy
from kvtool.store.hasher import Fault
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from kvtool.store.verify import BadChunk, Place, Verification, Verified
from tests.stores import flip, listing, open_store, pack_paths, read, save, stub
from tests.synth import random_bytes

BASE = random_bytes(20_000, 1)
FILES = {"a": BASE, "b": BASE[:15_000] + random_bytes(8000, 2), "c": random_bytes(6000, 3)}


@pytest.fixture
def filled(store: Store) -> Store:
    """Snapshots a and b, which share chunks, c, which shares none, and an empty one."""
    for name, data in FILES.items():
        save(store, data, name)
    save(store, b"", "empty")
    return store


def verify(store: Store, *names: str, **options: int) -> Verified:
    reader = Store.open(store.layout, writable=False)
    try:
        return Verification(reader, [stub(store, name) for name in names] or None).run(**options)
    finally:
        reader.close()


def chunks(store: Store, name: str) -> list[tuple[bytes, int, int]]:
    """(id, offset in the file, bytes) of the chunks of a snapshot."""
    found, start = [], 0
    for chunk_id, length in stubs.read_index(stub(store, name)).chunks():
        found.append((chunk_id, start, length))
        start += length
    return found


def damage(store: Store, name: str, number: int) -> tuple[str, Path, int, int]:
    """Flips a bit in a chunk of a snapshot. Returns its id, pack, offset there and bytes."""
    chunk_id, _, length = chunks(store, name)[number]
    place = store.catalog.find([chunk_id])[chunk_id]
    flip(store.packs.path(place.pack), place.offset + length - 1)
    return chunk_id.hex(), store.packs.path(place.pack), place.offset, length


def pack_of(store: Store, name: str) -> Path:
    """The pack of a snapshot's last chunk."""
    chunk_id = chunks(store, name)[-1][0]
    return store.packs.path(store.catalog.find([chunk_id])[chunk_id].pack)


@pytest.mark.parametrize("processes", [0, 2])
def test_a_sound_store(filled: Store, processes: int) -> None:
    counted: list[int] = []
    work = Verification(filled)
    found = work.run(counted.append, processes=processes)
    everything = {chunk for name in FILES for chunk in ((i, n) for i, _, n in chunks(filled, name))}
    assert (found.chunks, found.bytes) == (len(everything), sum(length for _, length in everything))
    assert sum(counted) == found.bytes <= work.total < 2 * found.bytes + 3 * HEADER_SIZE
    assert (found.bad, found.damaged, work.copies) == ([], [], [])


@pytest.mark.parametrize("names", [["a"], ["b"], ["a", "b"], ["empty"], ["a", "b", "c", "empty"]])
def test_named_snapshots_need_each_chunk_once(filled: Store, names: list[str]) -> None:
    needed = {(i, n) for name in names for i, _, n in chunks(filled, name)}
    work = Verification(filled, [stub(filled, name) for name in names])
    counted = [0]
    found = work.run(counted.append)
    assert (found.chunks, found.bytes) == (len(needed), sum(length for _, length in needed))
    assert (sum(counted), found.bad) == (work.total, [])


def test_an_empty_store(store: Store) -> None:
    found = verify(store)
    assert (found.chunks, found.bytes, found.bad, found.damaged) == (0, 0, [], [])


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b", "c")])
def test_a_corrupt_chunk_names_all_that_need_it(filled: Store, names: tuple[str, ...]) -> None:
    chunk, path, offset, length = damage(filled, "a", 5)
    [(_, at, _)] = [c for c in chunks(filled, "b") if c[0].hex() == chunk]
    seen = listing(filled.layout.packs, filled.layout.stubs)
    [bad] = verify(filled, *names).bad
    assert listing(filled.layout.packs, filled.layout.stubs) == seen
    assert (bad.kind, bad.chunk, bad.length, bad.pack, bad.offset) == (
        "corrupt",
        chunk,
        length,
        str(path),
        offset,
    )
    assert bad.places == [Place("a", chunks(filled, "a")[5][1]), Place("b", at)]
    assert verify(filled, "c").bad == []


def test_a_chunk_that_a_snapshot_needs_twice(store: Store) -> None:
    index = save(store, bytes(10_000), "zeros")
    assert len({index.id(i) for i in range(len(index))}) < len(index)
    damage(store, "zeros", 0)
    [bad] = verify(store).bad
    assert [place.offset for place in bad.places] == [
        c[1] for c in chunks(store, "zeros") if c[2] == bad.length
    ]


def test_an_orphan_is_verified_too(filled: Store) -> None:
    chunk, *_ = damage(filled, "c", 3)
    os.unlink(stub(filled, "c"))
    [bad] = verify(filled).bad
    assert (bad.kind, bad.chunk, bad.places) == ("corrupt", chunk, [])


@pytest.mark.parametrize("region", ["header", "zeros", "data", "footer", "trailer"])
def test_a_byte_in_each_region_of_a_pack(filled: Store, region: str) -> None:
    path = pack_of(filled, "c")
    size = path.stat().st_size
    _, _, entries = packs.read_entries(path)
    footer = size - pack.TRAILER_SIZE - len(entries) * pack.ENTRY_SIZE
    at = {"header": 3, "zeros": 2000, "data": entries[2].offset, "footer": footer + 5, "trailer": size - 3}
    flip(path, at[region])
    found = verify(filled)
    if region == "data":
        assert ([bad.chunk for bad in found.bad], found.damaged) == ([entries[2].id.hex()], [])
    else:
        # Its chunks are still found by the catalog, and are right.
        [damaged] = found.damaged
        assert (damaged.kind, damaged.path, found.bad) == ("pack", str(path), [])
        assert found.chunks == verify(filled, *FILES).chunks
        flip(path, entries[1].offset)
        assert [bad.chunk for bad in verify(filled).bad] == [entries[1].id.hex()]


def test_a_pack_that_is_gone(filled: Store) -> None:
    path = pack_of(filled, "c")
    path.unlink()
    for names in ((), ("c",)):
        work = Verification(filled, [stub(filled, name) for name in names] or None)
        found = work.run()
        assert work.copies == []  # there is none to mark
        assert {(bad.kind, bad.pack, bad.reason) for bad in found.bad} == {
            ("missing", str(path), "the pack is gone")
        }
        assert sorted((p.snapshot, p.offset) for bad in found.bad for p in bad.places) == [
            ("c", start) for _, start, _ in chunks(filled, "c")
        ]
    os.unlink(stub(filled, "c"))
    assert verify(filled).bad == []  # nobody needs it


def test_a_pack_that_is_cut_short(filled: Store) -> None:
    path = pack_of(filled, "c")
    _, _, entries = packs.read_entries(path)
    os.truncate(path, entries[4].offset + 1)
    found = verify(filled)
    assert [damaged.path for damaged in found.damaged] == [str(path)]
    assert {bad.chunk for bad in found.bad} == {entry.id.hex() for entry in entries[4:]}
    assert {(bad.kind, bad.reason) for bad in found.bad} == {("missing", "the pack is cut short")}


def test_a_directory_in_the_place_of_a_pack(filled: Store) -> None:
    path = pack_of(filled, "c")
    path.unlink()
    path.mkdir()
    found = verify(filled)
    assert [(damaged.kind, damaged.path) for damaged in found.damaged] == [("pack", str(path))]
    assert {bad.kind for bad in found.bad} == {"unreadable"}
    assert len(found.bad) == len(chunks(filled, "c"))


def test_files_that_are_no_stubs_and_no_packs(filled: Store) -> None:
    (filled.layout.stubs / "foreign").write_text("x")
    (filled.layout.stubs / "link").symlink_to("a")
    (filled.layout.packs / "ab").mkdir(exist_ok=True)
    (filled.layout.packs / "ab" / "notes.txt").write_text("x")
    (filled.layout.packs / "ab" / f"{'ab' * 16}.pack").write_text("x")
    found = verify(filled)
    assert [(damaged.kind, os.path.basename(damaged.path)) for damaged in found.damaged] == [
        ("pack", f"{'ab' * 16}.pack"),
        ("stub", "foreign"),
        ("stub", "link"),
    ]
    assert found.bad == []


def test_a_stub_that_was_never_committed_needs_nothing(filled: Store) -> None:
    stubs.create(filled.layout, stub(filled, "new"), 0o600, None, None)
    assert verify(filled).damaged == verify(filled, "new").damaged == []


def test_what_no_pack_has(filled: Store) -> None:
    name = "odd\n\udcff"
    chunk_id, length = hashlib.sha256(b"lost").digest(), 100
    saved = stubs.read_index(stub(filled, "c"))
    index = saved.extended(array("Q", [length]), chunk_id)
    stubs.replace(stubs.prepare(filled.layout, index, sync=False), stub(filled, name))
    for names in ((), (name,)):
        assert verify(filled, *names).bad == [
            BadChunk("missing", chunk_id.hex(), 100, None, None, "no pack has it", [Place(name, saved.size)])
        ]


def test_a_chunk_of_another_length_than_the_stub_says(filled: Store) -> None:
    saved = stubs.read_index(stub(filled, "c"))
    saved.ends[-1] -= 1
    stubs.replace(stubs.prepare(filled.layout, saved, sync=False), stub(filled, "c"))
    [bad] = verify(filled).bad
    assert (bad.kind, bad.chunk, bad.places[0].snapshot) == ("missing", saved.id(len(saved) - 1).hex(), "c")
    assert verify(filled, "c").bad == [bad]


def test_a_pack_that_the_catalog_does_not_know_is_verified(filled: Store) -> None:
    path = pack_of(filled, "c")
    chunk, *_ = damage(filled, "c", 0)
    filled.catalog.drop_packs([row.key for row in filled.catalog.packs() if row.id.hex() == path.stem])
    bad = {one.kind: one for one in verify(filled).bad if one.chunk == chunk}
    assert bad["missing"].places == [Place("c", 0)]
    assert len(verify(filled).bad) == len(chunks(filled, "c")) + 1
    assert (bad["corrupt"].pack, bad["corrupt"].places) == (str(path), [])


# -- marking, and healing


def test_marked_copies_are_as_if_they_were_not_there(filled: Store) -> None:
    damage(filled, "a", 5)
    damage(filled, "c", 2)
    os.unlink(stub(filled, "c"))
    work = Verification(filled)
    assert len(work.run().bad) == len(work.copies) == 2
    assert badlist.condemn(filled, work.copies) == 2
    [bad] = verify(filled).bad
    assert (bad.kind, bad.pack, {place.snapshot for place in bad.places}) == ("missing", None, {"a", "b"})
    save(filled, FILES["a"], "again")
    assert verify(filled).bad == []
    assert all(read(filled, stubs.read_index(stub(filled, name))) == FILES[name] for name in "ab")


def test_a_spare_copy_is_verified_until_it_is_marked(filled: Store) -> None:
    """Two saves at the same time have stored the same chunks; the catalog knows the first."""
    place = filled.catalog.find([chunks(filled, "c")[1][0]])
    filled.catalog.forget_chunk(chunks(filled, "c")[1][0])
    save(filled, FILES["c"], "again")
    first, spare = (filled.layout.pack(row.id) for row in filled.catalog.packs()[-2:])
    assert place.popitem()[1].pack == filled.catalog.packs()[-2].key
    damage(filled, "c", 1)
    assert verify(filled).bad[0].pack == str(spare)
    damage(filled, "c", 1)
    [entry] = packs.read_entries(spare)[2]
    flip(first, packs.read_entries(first)[2][1].offset)
    work = Verification(filled)
    [bad] = work.run().bad
    assert (bad.pack, bad.chunk, bad.places) == (str(first), entry.id.hex(), [])
    assert verify(filled, "c").bad == []
    badlist.condemn(filled, work.copies)
    assert verify(filled).bad == []
    assert read(filled, stubs.read_index(stub(filled, "c"))) == FILES["c"]


# -- while others work on the store


def during(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Does something when what is to be hashed has been found, and before anything is."""
    jobs = targets._jobs

    def acting(*arguments: object) -> Iterator[object]:
        action()
        yield from jobs(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(targets, "_jobs", acting)


@pytest.mark.parametrize("names", [(), ("c",)])
def test_a_collection_meanwhile_is_no_damage(
    filled: Store, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    def delete() -> None:
        Path(os.fsdecode(stub(filled, "c"))).unlink(missing_ok=True)
        collector.run(filled)

    during(monkeypatch, delete)
    found = verify(filled, *names)
    assert (found.bad, found.damaged) == ([], [])
    assert len(pack_paths(filled)) == 2


def move(store: Store, name: str) -> None:
    """Copies a snapshot's chunks to a new pack, gives them their place there, and deletes the old one."""
    old = pack_of(store, name)
    [key] = [row.key for row in store.catalog.packs() if row.id.hex() == old.stem]
    entries, content = packs.read_entries(old)[2], old.read_bytes()
    writer = packs.PackWriter(store.layout)
    writer.append([(e.id, memoryview(content)[e.offset : e.offset + e.length]) for e in entries])
    size = writer.seal(sync=False)
    store.catalog.add_pack(writer.id, size, writer.entries, [entry.id for entry in entries])
    store.catalog.drop_packs([key])
    old.unlink()


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("names", [(), ("c",)])
def test_a_compaction_meanwhile_is_no_damage_and_hides_none(
    filled: Store, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], is_damaged: bool
) -> None:
    if is_damaged:
        chunk, *_ = damage(filled, "c", 4)
    moves = iter([None])
    during(monkeypatch, lambda: [move(filled, "c") for _ in moves])
    found = verify(filled, *names)
    if is_damaged:
        [bad] = found.bad
        assert (bad.kind, bad.chunk, bad.places[0].snapshot) == ("corrupt", chunk, "c")
        assert bad.pack == str(pack_of(filled, "c"))
    else:
        assert found.bad == []
        assert found.chunks >= len(chunks(filled, "c"))


def test_chunks_that_moved_before_they_were_looked_at(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Verification(filled, [stub(filled, "c")])
    chunk, *_ = damage(filled, "c", 4)
    with open_store(filled.layout.root.parent) as other:
        move(other, "c")
    [bad] = work.run().bad
    assert (bad.chunk, bad.pack) == (chunk, str(pack_of(filled, "c")))


def test_a_chunk_that_is_moved_between_two_looks(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, *_ = damage(filled, "c", 4)
    moves, look = iter([None]), badlist.look

    def moved(layout: Layout, copy: Copy) -> Fault | None:
        for _ in moves:
            move(filled, "c")
        return look(layout, copy)

    monkeypatch.setattr(badlist, "look", moved)
    [bad] = verify(filled, "c").bad
    assert (bad.kind, bad.chunk, bad.pack) == ("corrupt", chunk, str(pack_of(filled, "c")))


def test_packs_that_come_while_new_ones_are_looked_at(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saves, moves, list_packs = iter([None]), iter([None]), packs.list_packs

    def save_damaged() -> None:
        for _ in saves:
            save(filled, random_bytes(5000, 9), "new")
            damage(filled, "new", 1)

    def list_and_move(layout: Layout) -> dict[bytes, int]:
        found = list_packs(layout)
        for _ in moves:
            move(filled, "new")
        return found

    during(monkeypatch, save_damaged)
    monkeypatch.setattr(packs, "list_packs", list_and_move)
    [bad] = verify(filled).bad
    assert (bad.kind, bad.pack, bad.places[0].snapshot) == ("corrupt", str(pack_of(filled, "new")), "new")


def test_a_copy_that_is_marked_meanwhile_is_told_as_what_is_missing(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(filled, "c", 4)
    work = Verification(filled)
    work.run()
    marks = iter([None])
    during(monkeypatch, lambda: [badlist.condemn(filled, work.copies) for _ in marks])
    assert [(bad.kind, bad.places[0].snapshot) for bad in verify(filled).bad] == [("missing", "c")]


def test_a_save_meanwhile_is_no_damage(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = iter(range(3))
    during(monkeypatch, lambda: [save(filled, random_bytes(3000, 50 + i), f"new-{i}") for i in saves])
    found = verify(filled)
    assert (found.bad, found.damaged) == ([], [])
    assert found.chunks == verify(filled).chunks
