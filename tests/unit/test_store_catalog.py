"""The catalog: what goes in comes out, and every trouble is the right error."""

import errno
import os
import sqlite3
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvtool.core.index import ID_SIZE, Index
from kvtool.core.pack import Entry
from kvtool.errors import CatalogDamaged, ChunkMissing, NoStore
from kvtool.store.catalog import Catalog, Location
from kvtool.store.catalog_files import discard, is_known_damaged
from tests.stores import SIZES


def chunk_id(number: int) -> bytes:
    return number.to_bytes(32, "big")


def entries(*numbers: int, checksum: int = 7) -> list[Entry]:
    return [Entry(chunk_id(n), 4096 + 100 * i, 100, checksum) for i, n in enumerate(numbers)]


def index_of(*numbers: int, length: int = 100) -> Index:
    return Index(SIZES).extended(array("Q", [length] * len(numbers)), b"".join(map(chunk_id, numbers)))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog.sqlite3", writable=True)
    yield opened
    opened.close()


@pytest.mark.parametrize("checksum", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_every_checksum_of_64_bits_comes_back(catalog: Catalog, checksum: int) -> None:
    key = catalog.add_pack(b"p" * 16, 5000, entries(1, checksum=checksum))
    assert catalog.find([chunk_id(1)]) == {chunk_id(1): Location(key, 4096, 100, checksum)}
    assert list(catalog.place(index_of(1)).checksums) == [checksum]


def test_a_chunk_that_is_known_keeps_its_place(catalog: Catalog) -> None:
    first = catalog.add_pack(b"a" * 16, 5000, entries(1, 2))
    second = catalog.add_pack(b"b" * 16, 6000, entries(2, 3))
    found = catalog.find(map(chunk_id, (1, 2, 3, 4)))
    assert {chunk: location.pack for chunk, location in found.items()} == {
        chunk_id(1): first,
        chunk_id(2): first,
        chunk_id(3): second,
    }


def test_a_stale_chunk_moves_to_the_new_pack(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(1, 2))
    second = catalog.add_pack(b"b" * 16, 6000, entries(2), [chunk_id(2)])
    assert catalog.find([chunk_id(2)])[chunk_id(2)].pack == second


def test_dropped_packs_take_their_chunks_along_and_their_keys_stay_unused(catalog: Catalog) -> None:
    first = catalog.add_pack(b"a" * 16, 5000, entries(1, 2))
    second = catalog.add_pack(b"b" * 16, 6000, entries(3))
    catalog.drop_packs([second])
    catalog.drop_packs([])
    assert [row.key for row in catalog.packs()] == [first]
    assert catalog.pack(second) is None
    assert catalog.find([chunk_id(3)]) == {}
    assert catalog.chunk_count() == 2
    assert catalog.add_pack(b"c" * 16, 6000, entries(3)) > second


def test_a_lookup_of_more_ids_than_fit_one_query(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(1203)))
    assert len(catalog.find(map(chunk_id, [*range(1300), *range(1300)]))) == 1203
    assert len(catalog.place(index_of(*range(1203))).packs) == 1203


SHAPES = {
    "a run": [*range(100, 300)],
    "runs": [*range(40), *range(200, 300), 5000, *range(301, 340), *range(5001, 5100), *range(20, 90)],
    "a run with holes": [n if n % 30 else 5000 + n for n in range(300)],
    "backwards": [*range(300, 0, -1)],
    "scattered": [(n * 7919) % 300 for n in range(300)],
    "one chunk": [7] * 100,
    "no chunk": [],
}


