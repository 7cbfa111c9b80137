"""fsck, the check: every kind of finding is found, and mended or left as docs/fsck.md says."""

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtool.store import check, lock, packs, stubs
from kvtool.store.check import check_store
from kvtool.store.findings import KINDS, Code, Outcome, Severity
from kvtool.store.ingest import Ingest
from kvtool.store.layout import Layout
from kvtool.store.look import Look
from kvtool.store.repair import repair
from kvtool.store.watch import Watch
from tests.fsck_cases import (
    CASES,
    MISSING,
    bad,
    by_code,
    forget,
    incomplete,
    path_of,
    unchanged,
    unknown_pack,
)
from tests.stores import as_index, feed, flip, opened, pack_paths, save
from tests.synth import random_bytes
from tests.three_snapshots import FILES, pack_of, readable

DOCS = Path(__file__).parents[2] / "docs" / "fsck.md"
ExpectLog = Callable[[str], None]


def test_a_sound_store_has_no_findings(layout: Layout) -> None:
    before = unchanged(layout)
    report = check_store(layout)
    assert (report.findings, report.clean, report.in_use) == ([], True, False)
    assert (report.snapshots, report.packs) == (3, 3)
    assert report.chunks == sum(len(packs.read_entries(path)[2]) for path in pack_paths(layout))
    assert unchanged(layout) == before
    assert repair(layout).findings == []
    assert readable(layout) == "abc"


@pytest.mark.parametrize("name", CASES)
def test_each_kind_is_found_and_mended_or_left(layout: Layout, expect_log: ExpectLog, name: str) -> None:
    case = CASES[name]
    case.damage(layout)
    if case.found & {Code.CATALOG_PACK_GONE, Code.CATALOG_PACK_SIZE}:
        expect_log("gone or damaged")
    before = unchanged(layout)
    report = check_store(layout)
    assert {found.code for found in report.findings} == case.found
    assert all(found.outcome is Outcome.LEFT for found in report.findings)
    assert all(found.path.startswith(str(layout.root.parent)) for found in report.findings)
    assert unchanged(layout) == before
    mended = repair(layout)
    assert bad(mended) == case.left
    assert bad(mended, Outcome.MENDED) >= bad(report) - case.left
    lost = any(KINDS[code].severity is Severity.DAMAGE for code in case.found)
    assert mended.clean == (not lost and not case.left)
    again = repair(layout)
    assert (bad(again), bad(again, Outcome.MENDED)) == (case.left, set())
    if layout.stubs.exists() and not case.left & {Code.STUBS_NO_ID, Code.STUBS_OTHER_ID}:
        assert readable(layout) == case.readable


def test_every_kind_has_a_case() -> None:
    with_patches = {Code.PACK_UNREADABLE, Code.STUB_UNREADABLE}
    assert set().union(*(case.found for case in CASES.values())) | with_patches == set(Code)
    assert set(KINDS) == set(Code)


def test_the_table_in_the_docs_is_the_code() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.+) \| (.+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE)
    written = [(code, severity, repair.replace("`", "")) for code, severity, _, _, repair in rows]
    assert written == [
        (str(code), str(kind.severity), kind.repair.replace("`", "")) for code, kind in KINDS.items()
    ]


def test_findings_name_the_snapshots_they_concern(layout: Layout) -> None:
    with opened(layout) as store:
        save(store, FILES["b"], "again")
    forget(layout, damaged=False)
    flip(pack_of(layout, "c"), 4000)
    pack_of(layout, "a").unlink()
    found = by_code(check_store(layout))
    assert found[Code.CATALOG_CHUNK_UNKNOWN].snapshots == ["again", "b"]
    assert found[Code.PACK_HEADER].snapshots == ["c"]
    assert found[Code.CATALOG_PACK_GONE].snapshots == found[MISSING].snapshots == ["a"]


def test_a_copy_that_a_collection_left_alone_is_no_finding(layout: Layout) -> None:
    """Two saves at once stored the same bytes: the pack of one is deleted, that of the other spared."""
    with opened(layout) as store:
        twice = random_bytes(5000, 77)
        first, second = Ingest(store), Ingest(store)
        feed(first, [twice])
        feed(second, [twice, random_bytes(5000, 78)])
        first.finish()
        deleted = store.catalog.packs()[-1]
        index = as_index(store, second.finish())
        tail = stubs.prepare(layout, index.part(len(index) - 3, len(index)), sync=False)
        stubs.replace(tail, path_of(layout, "tail"))
        store.catalog.drop_packs([deleted.key])
    layout.pack(deleted.id).unlink()
    assert bad(check_store(layout)) == set()
    # Who knows what a stub needs that cannot be read?
    flip(path_of(layout, "b"), 0)
    assert bad(check_store(layout)) == {Code.STUB_DAMAGED, Code.CATALOG_CHUNK_UNKNOWN}
    flip(path_of(layout, "b"), 0)
    assert bad(repair(layout), Outcome.MENDED) == set()
    path_of(layout, "tail").unlink()
    assert {found.code for found in check_store(layout).findings} == {Code.ORPHAN}


