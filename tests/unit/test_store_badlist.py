"""The list of bad copies: what is put on it, and that nothing brings it back."""

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvtool.errors import ChunkMissing
from kvtool.store import badlist, catalog_files, lock, packs, recover, stubs
from kvtool.store.badlist import Copy
from kvtool.store.hasher import Fault
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests.stores import SIZES, flip, layout_in, pack_paths, read, save, stub
from tests.synth import random_bytes

DATA = random_bytes(4000)
ExpectLog = Callable[[str], None]


def copies(store: Store) -> list[Copy]:
    """Every copy in the packs, by offset."""
    found = []
    for path in pack_paths(store):
        pack_id, _, entries = packs.read_entries(path)
        found += [Copy(pack_id, *entry[:3]) for entry in entries]
    return found


def damage(store: Store, copy: Copy) -> None:
    flip(store.layout.pack(copy.pack), copy.offset + copy.length // 2)


def test_what_is_condemned_is_what_is_bad(store: Store) -> None:
    index = save(store, DATA, "a")
    good, bad, *_ = found = copies(store)
    damage(store, bad)
    assert badlist.read(store.layout) == set()
    assert badlist.condemn(store, found) == 1
    assert badlist.read(store.layout) == {bad}
    assert store.catalog.find([good.chunk, bad.chunk]).keys() == {good.chunk}
    with pytest.raises(ChunkMissing, match=bad.chunk.hex()):
        read(store, index)
    assert read(store, save(store, DATA, "a")) == DATA
    assert badlist.condemn(store, found) == 1  # the old copy still
    assert read(store, index) == DATA


def test_only_the_place_that_is_bad_is_forgotten(store: Store) -> None:
    save(store, DATA, "a")
    [first, *_] = copies(store)
    damage(store, first)
    badlist.condemn(store, [first])
    save(store, DATA, "a")
    place = store.catalog.find([first.chunk])[first.chunk]
    badlist.condemn(store, [first])
    assert store.catalog.find([first.chunk])[first.chunk] == place


def test_a_wrong_row_does_not_condemn_the_copy_that_the_footer_knows(store: Store) -> None:
    index = save(store, DATA, "a")
    right = copies(store)[1]
    store.catalog._db.execute("UPDATE chunk SET offset = offset + 1 WHERE id = ?", (right.chunk,))
    assert badlist.condemn(store, [right._replace(offset=right.offset + 1)]) == 1
    store.close()
    catalog_files.discard(store.layout.catalog)
    with recover.writer(store.layout, sync=False) as (again, _, _):
        assert read(again, index) == DATA


@pytest.mark.parametrize(
    ("fault", "is_bad"),
    [
        (None, False),
        (Fault("corrupt", ""), True),
        (Fault("missing", ""), False),
        (Fault("unreadable", "", errno.EIO), True),
        (Fault("unreadable", "", errno.EACCES), False),
        (Fault("unreadable", "", errno.EMFILE), False),
        (Fault("unreadable", ""), False),
    ],
)
def test_only_what_a_failing_disk_says_condemns(fault: Fault | None, is_bad: bool) -> None:
    assert badlist._is_bad(fault) is is_bad


def test_the_list_takes_any_text(store: Store) -> None:
    save(store, DATA, "a")
    first, second, *_ = copies(store)
    lines = [
        b"",
        b"\xff\xfe",
        b"a b c d",
        b"00 11 1 2",
        " ".join(map(str, badlist.to_json([first])[0])).encode(),
        " ".join(map(str, badlist.to_json([second])[0])).encode()[:-60],
        b"\x00" * 100,
        " ".join(map(str, badlist.to_json([first._replace(offset=1 << 70)])[0])).encode(),
        " ".join(map(str, badlist.to_json([first._replace(length=-1)])[0])).encode(),
    ]
    store.layout.bad_copies.write_bytes(b"\n".join(lines))
    assert badlist.read(store.layout) == {first}
    damage(store, second)
    badlist.condemn(store, [second])
    assert badlist.read(store.layout) == {first, second}
    assert len(store.layout.bad_copies.read_text().splitlines()) == 2


def test_copies_go_through_json_and_nonsense_does_not(store: Store) -> None:
    save(store, DATA, "a")
    found = copies(store)
    assert badlist.from_json(badlist.to_json(found)) == found
    for rows in ([["zz", "00", 1, 2]], [["00", "00", "x", 2]], [[1, 2, 3, 4]], [["00"]], 7, [7]):
        with pytest.raises((ValueError, TypeError)):
            badlist.from_json(rows)  # type: ignore[arg-type]


# -- when the catalog is made anew


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = layout_in(tmp_path)
    with recover.writer(layout, sync=False, create=SIZES) as (store, _, _):
        save(store, DATA, "a")
    return layout


def everything_reads(layout: Layout, *names: str) -> bool:
    with recover.writer(layout, sync=False) as (store, _, _):
        return all(read(store, stubs.read_index(stub(store, name))) == DATA for name in names)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["the bad one first", "the good one first"])