@pytest.mark.parametrize("numbers", SHAPES.values(), ids=SHAPES)
def test_place_finds_each_chunk_however_they_lie(catalog: Catalog, numbers: list[int]) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(400)))
    catalog.add_pack(b"b" * 16, 5000, entries(*range(5000, 5310)))
    known = catalog.find(map(chunk_id, numbers))
    place = catalog.place(index_of(*numbers))
    expected = [known[chunk_id(n)] for n in numbers]
    assert list(place.packs) == [location.pack for location in expected]
    assert list(place.offsets) == [location.offset for location in expected]
    for at in {0, len(numbers) // 2, len(numbers) - 1} if numbers else ():
        with pytest.raises(ChunkMissing, match=chunk_id(9999).hex()):
            catalog.place(index_of(*numbers[:at], 9999, *numbers[at + 1 :]))


@pytest.mark.parametrize("numbers", SHAPES.values(), ids=SHAPES)
def test_the_parts_of_a_file_hold_all_its_chunks_and_no_other(catalog: Catalog, numbers: list[int]) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(400)))
    catalog.add_pack(b"b" * 16, 5000, entries(*range(5000, 5310)))
    parts, lacking = catalog.parts(index_of(*numbers))
    assert lacking == set()
    found = {
        (part.ids[ID_SIZE * i : ID_SIZE * (i + 1)], part.pack, *place)
        for part in parts
        for i, place in enumerate(zip(part.offsets, part.lengths, strict=True))
    }
    known = catalog.find(map(chunk_id, numbers))
    assert found == {(chunk, *location[:3]) for chunk, location in known.items()}
    assert all(list(part.offsets) == sorted(part.offsets) for part in parts)
    for at in {0, len(numbers) // 3, len(numbers) - 1} if numbers else ():
        less = [*numbers[:at], 9999, *numbers[at + 1 :]]
        assert catalog.parts(index_of(*less))[1] == {(chunk_id(9999), 100)}
        lengths = array("Q", [100] * len(numbers))
        lengths[at] = 99
        odd = Index(SIZES).extended(lengths, b"".join(map(chunk_id, numbers)))
        _, lacking = catalog.parts(odd)
        assert lacking == {(chunk_id(numbers[at]), 99)}


def test_lengths_that_are_wrong_and_add_up(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(100)))
    lengths = array("Q", [100] * 100)
    lengths[40], lengths[41] = 99, 101
    index = Index(SIZES).extended(lengths, b"".join(map(chunk_id, range(100))))
    assert catalog.parts(index)[1] == {(chunk_id(40), 99), (chunk_id(41), 101)}


def test_a_run_is_one_part(catalog: Catalog) -> None:
    key = catalog.add_pack(b"a" * 16, 5000, entries(*range(400)))
    [(pack, ids, offsets, lengths)], _ = catalog.parts(index_of(*range(30, 111)))
    assert (pack, ids) == (key, b"".join(map(chunk_id, range(30, 111))))
    assert list(offsets) == list(range(4096 + 3000, 4096 + 11_100, 100))
    assert set(lengths) == {100}


def test_nothing_is_read_between_chunks_that_lie_far_apart(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(400)))
    apart = [(chunk_id(number), 100) for number in range(0, 400, 10)]
    assert catalog.rows(apart).keys() == {chunk for chunk, _ in apart}


def test_the_version_tells_of_changes_by_others(catalog: Catalog, tmp_path: Path) -> None:
    reader = Catalog(tmp_path / "catalog.sqlite3", writable=False)
    before = reader.version()
    assert reader.version() == before
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    assert reader.version() != before
    reader.close()


def test_copies_are_forgotten_where_they_lie(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(1, 2, 3))
    right, one = (b"a" * 16, chunk_id(1), 4096, 100), chunk_id(1)
    for at, wrong in enumerate((b"b" * 16, chunk_id(2), 4097, 99)):
        catalog.forget_copies([(*right[:at], wrong, *right[at + 1 :])])  # type: ignore[list-item]
        assert one in catalog.find([one])
    catalog.forget_copies([right, (b"a" * 16, chunk_id(3), 4296, 100)])
    assert catalog.find(map(chunk_id, (1, 2, 3))).keys() == {chunk_id(2)}


def test_most_of_a_run_is_read_in_the_order_of_its_pack(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(1000)))
    asked: list[str] = []
    catalog._db.set_trace_callback(asked.append)
    catalog.place(index_of(*range(100, 900)))
    sought = [query.count("X'") for query in asked if " IN (" in query]
    assert sum(sought) < 100
    assert len(asked) - len(sought) == 1


def test_a_catalog_without_the_index_by_pack_is_read_and_gets_it(catalog: Catalog, tmp_path: Path) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(*range(100, 0, -1), 0))
    catalog._db.execute("DROP INDEX chunk_place")
    reader = Catalog(tmp_path / "catalog.sqlite3", writable=False)
    assert len(reader.place(index_of(*range(100))).packs) == 100
    assert reader.parts(index_of(*range(100)))[1] == set()
    reader.close()
    Catalog(tmp_path / "catalog.sqlite3", writable=True).close()
    assert "chunk_place" in {row[0] for row in catalog._db.execute("SELECT name FROM sqlite_master")}


