"""Stubs: what they say of a snapshot, what survives a rewrite, and what a crash leaves."""

import errno
import os
import stat
import time
from array import array
from pathlib import Path

import pytest

from kvtool.core import index as chunk_index
from kvtool.core.index import Index
from kvtool.errors import IndexDamaged
from kvtool.store import stubs
from kvtool.store.store import Store
from tests.stores import SIZES, listing, stub

ONE = Index(SIZES).extended(array("Q", [100, 70]), b"a" * 32 + b"b" * 32)
DAY = 86_400_000_000_000


def put(store: Store, name: str, index: Index = ONE, mtime_ns: int | None = None) -> bytes:
    path = stub(store, name)
    stubs.replace(stubs.prepare(store.layout, index, sync=False), path, mtime_ns)
    return path


def private(store: Store) -> list[str]:
    return sorted(path.name for path in store.layout.stub_private.iterdir())


def test_a_stub_says_what_it_stands_for(store: Store) -> None:
    path = put(store, "a")
    assert list(stubs.read_index(path).chunks()) == list(ONE.chunks())
    found = stubs.attributes(path)
    assert (found.size, found.uses, found.last_used, found.labels, found.incomplete) == (
        170,
        0,
        "",
        {},
        False,
    )
    time.strptime(found.created, "%Y-%m-%dT%H:%M:%SZ")
    assert private(store) == ["store-id"]


def test_attributes_that_make_no_sense_are_zeros(store: Store) -> None:
    path = put(store, "a")
    os.setxattr(path, stubs.SIZE, b"-5")
    os.setxattr(path, stubs.USES, b"many")
    os.setxattr(path, stubs.CREATED, b"\xff")
    os.setxattr(path, stubs.LABEL + b"\xfe", b"\xfd")
    found = stubs.attributes(path)
    assert (found.size, found.uses, found.created, found.labels) == (0, 0, "�", {"\udcfe": "\udcfd"})
    stubs.count_use(path)
    assert stubs.attributes(path).uses == 1


def test_uses_count_up(store: Store) -> None:
    path = put(store, "a")
    for uses in (1, 2, 3):
        stubs.count_use(path)
        assert stubs.attributes(path).uses == uses
    assert stubs.attributes(path).last_used


def test_a_rewrite_keeps_what_belongs_to_the_name(store: Store) -> None:
    path = put(store, "a")
    os.chown(path, 12, 34)
    Path(os.fsdecode(path)).chmod(0o4751)
    os.setxattr(path, stubs.LABEL + b"keep", b"yes")
    os.setxattr(path, stubs.CREATED, b"2001-01-01T00:00:00Z")
    os.setxattr(path, b"user.other", b"kept too")
    stubs.count_use(path)
    os.utime(path, ns=(5 * DAY, 6 * DAY))
    before = stubs.get_all(path)
    put(store, "a", Index(SIZES), mtime_ns=7 * DAY)
    status = os.stat(path)
    assert (status.st_mode, status.st_uid, status.st_gid) == (stat.S_IFREG | 0o4751, 12, 34)
    assert (status.st_atime_ns, status.st_mtime_ns) == (5 * DAY, 7 * DAY)
    assert stubs.get_all(path) == before | {stubs.SIZE: b"0"}
    assert len(stubs.read_index(path)) == 0


def test_a_rewrite_is_no_change_of_the_directory_and_a_new_name_is(store: Store) -> None:
    folder = store.layout.stubs / "d"
    folder.mkdir()
    os.utime(folder, ns=(DAY, DAY))
    put(store, "d/a")
    assert folder.stat().st_mtime_ns != DAY
    os.utime(folder, ns=(DAY, 2 * DAY))
    put(store, "d/a")
    assert (folder.stat().st_atime_ns, folder.stat().st_mtime_ns) == (DAY, 2 * DAY)