def test_files_that_cannot_be_read(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = pack_of(layout, "b")

    def fails(path: Path, **options: bool) -> object:
        if path == broken and path.exists():
            raise OSError(errno.EIO, "broken", str(path))
        return read_entries(path, **options)

    read_entries = packs.read_entries
    monkeypatch.setattr(packs, "read_entries", fails)
    assert bad(check_store(layout)) == {Code.PACK_UNREADABLE}
    # The rest of the pack may still be there: it is saved by what the catalog knows.
    assert bad(repair(layout)) == set()
    assert readable(layout) == "abc"
    assert (layout.quarantine / broken.name).exists()
    monkeypatch.setattr(stubs, "read_index", lambda path: fails(broken))
    broken.parent.mkdir(exist_ok=True)
    broken.touch()
    assert Code.STUB_UNREADABLE in bad(check_store(layout))


# -- beside a mount


def test_work_in_progress_is_no_leftover(layout: Layout) -> None:
    (layout.incoming / "x.pack").touch()
    (layout.stub_private / "new-12").touch()
    incomplete(layout)
    held = lock.acquire(layout)
    report = check_store(layout, pause=lambda _: None)
    assert (report.findings, report.in_use) == ([], True)
    held.release()
    assert bad(check_store(layout)) == {Code.LEFTOVER, Code.STUB_INCOMPLETE}


def test_what_passes_is_not_reported_and_what_stays_is(layout: Layout) -> None:
    held = lock.acquire(layout)
    pauses = []

    def sealed(seconds: float) -> None:
        """A save enters its pack, another one is about to."""
        pauses.append(seconds)
        with opened(layout) as store:
            known = {row.id: row for row in store.catalog.packs()}
            for pack_id in sorted(packs.list_packs(layout).keys() - known.keys()):
                store.catalog.add_pack(*packs.read_entries(layout.pack(pack_id)))
            store.catalog.drop_packs([sorted(known.values())[0].key])

    unknown_pack(layout)
    assert check_store(layout, pause=sealed).findings == []
    assert len(pauses) == 1
    sealed(0)
    path_of(layout, "c").write_bytes(bytes(100))
    report = check_store(layout, pause=sealed)
    assert bad(report) == {Code.STUB_DAMAGED}
    held.release()


def test_it_looks_as_long_as_there_is_less_each_time(layout: Layout) -> None:
    with opened(layout) as store:
        for seed in range(7):
            save(store, random_bytes(500, 70 + seed))
        store.catalog.drop_packs([row.key for row in store.catalog.packs()[3:]])
    held = lock.acquire(layout)

    def deleted(_seconds: float) -> None:
        """A collection has deleted one more of the packs that it has struck out."""
        with opened(layout) as store:
            known = {row.id for row in store.catalog.packs()}
        for pack_id in sorted(packs.list_packs(layout).keys() - known)[:1]:
            layout.pack(pack_id).unlink()

    assert check_store(layout, pause=deleted).findings == []
    assert len(pack_paths(layout)) == 3
    held.release()


def test_a_mount_that_starts_while_it_looks(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def starting(it: Layout, *, in_use: bool, watch: Watch) -> Look:
        (it.incoming / "x.pack").touch()
        look = look_at(it, in_use=in_use, watch=watch)
        held.append(lock.acquire(it) if not held else held[0])
        return look

    look_at = check.look_at
    monkeypatch.setattr(check, "look_at", starting)
    report = check_store(layout, pause=lambda _: None)
    assert (report.findings, report.in_use) == ([], True)
    held[0].release()


def test_a_snapshot_that_is_saved_anew_all_the_time_is_not_reported(layout: Layout) -> None:
    held = lock.acquire(layout)
    turns = iter(range(100))

    def overwritten(_seconds: float) -> None:
        with opened(layout) as store:
            index = save(store, random_bytes(3000, 50 + next(turns)), "b")
            place = store.catalog.place(index).packs[0]
            store.packs.path(place).unlink()
            store.catalog.drop_packs([place])

    overwritten(0)
    assert bad(check_store(layout, pause=overwritten)) == set()
    assert bad(check_store(layout, pause=lambda _: None)) == {MISSING}
    held.release()