def test_place_names_the_first_chunk_that_is_missing(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    with pytest.raises(ChunkMissing, match=chunk_id(8).hex()):
        catalog.place(index_of(1, 8, 9))


def test_place_refuses_a_chunk_of_another_length(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    with pytest.raises(ChunkMissing, match=r"\(101 bytes\)"):
        catalog.place(index_of(1, length=101))


def test_place_of_an_empty_file(catalog: Catalog) -> None:
    assert not catalog.place(index_of()).packs


def test_a_failed_transaction_leaves_nothing(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    with pytest.raises(OSError, match="UNIQUE") as caught:
        catalog.add_pack(b"a" * 16, 6000, entries(2), [chunk_id(1)])
    assert caught.value.errno == errno.EIO
    assert set(catalog.find([chunk_id(1), chunk_id(2)])) == {chunk_id(1)}
    catalog.add_pack(b"b" * 16, 6000, entries(2))


def test_a_full_disk_is_enospc_and_the_next_transaction_works(catalog: Catalog) -> None:
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    pages = catalog._db.execute("PRAGMA page_count").fetchone()[0]
    catalog._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match="full") as caught:
        catalog.add_pack(b"b" * 16, 6000, entries(*range(2, 2000)))
    assert caught.value.errno == errno.ENOSPC
    assert [row.id for row in catalog.packs()] == [b"a" * 16]
    catalog._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    catalog.add_pack(b"b" * 16, 6000, entries(*range(2, 2000)))


def test_readers_see_what_the_writer_adds(catalog: Catalog, tmp_path: Path) -> None:
    reader = Catalog(tmp_path / "catalog.sqlite3", writable=False)
    assert reader.packs() == []
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    assert len(reader.packs()) == 1
    reader.close()


def test_reading_an_absent_catalog_makes_none(tmp_path: Path) -> None:
    with pytest.raises(NoStore, match="is not there"):
        Catalog(tmp_path / "catalog.sqlite3", writable=False)
    assert list(tmp_path.iterdir()) == []


def test_reading_an_empty_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite3").touch()
    with pytest.raises(NoStore):
        Catalog(tmp_path / "catalog.sqlite3", writable=False)


@pytest.mark.parametrize("writable", [True, False])
def test_garbage_is_a_damaged_catalog(tmp_path: Path, writable: bool) -> None:
    (tmp_path / "catalog.sqlite3").write_bytes(b"no database " * 1000)
    with pytest.raises(CatalogDamaged):
        Catalog(tmp_path / "catalog.sqlite3", writable=writable)


def test_a_page_that_is_wrong_is_a_damaged_catalog(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite3"
    catalog = Catalog(path, writable=True)
    catalog.add_pack(b"a" * 16, 5000, entries(*range(2000)))
    catalog.close()
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\xff" * (len(data) - 4096 * 2)
    path.write_bytes(data)
    with pytest.raises(CatalogDamaged):
        Catalog(path, writable=False).find(map(chunk_id, range(2000)))


def test_a_path_with_characters_of_uris(tmp_path: Path) -> None:
    folder = tmp_path / "a?b#c%20 d\udcff"
    folder.mkdir()
    Catalog(folder / "catalog.sqlite3", writable=True).close()
    assert (folder / "catalog.sqlite3").exists()


def test_discard_takes_all_files(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite3"
    catalog = Catalog(path, writable=True)
    catalog.add_pack(b"a" * 16, 5000, entries(1))
    assert len(list(tmp_path.iterdir())) == 3
    discard(path)
    discard(path)
    assert list(tmp_path.iterdir()) == []
    catalog.close()


def test_a_catalog_that_failed_to_open_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A connection that lingers deletes the write-ahead log of the catalog made in its place when it goes.
    path = tmp_path / "catalog.sqlite3"
    catalog = Catalog(path, writable=True)
    catalog.add_pack(b"a" * 16, 5000, entries(*range(100)))
    catalog.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: object, **options: object) -> sqlite3.Connection:
        opened.append(connect(*args, **options))  # type: ignore[call-overload]
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    with pytest.raises(CatalogDamaged):
        Catalog(path, writable=True)
    assert len(opened) == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_damage_that_is_met_later_is_noted_for_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite3"
    catalog = Catalog(path, writable=True)
    catalog.add_pack(b"a" * 16, 5000, entries(*range(2000)))
    root = catalog._db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'chunk'").fetchone()[0]
    catalog.close()
    data = bytearray(path.read_bytes())
    data[4096 * (root - 1) : 4096 * root] = b"\xff" * 4096
    path.write_bytes(data)
    catalog = Catalog(path, writable=True)
    assert len(catalog.packs()) == 1
    assert not is_known_damaged(path)
    with pytest.raises(CatalogDamaged):
        catalog.find([chunk_id(1)])
    assert is_known_damaged(path)
    catalog.close()
    discard(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("flags", "blocks"), [(os.ST_RDONLY, 1 << 30), (0, 10)], ids=["read-only", "full"])
def test_on_a_disk_that_takes_no_file_a_reader_makes_none(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, blocks: int
) -> None:
    catalog.add_pack(b"p" * 16, 5000, entries(1))
    catalog.close()
    disk = SimpleNamespace(f_flag=flags, f_bavail=blocks, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)
    reader = Catalog(tmp_path / "catalog.sqlite3", writable=False)
    assert reader.find([chunk_id(1)])
    assert [path.name for path in tmp_path.iterdir()] == ["catalog.sqlite3"]
    reader.close()
