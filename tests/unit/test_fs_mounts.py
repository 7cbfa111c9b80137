"""Where a mount may be put, and what the kernel's table says of those that are there."""

import os
from pathlib import Path

import pytest

from kvtool.errors import KvtoolError, UsageError
from kvtool.store import mounts
from kvtool.store.layout import Layout
from tests.stores import listing

ROOT = b"22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"


def line(mountpoint: bytes, source: bytes, device: bytes = b"0:45", kind: bytes = b"fuse.kvtool") -> bytes:
    return b"36 22 %s / %s rw,nosuid shared:2 master:1 - %s %s rw,user_id=0\n" % (
        device,
        mountpoint,
        kind,
        source,
    )


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> "list[bytes]":
    """The lines of /proc/self/mountinfo."""
    lines = [ROOT]
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        return b"".join(lines) if str(path) == "/proc/self/mountinfo" else read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    return lines


@pytest.mark.parametrize(
    ("field", "path"),
    [
        (b"/mnt/plain", b"/mnt/plain"),
        (rb"/mnt/a\040b\011c\012d\134e\043f", b"/mnt/a b\tc\nd\\e#f"),
        (rb"/mnt/\134040", rb"/mnt/\040"),
        ("/mnt/größe-数".encode(), "/mnt/größe-数".encode()),
        (b"/mnt/\xff\xfe\\040x", b"/mnt/\xff\xfe x"),
        (b"/mnt/car\rriage\x0b", b"/mnt/car\rriage\x0b"),
        (b"/mnt/dash-dash", b"/mnt/dash-dash"),
    ],
)
def test_any_mountpoint_is_read(table: list[bytes], field: bytes, path: bytes) -> None:
    table.append(line(field, b"kvtool:/store"))
    [found] = mounts.mounts()
    assert os.fsencode(found.mountpoint) == path
    assert (found.store, found.device) == (Path("/store"), "0:45")


@pytest.mark.parametrize(
    "store",
    [
        b"/plain",
        b"/with a blank",
        b"/co,mma",
        "/größe".encode(),
        b"/\xff\xfe",
        rb"/back\slash",
        b"/per%20cent",
    ],
)
def test_any_store_path_comes_back_from_its_name_in_the_table(table: list[bytes], store: bytes) -> None:
    name = mounts.fsname(Layout(Path(os.fsdecode(store)), Path("/stubs")))
    assert name.isascii()
    assert not set(name) & set(", \\\n")
    table.append(line(b"/mnt", name.encode()))
    [found] = mounts.mounts()
    assert os.fsencode(found.store) == store


def test_other_mounts_are_no_kvtool_mounts(table: list[bytes]) -> None:
    table += [
        line(b"/a", b"sshfs:/store", kind=b"fuse.sshfs"),
        line(b"/b", b"kvtool:/store", kind=b"nfs4"),
        line(b"/c", b"none", kind=b"tmpfs"),
        b"40 22 0:50 / /d rw - fuse  rw\n",  # an empty source
    ]
    assert list(mounts.mounts()) == []


def test_of_two_mounts_at_one_place_the_upper_is_found(table: list[bytes]) -> None:
    table += [line(b"/mnt", b"kvtool:/one", b"0:1"), line(b"/mnt", b"kvtool:/two", b"0:2")]
    found = mounts.find(Path("/mnt"))
    assert found is not None
    assert (found.store, found.device) == (Path("/two"), "0:2")
    assert mounts.find(Path("/mnt/x")) is None


def test_a_mount_is_found_by_another_way_to_its_place(table: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "way").symlink_to(".")
    table.append(line(os.fsencode(tmp_path / "real"), b"kvtool:/store"))
    for path in ("real", "link", "way/real", "real/../real", "./way/way/link"):
        assert mounts.find(tmp_path / path) is not None, path


