"""Every kind of damage that fsck can find, as a case: how it is done, what is found, and what is left."""

import os
import socket
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kvtool.core import index as chunk_index
from kvtool.core import pack
from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.store import catalog_files, packs, stubs
from kvtool.store import layout as store_layout
from kvtool.store.findings import Code, Finding, Outcome, Report, Severity
from kvtool.store.layout import Layout
from tests.stores import flip, listing, opened, save, stub
from tests.synth import random_bytes
from tests.three_snapshots import pack_of


def sql(layout: Layout, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(layout.catalog)) as db, db:
        db.execute(statement, values)


def path_of(layout: Layout, name: str) -> Path:
    return layout.stubs / name


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
    "catalog gone": Case(lambda it: catalog_files.discard(it.catalog), {Code.CATALOG_LOST}),
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
