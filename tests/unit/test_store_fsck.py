"""fsck: every kind of finding is found, and mended or left as docs/fsck.md says."""

import errno
import os
import re
import shutil
import socket
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kvtool.core import index as chunk_index
from kvtool.core import pack
from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.errors import KvtoolError, NoStore, StoreLocked, StoreTooNew
from kvtool.store import catalog, check, lock, packs, recover, stubs
from kvtool.store import layout as store_layout
from kvtool.store.check import check_store
from kvtool.store.findings import KINDS, Code, Finding, Outcome, Report, Severity
from kvtool.store.layout import Layout
from kvtool.store.look import Look
from kvtool.store.repair import repair
from kvtool.store.store import Store
from tests.stores import SIZES, flip, layout_in, listing, pack_paths, read, save, stub
from tests.synth import random_bytes

FILES = {name: random_bytes(4000, seed) for seed, name in enumerate("abc")}
DOCS = Path(__file__).parents[2] / "docs" / "fsck.md"
ExpectLog = Callable[[str], None]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with three snapshots, each with a pack of its own."""
    layout = layout_in(tmp_path)
    with recover.writer(layout, sync=False, create=SIZES) as (store, _, _):
        for name, data in FILES.items():
            save(store, data, name)
    return layout


@contextmanager
def opened(layout: Layout) -> Iterator[Store]:
    store = Store.open(layout, writable=True)
    try:
        yield store
    finally:
        store.close()


def sql(layout: Layout, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(layout.catalog)) as db, db:
        db.execute(statement, values)


def pack_of(layout: Layout, name: str) -> Path:
    with opened(layout) as store:
        index = stubs.read_index(stub(store, name))
        return store.packs.path(store.catalog.place(index).packs[0])


def path_of(layout: Layout, name: str) -> Path:
    return layout.stubs / name


def readable(layout: Layout) -> str:
    """The names of the snapshots that can be read, each with its bytes."""
    names = ""
    with opened(layout) as store:
        for name, data in FILES.items():
            try:
                assert read(store, stubs.read_index(stub(store, name))) == data
            except (KvtoolError, OSError):
                continue
            names += name
    return names


def bad(report: Report, outcome: Outcome = Outcome.LEFT) -> set[Code]:
    """The kinds of what is worse than information."""
    return {
        found.code
        for found in report.findings
        if found.severity is not Severity.INFO and found.outcome is outcome
    }


def by_code(report: Report) -> dict[Code, Finding]:
    return {found.code: found for found in report.findings}


def unchanged(layout: Layout) -> dict[str, object]:
    """What a check must not change: all but the catalog, whose log comes and goes with readers."""
    seen = listing(layout.root, layout.stubs)
    return {path: what for path, what in seen.items() if not path.startswith(str(layout.catalog))}


# -- damages


def another(path: Path, how: str) -> None:
    """Puts something else in the place of a file."""
    if path.exists():
        path.rename(path.with_name("taken"))
    {
        "directory": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(path.name),
        "garbage": lambda: path.write_bytes(random_bytes(5000)),
        "empty": path.touch,
        "gone": lambda: None,
    }[how]()
    path.with_name("taken").unlink(missing_ok=True)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def put_index(layout: Layout, name: str, index: Index) -> None:
    with opened(layout) as store:
        stubs.replace(stubs.prepare(layout, index, sync=False), stub(store, name))


def other_sizes(layout: Layout, *names: str) -> None:
    for name in names:
        index = stubs.read_index(os.fsencode(path_of(layout, name)))
        put_index(layout, name, replace(index, sizes=ChunkSizes(32, 128, 2048)))


def wrong_lengths(layout: Layout) -> None:
    index = stubs.read_index(os.fsencode(path_of(layout, "b")))
    ends = array("Q", index.ends)
    ends[-1] -= 1  # the size attribute is right, so it must stay
    path_of(layout, "b").write_bytes(chunk_index.encode(replace(index, ends=ends)))


def new_footer(path: Path, change: Callable[[list[pack.Entry]], None]) -> None:
    """A footer with a right checksum that makes no sense."""
    _, size, entries = packs.read_entries(path)
    end = entries[-1].offset + entries[-1].length
    change(entries)
    path.write_bytes(path.read_bytes()[:end] + pack.footer(entries, end))
    assert path.stat().st_size == size


def overlap(entries: list[pack.Entry]) -> None:
    entries[1] = entries[1]._replace(offset=entries[1].offset - 1)


def outside(entries: list[pack.Entry]) -> None:
    entries[1] = entries[1]._replace(length=1 << 40)


def stale_socket(layout: Layout) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(layout.control))


def incomplete(layout: Layout) -> None:
    stubs.create(layout, os.fsencode(path_of(layout, "half")), 0o600, None, None)


def swap_packs(layout: Layout) -> None:
    first, second = pack_of(layout, "a"), pack_of(layout, "b")
    first.rename(first.with_name("aside"))
    second.rename(first)
    first.with_name("aside").rename(second)


def forget(layout: Layout, *, damaged: bool) -> None:
    path = pack_of(layout, "b")
    entry = packs.read_entries(path)[2][0]
    with opened(layout) as store:
        store.catalog.forget_chunk(entry.id)
    if damaged:
        flip(path, entry.offset)


def unknown_pack(layout: Layout) -> None:
    with opened(layout) as store:
        store.catalog.drop_packs([store.catalog.packs()[1].key])


def set_attribute(layout: Layout, name: bytes, value: bytes) -> None:
    os.setxattr(path_of(layout, "b"), name, value)


def move_chunk(layout: Layout) -> None:
    """Row and footer do not agree in which pack a chunk is."""
    sql(layout, "UPDATE chunk SET pack = 1 WHERE id = (SELECT id FROM chunk WHERE pack = 2 LIMIT 1)")


def flip_row(layout: Layout) -> None:
    """The rows of a page are in no order any more."""
    chunk_id = packs.read_entries(pack_of(layout, "b"))[2][0].id
    flip(layout.catalog, layout.catalog.read_bytes().index(chunk_id), 0x80)


def orphan(layout: Layout) -> None:
    with opened(layout) as store:
        save(store, random_bytes(2000, 9))


def special_files(layout: Layout) -> None:
    path_of(layout, "link").symlink_to("a")
    path_of(layout, "loop").symlink_to("loop")
    os.mkfifo(path_of(layout, "pipe"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path_of(layout, "socket")))


class Case(NamedTuple):
    """A damage; what is found but for losses of single snapshots, what a repair leaves, what is readable."""

    damage: Callable[[Layout], object]
    found: set[Code]
    left: set[Code] = set()  # noqa: RUF012  (never changed)
    readable: str = "abc"


MISSING = Code.STUB_CHUNK_MISSING
CASES = {
    **{
        f"store.toml {how}": Case(lambda it, how=how: another(it.format, how), {Code.STORE_TOML})
        for how in ("gone", "garbage", "empty", "directory", "pipe", "loop")
    },
    "store.toml of other sizes": Case(
        lambda it: edit(it.format, "max_size = 1024", "max_size = 4096"), {Code.STORE_TOML_SIZES}
    ),
    "stub tree absent": Case(
        lambda it: it.stubs.rename(it.stubs.with_name("unmounted")),
        {Code.STUBS_ABSENT},
        {Code.STUBS_ABSENT},
    ),
    **{
        f"store-id {how}": Case(
            lambda it, how=how: another(it.stub_store_id, how), {Code.STUBS_NO_ID}, {Code.STUBS_NO_ID}
        )
        for how in ("gone", "garbage", "empty", "directory", "pipe", "loop")
    },
    "another store's stub tree": Case(
        lambda it: it.stub_store_id.write_text("0" * 32), {Code.STUBS_OTHER_ID}, {Code.STUBS_OTHER_ID}
    ),
    "incoming gone": Case(lambda it: it.incoming.rmdir(), {Code.FOLDER_LOST}),
    "staging a file": Case(lambda it: (it.staging.rmdir(), it.staging.touch()), {Code.FOLDER_LOST}),
    "packs a link to itself": Case(
        lambda it: (it.packs.rename(it.root / "old"), it.packs.symlink_to("packs")),
        {Code.FOLDER_LOST, Code.FOREIGN, Code.CATALOG_PACK_GONE, MISSING},
        {MISSING},
        "",
    ),
    "log a directory": Case(lambda it: it.log.mkdir(), {Code.IN_THE_WAY}, {Code.IN_THE_WAY}),
    "left in incoming": Case(lambda it: (it.incoming / "x.pack").touch(), {Code.LEFTOVER}),
    "folder left in staging": Case(lambda it: (it.staging / "x" / "y").mkdir(parents=True), {Code.LEFTOVER}),
    "stub aside": Case(lambda it: (it.stub_private / "new-12").touch(), {Code.LEFTOVER}),
    "format aside": Case(lambda it: store_layout.write_aside(it.format, "x"), {Code.LEFTOVER}),
    "socket": Case(stale_socket, {Code.LEFTOVER}),
    "foreign": Case(lambda it: (it.root / "README").touch(), {Code.FOREIGN}),
    "foreign pack": Case(lambda it: (it.packs / "00" / "x.pack").mkdir(parents=True), {Code.FOREIGN}),
    "foreign beside store-id": Case(lambda it: (it.stub_private / "x").touch(), {Code.FOREIGN}),
    "pack header": Case(lambda it: flip(pack_of(it, "b"), 4000), {Code.PACK_HEADER}),
    "packs swapped": Case(swap_packs, {Code.PACK_NAME}),
    "pack renamed": Case(
        lambda it: pack_of(it, "b").rename(it.pack(b"\0" * 16)) if not (it.packs / "00").mkdir() else None,
        {Code.PACK_NAME, Code.CATALOG_PACK_GONE},
    ),
    "pack cut": Case(
        lambda it: os.truncate(p := pack_of(it, "b"), p.stat().st_size - 1), {Code.PACK_NO_TRAILER}
    ),
    "pack cut in the data": Case(
        lambda it: os.truncate(pack_of(it, "b"), 6000), {Code.PACK_NO_TRAILER, MISSING}, {MISSING}, "ac"
    ),
    "pack footer": Case(
        lambda it: flip(p := pack_of(it, "b"), p.stat().st_size - 40), {Code.PACK_FOOTER}
    ),
    "pack entries that overlap": Case(
        lambda it: new_footer(pack_of(it, "b"), overlap), {Code.PACK_ENTRIES}
    ),
    "pack entries outside": Case(lambda it: new_footer(pack_of(it, "b"), outside), {Code.PACK_ENTRIES}),
    "catalog gone": Case(lambda it: catalog.discard(it.catalog), {Code.CATALOG_LOST}),
    **{
        f"catalog {how}": Case(lambda it, how=how: another(it.catalog, how), {Code.CATALOG_DAMAGED})
        for how in ("garbage", "empty", "directory", "pipe", "loop")
    },
    "catalog known to be damaged, and a pack cut": Case(
        lambda it: (
            it.catalog.with_name("catalog.sqlite3-damaged").touch(),
            os.truncate(p := pack_of(it, "b"), p.stat().st_size - 1),
        ),
        {Code.CATALOG_DAMAGED, Code.PACK_NO_TRAILER},
    ),
    "catalog known to be damaged, and a pack gone": Case(
        lambda it: (
            it.catalog.with_name("catalog.sqlite3-damaged").touch(),
            pack_of(it, "b").unlink(),
            sql(it, "UPDATE chunk SET pack = 1 WHERE pack = 2"),
        ),
        {Code.CATALOG_DAMAGED, MISSING},
        {MISSING},
        "ac",
    ),
    "chunk id in the catalog": Case(flip_row, {Code.CATALOG_DAMAGED}),
    "catalog's log a pipe": Case(
        lambda it: another(it.catalog.with_name("catalog.sqlite3-wal"), "pipe"), {Code.CATALOG_DAMAGED}
    ),
    "catalog known to be damaged": Case(
        lambda it: it.catalog.with_name("catalog.sqlite3-damaged").touch(), {Code.CATALOG_DAMAGED}
    ),
    "catalog's page": Case(
        lambda it: it.catalog.write_bytes(it.catalog.read_bytes()[:-4096] + bytes(4096)),
        {Code.CATALOG_DAMAGED},
    ),
    "catalog without a table": Case(lambda it: sql(it, "DROP TABLE chunk"), {Code.CATALOG_DAMAGED}),
    "checksum a text": Case(lambda it: sql(it, "UPDATE chunk SET checksum = 'x'"), {Code.CATALOG_DAMAGED}),
    "pack id a number": Case(
        lambda it: sql(it, "UPDATE pack SET id = 5 WHERE key = 1"), {Code.CATALOG_DAMAGED}
    ),
    "pack unknown": Case(unknown_pack, {Code.CATALOG_PACK_UNKNOWN}),
    "pack gone": Case(
        lambda it: pack_of(it, "b").unlink(), {Code.CATALOG_PACK_GONE, MISSING}, {MISSING}, "ac"
    ),
    "pack a pipe": Case(
        lambda it: another(pack_of(it, "b"), "pipe"),
        {Code.CATALOG_PACK_GONE, Code.FOREIGN, MISSING},
        {MISSING},
        "ac",
    ),
    "pack's size": Case(
        lambda it: sql(it, "UPDATE pack SET size = 5 WHERE key = 2"), {Code.CATALOG_PACK_SIZE}
    ),
    "chunk of no pack": Case(
        lambda it: sql(it, "INSERT INTO chunk VALUES (?, 2, 4096, 5, 6)", b"x" * 32),
        {Code.CATALOG_CHUNK_UNFOUNDED},
    ),
    "chunk of an unknown pack": Case(
        lambda it: sql(it, "UPDATE chunk SET pack = 77 WHERE pack = 2"), {Code.CATALOG_CHUNK_UNFOUNDED}
    ),
    "chunk in the wrong pack": Case(move_chunk, {Code.CATALOG_CHUNK_UNFOUNDED}),
    "chunks of a pack that is gone in another": Case(
        lambda it: (pack_of(it, "b").unlink(), sql(it, "UPDATE chunk SET pack = 1 WHERE pack = 2")),
        {Code.CATALOG_PACK_GONE, Code.CATALOG_CHUNK_UNFOUNDED, MISSING},
        {MISSING},
        "ac",
    ),
    "chunk elsewhere": Case(
        lambda it: sql(it, "UPDATE chunk SET offset = 5000 WHERE pack = 2"), {Code.CATALOG_CHUNK_DIFFERS}
    ),
    "chunk forgotten": Case(lambda it: forget(it, damaged=False), {Code.CATALOG_CHUNK_UNKNOWN}),
    "chunk damaged and forgotten": Case(
        lambda it: forget(it, damaged=True), {Code.CATALOG_CHUNK_UNKNOWN}, {MISSING}, "ac"
    ),
    "stub damaged": Case(lambda it: flip(path_of(it, "b"), 7), {Code.STUB_DAMAGED}, set(), "ac"),
    "stub zeroed": Case(
        lambda it: path_of(it, "b").write_bytes(bytes(500)), {Code.STUB_DAMAGED}, set(), "ac"
    ),
    "stub without attributes cut": Case(
        lambda it: (it.stubs / "copy").write_bytes(path_of(it, "b").read_bytes()[:-1]), {Code.STUB_DAMAGED}
    ),
    "foreign file among the stubs": Case(
        lambda it: (it.stubs / "x").write_text("x"), {Code.STUB_FOREIGN}, {Code.STUB_FOREIGN}
    ),
    "links and special files": Case(special_files, {Code.STUB_FOREIGN}, {Code.STUB_FOREIGN}),
    "incomplete": Case(incomplete, {Code.STUB_INCOMPLETE}),
    "size attribute": Case(lambda it: set_attribute(it, stubs.SIZE, b"5"), {Code.STUB_SIZE}),
    "no size attribute": Case(lambda it: os.removexattr(path_of(it, "b"), stubs.SIZE), {Code.STUB_SIZE}),
    "header of other sizes": Case(lambda it: other_sizes(it, "b"), {Code.STUB_HEADER}),
    "headers of other sizes": Case(lambda it: other_sizes(it, "a", "b", "c"), {Code.STORE_TOML_SIZES}),
    "uses": Case(lambda it: set_attribute(it, stubs.USES, b"many"), {Code.STUB_ATTRIBUTE}),
    "created": Case(lambda it: set_attribute(it, stubs.CREATED, b"\xff"), {Code.STUB_ATTRIBUTE}),
    "new attribute": Case(
        lambda it: set_attribute(it, b"user.kvtool.new", b"x"), {Code.STUB_ATTRIBUTE_UNKNOWN}
    ),
    "id in a stub": Case(lambda it: flip(path_of(it, "b"), 75), {MISSING}, {MISSING}, "ac"),
    "lengths in a stub": Case(wrong_lengths, {Code.STUB_CHUNK_LENGTH}, {Code.STUB_CHUNK_LENGTH}, "ac"),
    "orphan": Case(orphan, {Code.ORPHAN}),
}  # fmt: skip


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
    os.close(lock.acquire(layout).fd)  # a kill
    report = repair(layout)
    assert bad(report) == {Code.STUBS_NO_ID, Code.PACK_HEADER}
    assert listing(layout.root / "packs", layout.stubs) == before
    held = lock.acquire(layout)
    assert held.unclean, "nothing was mended, and the next writer does not know"
    os.close(held.fd)
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

    def starting(it: Layout, *, in_use: bool) -> Look:
        (it.incoming / "x.pack").touch()
        look = look_at(it, in_use=in_use)
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