def test_a_replacement_that_fails_leaves_the_old_stub_and_nothing_aside(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(store, "a")
    for call in ("rename", "utime", "setxattr", "chmod"):
        before = listing(store.layout.stubs)
        aside = stubs.prepare(store.layout, Index(SIZES), sync=False)

        def fails(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            with pytest.raises(OSError, match="full"):
                stubs.replace(aside, path)
        assert listing(store.layout.stubs) == before


@pytest.mark.parametrize("call", ["setxattr", "fsync"])
def test_a_stub_that_cannot_be_written_leaves_nothing_aside(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(OSError, match="full"):
            stubs.prepare(store.layout, ONE, sync=True)
        if call == "setxattr":
            with pytest.raises(OSError, match="full"):
                stubs.create(store.layout, stub(store, "a"), 0o600, None, None)
    assert private(store) == ["store-id"]
    assert not os.path.exists(stub(store, "a"))


def test_create_makes_an_incomplete_stub_with_mode_and_owner_whatever_the_umask(store: Store) -> None:
    path = stub(store, "a")
    old = os.umask(0o777)
    try:
        stubs.create(store.layout, path, 0o666, 12, 34)
    finally:
        os.umask(old)
    status = os.stat(path)
    assert (status.st_mode, status.st_uid, status.st_gid) == (stat.S_IFREG | 0o666, 12, 34)
    assert stubs.attributes(path).incomplete
    with pytest.raises(FileExistsError):
        stubs.create(store.layout, path, 0o600, None, None)
    os.symlink("nowhere", stub(store, "link"))
    with pytest.raises(FileExistsError):
        stubs.create(store.layout, stub(store, "link"), 0o600, None, None)
    put(store, "a")
    assert not stubs.attributes(path).incomplete
    assert os.stat(path).st_mode == stat.S_IFREG | 0o666


def test_who_takes_a_name_over_inherits_labels_uses_and_the_earlier_date(store: Store) -> None:
    old, new = put(store, "old"), put(store, "new")
    for name, value in {b"kept": b"old", b"both": b"old"}.items():
        os.setxattr(old, stubs.LABEL + name, value)
    os.setxattr(new, stubs.LABEL + b"both", b"new")
    os.setxattr(old, stubs.CREATED, b"2001-01-01T00:00:00Z")
    os.setxattr(old, b"user.other", b"not a label")
    for path, uses in ((old, 2), (new, 3)):
        for _ in range(uses):
            stubs.count_use(path)
    os.setxattr(old, stubs.LAST_USED, b"2999-01-01T00:00:00Z")
    stubs.inherit(new, old)
    found = stubs.attributes(new)
    assert (found.uses, found.created, found.last_used) == (5, "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z")
    assert found.labels == {"kept": "old", "both": "new"}
    assert stubs.get(new, b"user.other") is None


def test_inheriting_from_a_newer_one_keeps_the_own_dates(store: Store) -> None:
    old, new = put(store, "old"), put(store, "new")
    os.setxattr(new, stubs.CREATED, b"2001-01-01T00:00:00Z")
    stubs.count_use(new)
    used = stubs.attributes(new).last_used
    stubs.inherit(new, old)
    found = stubs.attributes(new)
    assert (found.created, found.uses, found.last_used) == ("2001-01-01T00:00:00Z", 1, used)


@pytest.mark.parametrize("kind", ["link", "broken link", "fifo", "directory", "text", "empty", "cut", "long"])
def test_what_is_no_stub_is_refused_and_never_followed(store: Store, kind: str) -> None:
    path, real = stub(store, "a"), put(store, "real")
    encoded = chunk_index.encode(ONE)
    match kind:
        case "link":
            os.symlink(real, path)
        case "broken link":
            os.symlink("nowhere", path)
        case "fifo":
            os.mkfifo(path)
        case "directory":
            os.mkdir(path)
        case _:
            content = {"text": b"hello" * 40, "empty": b"", "cut": encoded[:-1], "long": encoded + bytes(40)}
            Path(os.fsdecode(path)).write_bytes(content[kind])
    with pytest.raises((IndexDamaged, IsADirectoryError)):
        stubs.read_index(path)


def test_a_huge_foreign_file_is_refused_without_reading_it(store: Store) -> None:
    path = stub(store, "huge")
    with open(path, "wb") as file:
        file.truncate((1 << 43) + 104)  # 8 TiB of nothing, and a size that an index could have
    with pytest.raises(IndexDamaged):
        stubs.read_index(path)


def test_a_walk_shows_all_files_but_the_private_ones_and_follows_no_link(store: Store) -> None:
    (store.layout.stubs / "d" / ".kvtool").mkdir(parents=True)
    for name in ("b", "a", "d/c", "d/.kvtool/e"):
        put(store, name)
    os.symlink("/", stub(store, "d/root"))
    os.mkfifo(stub(store, "fifo"))
    found = [os.path.relpath(path, os.fsencode(store.layout.stubs)) for path in stubs.walk(store.layout)]
    assert sorted(found) == [b"a", b"b", b"d/.kvtool/e", b"d/c", b"d/root", b"fifo"]


def test_a_directory_that_goes_during_a_walk_is_passed_over(store: Store) -> None:
    for name in ("gone", "kept"):
        (store.layout.stubs / name).mkdir()
    put(store, "kept/a")
    put(store, "b")
    walk = stubs.walk(store.layout)
    assert next(walk) == stub(store, "b")
    (store.layout.stubs / "gone").rmdir()
    assert list(walk) == [stub(store, "kept/a")]


def test_a_walk_of_an_absent_tree_fails(store: Store) -> None:
    store.layout.stubs.rename(store.layout.stubs.with_name("away"))
    with pytest.raises(FileNotFoundError):
        list(stubs.walk(store.layout))


def test_leftovers_are_dropped_and_nothing_else(store: Store) -> None:
    put(store, "kept")
    (store.layout.stubs / "d").mkdir()
    os.symlink("kept", stub(store, "link"))
    Path(os.fsdecode(stub(store, "foreign"))).write_text("x")
    before = listing(store.layout.stubs)
    stubs.prepare(store.layout, ONE, sync=False)
    stubs.create(store.layout, stub(store, "d/half"), 0o600, None, None)
    assert stubs.drop_leftovers(store.layout) == 2
    assert stubs.drop_leftovers(store.layout) == 0
    assert listing(store.layout.stubs) == before