def test_a_mount_is_found_without_touching_it(
    table: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "mnt"
    place.mkdir()
    table.append(line(os.fsencode(place), b"kvtool:/store"))
    lstat = os.lstat

    def hung(path: object, *rest: object, **options: object) -> os.stat_result:
        assert os.fspath(path) != str(place), "a hung mount would hang us"  # type: ignore[call-overload]
        return lstat(path, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", hung)
    monkeypatch.setattr(os, "stat", hung)
    assert mounts.find(place) is not None


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    for name in ("store/packs/00", "stubs/d", "mnt", "other"):
        (tmp_path / name).mkdir(parents=True)
    return Layout(tmp_path / "store", tmp_path / "stubs")


def test_an_empty_directory_of_its_own_is_fine_by_any_way(layout: Layout) -> None:
    root = layout.root.parent
    (root / "link").symlink_to("mnt")
    for name in ("mnt", "link", "store/../mnt", "link/."):
        assert mounts.check(root / name, layout) == root / "mnt"


@pytest.mark.parametrize(
    ("place", "match"),
    [
        ("absent", "does not exist; make it: mkdir -p"),
        ("absent/deep", "does not exist"),
        ("file", "is not a directory"),
        ("file/x", "lies below a file"),
        ("dangling", "does not exist"),
        ("full", "is not empty"),
        ("store", "and the store .* overlap"),
        ("store/packs/00", "and the store .* overlap"),
        (".", "and the store .* overlap"),
        ("stubs", "and the stub tree .* overlap"),
        ("stubs/d", "and the stub tree .* overlap"),
        ("to-store", "and the store .* overlap"),
        ("to-packs", "and the store .* overlap"),
        ("to-stubs", "and the stub tree .* overlap"),
        ("way/stubs/d", "and the stub tree .* overlap"),
    ],
)
def test_what_is_in_the_way_is_named_and_nothing_changes(layout: Layout, place: str, match: str) -> None:
    root = layout.root.parent
    (root / "file").write_text("x")
    (root / "full").mkdir()
    (root / "full" / "x").touch()
    for name, target in {
        "dangling": "absent",
        "to-store": "store",
        "to-packs": "store/packs/00",
        "to-stubs": "stubs",
        "way": ".",
    }.items():
        (root / name).symlink_to(target)
    before = listing(root)
    with pytest.raises(UsageError, match=match):
        mounts.check(root / place, layout)
    assert listing(root) == before


@pytest.mark.parametrize("which", ["store", "stubs"])
@pytest.mark.parametrize("target", ["mnt", "mnt/inner", "."])
def test_a_store_or_stub_tree_named_by_a_link_overlaps_too(layout: Layout, which: str, target: str) -> None:
    root = layout.root.parent
    (root / "link").symlink_to(target)
    named = Layout(root / "link", layout.stubs) if which == "store" else Layout(layout.root, root / "link")
    with pytest.raises(UsageError, match="overlap"):
        mounts.check(root / "mnt", named)


def test_stubs_that_are_not_there_yet_overlap_too(layout: Layout) -> None:
    root = layout.root.parent
    with pytest.raises(UsageError, match="stub tree"):
        mounts.check(root / "mnt", Layout(layout.root, root / "mnt" / "new" / "stubs"))


def test_names_that_begin_alike_do_not_overlap(layout: Layout) -> None:
    root = layout.root.parent
    (root / "store2").mkdir()
    assert mounts.check(root / "store2", layout) == root / "store2"


@pytest.mark.parametrize(("exists", "match"), [(False, "/dev/fuse does not exist"), (True, "no permission")])
def test_without_fuse_it_says_so(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, exists: bool, match: str
) -> None:
    known = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: exists if path == "/dev/fuse" else known(path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(KvtoolError, match=match) as caught:
        mounts.check(layout.root.parent / "mnt", layout)
    assert caught.value.hint


def test_who_may_not_let_others_in_learns_which_line_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "fuse.conf"
    monkeypatch.setattr(mounts, "_FUSE_CONF", conf)
    mounts.check_allow_other()  # root may in any case
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for text in (None, "", "#user_allow_other\nmount_max = 3\n", "no_user_allow_other\n"):
        if text is not None:
            conf.write_text(text)
        with pytest.raises(
            UsageError, match=r"mount.allow_other: .*fuse.conf does not have the line"
        ) as caught:
            mounts.check_allow_other()
        assert (
            caught.value.hint
            == f"as root: echo user_allow_other >> {conf}; or set mount.allow_other to false"
        )
    conf.write_text("mount_max = 3\n user_allow_other \n")
    mounts.check_allow_other()
