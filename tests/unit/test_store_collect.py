"""A collection deletes whole-dead packs and nothing else, and nothing at all when it cannot be sure."""

import os
from pathlib import Path

import pytest

from kvtool.errors import IndexDamaged, NoStore
from kvtool.store import catalog, collect, collector, stubs
from kvtool.store.collect import Collected
from kvtool.store.store import Store
from tests.stores import listing, pack_paths, read, save, stub
from tests.synth import random_bytes

A, B = random_bytes(4000, 1), random_bytes(4000, 2)


def test_only_packs_that_no_snapshot_needs_go(store: Store) -> None:
    os.mkdir(stub(store, "d"))
    save(store, A, "a")
    both = save(store, A + B, "d/both")
    save(store, random_bytes(4000, 3), "c")
    assert len(pack_paths(store)) == 3
    assert collector.run(store) == Collected()
    os.unlink(stub(store, "c"))
    size = max(row.size for row in store.catalog.packs() if row.key == 3)
    assert collector.run(store) == Collected(packs=1, bytes=size)
    os.unlink(stub(store, "a"))
    assert collector.run(store) == Collected()
    assert read(store, both) == A + B
    os.unlink(stub(store, "d/both"))
    assert collector.run(store).packs == 2
    assert pack_paths(store) == []
    assert store.catalog.packs() == []
    assert store.catalog.chunk_count() == 0


def test_what_was_freed_can_be_saved_again(store: Store) -> None:
    save(store, A, "a")
    os.unlink(stub(store, "a"))
    collector.run(store)
    assert read(store, save(store, A)) == A


def test_a_dry_run_changes_nothing(store: Store) -> None:
    save(store, A, "a")
    os.unlink(stub(store, "a"))
    before = listing(store.layout.packs, store.layout.stubs)
    assert collector.run(store, dry_run=True).packs == 1
    assert listing(store.layout.packs, store.layout.stubs) == before
    assert len(store.catalog.packs()) == 1


@pytest.mark.parametrize("kind", ["text", "link", "fifo", "cut short"])
def test_a_file_that_is_no_stub_stops_it(store: Store, kind: str) -> None:
    save(store, A, "a")
    save(store, B, "z")
    os.unlink(stub(store, "a"))
    path = Path(os.fsdecode(stub(store, "foreign")))
    match kind:
        case "text":
            path.write_text("hello")
        case "link":
            path.symlink_to("z")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.write_bytes(Path(os.fsdecode(stub(store, "z"))).read_bytes()[:-1])
    before = listing(store.layout.packs)
    with pytest.raises(IndexDamaged, match="foreign"):
        collector.run(store)
    assert listing(store.layout.packs) == before
    path.unlink()
    assert collector.run(store).packs == 1


def test_an_incomplete_stub_does_not_stop_it(store: Store) -> None:
    stubs.create(store.layout, stub(store, "half"), 0o600, None, None)
    assert collector.run(store) == Collected()


@pytest.mark.parametrize("state", ["absent", "another"])
def test_without_its_stub_tree_nothing_is_called_unneeded(store: Store, state: str) -> None:
    save(store, A, "a")
    if state == "absent":
        store.layout.stubs.rename(store.layout.stubs.with_name("unmounted"))
        store.layout.stubs.mkdir()
    else:
        store.layout.stub_store_id.write_text("0" * 32)
    with pytest.raises(NoStore):
        collector.run(store)
    assert len(pack_paths(store)) == 1


def test_a_missing_chunk_of_a_snapshot_does_not_stop_it(store: Store) -> None:
    save(store, A, "a")
    save(store, B, "b")
    store.catalog.drop_packs([1])
    os.unlink(stub(store, "b"))
    assert collector.run(store).packs == 1


def test_a_pack_that_is_already_gone_is_no_trouble(store: Store) -> None:
    save(store, A, "a")
    os.unlink(stub(store, "a"))
    pack_paths(store)[0].unlink()
    assert collector.run(store).packs == 1
    assert store.catalog.packs() == []


def test_packs_younger_than_the_mark_are_left_out(store: Store) -> None:
    save(store, A)
    newest = collect.newest_pack(store)
    save(store, B)
    assert [use.key for use in collect.survey(store, set(), newest).dead] == [newest]


def test_of_no_packs_the_newest_is_none(store: Store) -> None:
    assert collect.newest_pack(store) == 0
    assert collector.run(store) == Collected()


def test_all_of_a_large_catalog_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_SCAN", 3)
    for number in range(5):
        save(store, random_bytes(2000, 10 + number), f"n{number}")
    os.unlink(stub(store, "n2"))
    survey = collect.survey(store, collect.mark(store), collect.newest_pack(store))
    assert [use.key for use in survey.dead] == [3]
    assert [use.dead for use in survey.uses if use.key != 3] == [0] * 4
    assert collector.run(store).packs == 1


def test_a_pack_with_the_last_copy_of_a_needed_chunk_stays_even_if_it_is_damaged(store: Store) -> None:
    index = save(store, A, "a")
    store.catalog.forget_chunk(index.id(0))
    os.unlink(stub(store, "a"))
    save(store, A[: index.ends[0]] + B, "b")
    store.catalog.forget_chunk(index.id(0))
    collector.run(store)
    assert len(pack_paths(store)) == 2
    os.unlink(stub(store, "b"))
    assert collector.run(store).packs == 2
