"""fsck, the repair: it loses nothing that could be read, can die anywhere, and does what it is told."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kvtool.errors import KvtoolError, NoStore, StoreLocked, StoreTooNew
from kvtool.store import badlist, catalog_files, lock, packs, stubs
from kvtool.store import layout as store_layout
from kvtool.store.badlist import Copy
from kvtool.store.check import check_store
from kvtool.store.findings import Code, Outcome
from kvtool.store.layout import Layout
from kvtool.store.repair import repair
from tests.fsck_cases import MISSING, bad, by_code, edit, forget, orphan, other_sizes, path_of, sql
from tests.stores import SIZES, flip, layout_in, listing, opened, pack_paths, save
from tests.three_snapshots import FILES, pack_of, readable

ExpectLog = Callable[[str], None]


def test_what_is_salvaged_is_a_new_pack_and_the_damaged_one_is_kept(layout: Layout) -> None:
    path = pack_of(layout, "b")
    flip(path, 5000)
    flip(path, 10)
    content = path.read_bytes()
    _, _, entries = packs.read_entries(path, any_header=True)
    (layout.quarantine).mkdir()
    (layout.quarantine / path.name).write_text("earlier")
    report = repair(layout)
    assert bad(report) == {MISSING}
    assert bad(report, Outcome.MENDED) == {Code.PACK_HEADER}
    assert by_code(report)[MISSING].message.startswith("1 of ")
    assert (layout.quarantine / path.name).read_text() == "earlier"
    assert (layout.quarantine / f"{path.name}.1").read_bytes() == content
    new = pack_of(layout, "a").parent.parent
    salvaged = [packs.read_entries(found)[2] for found in new.rglob("*.pack")]
    assert {len(entries) - 1} <= set(map(len, salvaged))
    assert readable(layout) == "ac"


def test_chunks_that_no_snapshot_needs_are_salvaged_too(layout: Layout) -> None:
    orphan(layout)
    with opened(layout) as store:
        row = store.catalog.packs()[-1]
        ids = {entry.id for entry in store.catalog.entries(row.key)}
    path = layout.pack(row.id)
    os.truncate(path, path.stat().st_size - 1)
    assert bad(repair(layout)) == set()
    with opened(layout) as store:
        assert store.catalog.find(ids).keys() == ids


def test_a_sound_copy_of_a_chunk_is_used_whichever_pack_is_older(layout: Layout) -> None:
    forget(layout, damaged=True)
    with opened(layout) as store:
        save(store, FILES["b"])  # heals it, in a pack of its own
    path_of(layout, "b").with_name("foreign").touch()
    assert bad(check_store(layout)) == {Code.STUB_FOREIGN}
    sql(layout, "UPDATE chunk SET offset = 5000 WHERE pack = 1")
    repair(layout)
    assert readable(layout) == "abc"


def lose_catalog(layout: Layout) -> None:
    for file in catalog_files.files(layout.catalog):
        file.unlink(missing_ok=True)


def test_a_condemned_chunk_counts_as_absent_until_its_bytes_are_saved_again(layout: Layout) -> None:
    path = pack_of(layout, "b")
    pack_id, _, entries = packs.read_entries(path)
    flip(path, entries[1].offset)
    with opened(layout) as store:
        assert badlist.condemn(store, [Copy(pack_id, *entry[:3]) for entry in entries]) == 1
    assert bad(check_store(layout)) == bad(repair(layout)) == bad(repair(layout)) == {MISSING}
    assert readable(layout) == "ac"
    lose_catalog(layout)
    assert bad(repair(layout)) == {MISSING}
    with opened(layout) as store:
        save(store, FILES["b"])
    assert bad(check_store(layout)) == set()
    lose_catalog(layout)
    assert repair(layout).clean
    assert readable(layout) == "abc"


def test_a_chunk_in_two_packs_is_no_finding_and_one_of_them_is_enough(
    layout: Layout, expect_log: ExpectLog
) -> None:
    expect_log("gone or damaged")
    first = pack_of(layout, "b")
    content = first.read_bytes()
    with opened(layout) as store:
        row = next(row for row in store.catalog.packs() if layout.pack(row.id) == first)
        entries = store.catalog.entries(row.key)
        store.catalog.drop_packs([row.key])
        first.unlink()
        save(store, FILES["b"])  # what a compaction that was killed leaves
        first.write_bytes(content)
        store.catalog.add_pack(row.id, row.size, entries)
    assert bad(check_store(layout)) == set()
    pack_of(layout, "b").unlink()
    assert bad(check_store(layout)) == {Code.CATALOG_PACK_GONE}
    assert repair(layout).clean
    assert readable(layout) == "abc"


def test_a_power_failure_in_a_repair_loses_nothing(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack_of(layout, "b")
    flip(path, 10)
    before = listing(layout.packs, layout.stubs)

    def fails(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(OSError, match="full"):
        repair(layout)
    assert listing(layout.packs, layout.stubs) == before
    assert list(layout.incoming.iterdir()) == []
    monkeypatch.undo()
    assert bad(repair(layout)) == set()
    assert readable(layout) == "abc"


class Died(BaseException):
    """The process is dead."""


class Death:
    """Lets `left` changes happen; the next one, and all after it, raise Died."""

    CALLS = ("rename", "unlink", "mkdir", "writev", "fdatasync", "setxattr", "removexattr", "utime")

    def __init__(self, left: int) -> None:
        self.left = left
        self.came = False

    def guarding(self, call: Callable[..., object]) -> Callable[..., object]:
        def guarded(*arguments: object, **options: object) -> object:
            self.came = self.came or not self.left
            if self.came:
                raise Died
            self.left -= 1
            return call(*arguments, **options)

        return guarded


def test_a_repair_that_dies_at_any_step_is_gone_on_with(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(pack_of(layout, "a"), 10)
    os.truncate(path := pack_of(layout, "b"), path.stat().st_size - 1)
    (layout.incoming / "x.pack").touch()
    os.removexattr(path_of(layout, "a"), stubs.SIZE)
    os.setxattr(path_of(layout, "a"), stubs.USES, b"many")
    other_sizes(layout, "c")
    layout.stub_store_id.unlink()
    for step in range(0, 100, 3):
        it = layout_in(tmp_path / str(step))
        shutil.copytree(layout.root, it.root)
        shutil.copytree(layout.stubs, it.stubs)
        death = Death(step)
        with monkeypatch.context() as patch, suppress(Died):
            for name in Death.CALLS:
                patch.setattr(os, name, death.guarding(getattr(os, name)))
            repair(it, adopt_stubs=True)
        assert repair(it, adopt_stubs=True).clean
        assert bad(check_store(it)) == set()
        assert readable(it) == "abc"
        if not death.came:
            break
    assert 24 < step < 99


def test_a_stub_tree_is_adopted_only_when_told_so(layout: Layout) -> None:
    flip(pack_of(layout, "b"), 10)
    layout.stub_store_id.unlink()
    before = listing(layout.root / "packs", layout.stubs)
    lock.acquire(layout).release()
    lock.acquire(layout).abandon()  # a kill
    report = repair(layout)
    assert bad(report) == {Code.STUBS_NO_ID, Code.PACK_HEADER}
    assert listing(layout.root / "packs", layout.stubs) == before
    held = lock.acquire(layout)
    assert held.unclean, "nothing was mended, and the next writer does not know"
    held.abandon()
    report = repair(layout, adopt_stubs=True)
    assert (bad(report), report.clean) == (set(), True)
    assert readable(layout) == "abc"
    layout.stub_store_id.write_text("0" * 32)
    assert repair(layout, adopt_stubs=True).clean
    assert (layout.quarantine / "store-id").read_text() == "0" * 32


def test_a_store_toml_that_cannot_be_derived_is_left(layout: Layout) -> None:
    for damage, words in (
        (lambda: other_sizes(layout, "b"), "do not agree"),
        (lambda: [path_of(layout, name).unlink() for name in "abc"], "no stub names"),
        (layout.stub_store_id.unlink, "does not name its store either"),
    ):
        damage()
        layout.format.unlink(missing_ok=True)
        report = repair(layout)
        assert words in by_code(report)[Code.STORE_TOML].message
        assert not layout.format.exists()


def test_what_is_in_the_way_of_writing_aside(layout: Layout) -> None:
    layout.format.unlink()
    os.mkfifo(store_layout.aside(layout.format))
    assert repair(layout).clean
    assert readable(layout) == "abc"


def test_snapshots_that_lost_bytes_are_moved_away_when_told_so(layout: Layout) -> None:
    (layout.stubs / "d").mkdir()
    path_of(layout, "b").rename(layout.stubs / "d" / "b")
    for turn in range(2):
        wrong = (layout.stubs / "d" / "b").read_bytes()
        if turn == 0:
            path = pack_of(layout, "d/b")
            flip(path, 5000)
            flip(path, 10)
        report = repair(layout, quarantine_snapshots=True)
        assert (report.clean, bad(report), report.snapshots) == (False, set(), 2)
        assert MISSING in bad(report, Outcome.MENDED)
        moved = layout.quarantine / ("stubs" if turn == 0 else "stubs.1") / "d" / "b"
        assert moved.read_bytes() == wrong
        assert stubs.attributes(os.fsencode(moved)).size == 4000
        assert repair(layout, quarantine_snapshots=True).clean
        (layout.stubs / "d" / "b").write_bytes(wrong)


def test_a_stub_that_is_moved_below_a_stub_that_was_moved(layout: Layout) -> None:
    for name in ("x", "x/y"):
        path = path_of(layout, name)
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.setxattr(path, stubs.SIZE, b"5")
        repair(layout)
    assert (layout.quarantine / "stubs" / "x").is_file()
    assert (layout.quarantine / "stubs.1" / "x" / "y").is_file()


def test_a_stub_tree_on_another_disk(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def across(source: bytes, target: Path) -> None:
        if b"/stubs/" in os.fsencode(source) and "/quarantine/" in str(target):
            raise OSError(errno.EXDEV, "another disk")
        rename(source, target)

    path = path_of(layout, "b")
    path.write_bytes(bytes(100))
    os.setxattr(path, stubs.LABEL + b"kind", b"chat")
    monkeypatch.setattr(os, "rename", across)
    repair(layout)
    assert not path.exists()
    moved = layout.quarantine / "stubs" / "b"
    assert moved.read_bytes() == bytes(100)
    assert stubs.attributes(os.fsencode(moved)).labels == {"kind": "chat"}


def test_a_header_is_rewritten_and_all_else_stays(layout: Layout) -> None:
    path = path_of(layout, "b")
    other_sizes(layout, "b")
    os.setxattr(path, stubs.LABEL + b"kind", b"chat")
    os.utime(path, ns=(1, 2))
    os.chmod(path, 0o640)
    repair(layout)
    status = path.stat()
    assert (status.st_mtime_ns, status.st_mode & 0o777) == (2, 0o640)
    assert stubs.attributes(os.fsencode(path)).labels == {"kind": "chat"}
    assert stubs.read_index(os.fsencode(path)).sizes == SIZES


def test_a_header_is_left_when_the_stub_could_not_be_read_with_another(layout: Layout) -> None:
    edit(layout.format, "max_size = 1024", "max_size = 300")
    path_of(layout, "a").unlink()
    path_of(layout, "c").unlink()
    assert bad(repair(layout)) == {Code.STUB_HEADER}
    assert readable(layout) == "b"


def test_what_must_be_moved_by_hand_first(layout: Layout) -> None:
    for path in (layout.quarantine, layout.lock):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        assert bad(check_store(layout)) == {Code.IN_THE_WAY}
        with pytest.raises(KvtoolError, match="is not what must be there"):
            repair(layout)
        path.unlink()


def test_what_is_refused_changes_nothing(layout: Layout, tmp_path: Path) -> None:
    nothing = layout_in(tmp_path / "nothing")
    nothing.root.mkdir(parents=True)
    edit(layout.format, "version = 1", "version = 2")
    flip(pack_of_any(layout), 10)
    before = listing(tmp_path)
    for wanted, it in ((NoStore, nothing), (StoreTooNew, layout)):
        for command in (check_store, repair):
            with pytest.raises(wanted):
                command(it)
    assert listing(tmp_path) == before
    edit(layout.format, "version = 2", "version = 1")
    held = lock.acquire(layout)
    before = listing(tmp_path)
    with pytest.raises(StoreLocked, match="is in use"):
        repair(layout)
    assert listing(tmp_path) == before
    held.release()


def pack_of_any(layout: Layout) -> Path:
    return pack_paths(layout)[0]


def test_a_full_disk_is_no_damage_of_the_catalog(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    content = layout.catalog.read_bytes()

    def fails(path: Path, *, writable: bool) -> None:
        raise OSError(errno.ENOSPC, "catalog: disk I/O error", str(path))

    monkeypatch.setattr("kvtool.store.check_packs.Catalog", fails)
    for work in (check_store, repair):
        with pytest.raises(OSError, match="disk I/O error"):
            work(layout)
    assert layout.catalog.read_bytes() == content
    monkeypatch.undo()
    assert readable(layout) == "abc"