def test_a_healed_snapshot_survives_the_loss_of_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    """A rebuild takes packs in in the order of their ids, and the first that has a chunk is its place."""
    pack_ids = iter(order)
    ordered = SimpleNamespace(token_bytes=lambda size: bytes([next(pack_ids)] * size))
    monkeypatch.setattr(packs, "secrets", ordered)
    layout = layout_in(tmp_path)
    with recover.writer(layout, sync=False, create=SIZES) as (store, _, _):
        save(store, DATA, "a")
        bad = copies(store)[1]
        damage(store, bad)
        badlist.condemn(store, [bad])
        save(store, DATA, "b")
    catalog_files.discard(layout.catalog)
    assert everything_reads(layout, "a", "b")


def test_what_is_not_healed_yet_does_not_come_back(layout: Layout) -> None:
    with recover.writer(layout, sync=False) as (store, _, _):
        bad = copies(store)[0]
        damage(store, bad)
        badlist.condemn(store, [bad])
    catalog_files.discard(layout.catalog)
    with recover.writer(layout, sync=False) as (store, _, _):
        assert store.catalog.find([bad.chunk]) == {}
        save(store, DATA, "b")
    assert everything_reads(layout, "a", "b")


def test_a_crash_between_the_list_and_the_catalog(layout: Layout) -> None:
    with recover.writer(layout, sync=False) as (store, _, _):
        bad = copies(store)[0]
        damage(store, bad)
        badlist._write(layout, [bad])
        assert store.catalog.find([bad.chunk])
    with recover.writer(layout, sync=False) as (store, _, _):
        assert store.catalog.find([bad.chunk]) == {}


def test_a_bad_copy_does_not_take_the_place_of_one_whose_pack_is_gone(
    layout: Layout, expect_log: ExpectLog
) -> None:
    expect_log("packs that the catalog knows are gone")
    with recover.writer(layout, sync=False) as (store, _, _):
        bad = copies(store)[0]
        damage(store, bad)
        badlist.condemn(store, [bad])
        save(store, DATA, "b")
        [new] = [path for path in pack_paths(store) if path.stem != bad.pack.hex()]
    new.unlink()
    with recover.writer(layout, sync=False) as (store, _, _):
        assert store.catalog.find([bad.chunk]) == {}
        assert len(store.catalog.packs()) == 1


def test_a_pack_that_is_gone_leaves_the_list(layout: Layout, expect_log: ExpectLog) -> None:
    expect_log("packs that the catalog knows are gone")
    with recover.writer(layout, sync=False) as (store, _, _):
        bad = copies(store)[0]
        damage(store, bad)
        badlist.condemn(store, [bad])
    before = layout.bad_copies.stat().st_ino
    with recover.writer(layout, sync=False):
        assert layout.bad_copies.stat().st_ino == before
    layout.pack(bad.pack).unlink()
    with recover.writer(layout, sync=False):
        assert layout.bad_copies.read_text() == ""
    lock.acquire(layout).release()
