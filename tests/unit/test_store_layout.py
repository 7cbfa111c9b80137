"""A store is made only where nothing is in its way, and opened only with its own stub tree."""

from pathlib import Path

import pytest

from kvtool.errors import NoStore, StoreFormatError, UsageError
from kvtool.store import format as store_format
from kvtool.store import layout as store_layout
from kvtool.store.layout import Layout
from tests.stores import SIZES, layout_in, listing


def made(layout: Layout) -> Layout:
    layout.root.mkdir(parents=True, exist_ok=True)
    store_layout.open_or_create(layout, SIZES)
    return layout


def test_a_new_store_and_its_stub_tree_know_each_other(tmp_path: Path) -> None:
    layout = made(layout_in(tmp_path))
    fmt = store_layout.open_existing(layout)
    assert layout.stub_store_id.read_text().strip() == fmt.store_id
    assert (fmt.min_size, fmt.avg_size, fmt.max_size) == (64, 256, 1024)
    names = {path.name for path in layout.root.iterdir()}
    assert names == {"store.toml", "packs", "incoming", "staging"}
    before = listing(tmp_path)
    assert store_layout.open_or_create(layout, SIZES) == fmt
    assert listing(tmp_path) == before


def test_two_stores_differ(tmp_path: Path) -> None:
    ids = {store_layout.open_existing(made(layout_in(tmp_path / name))).store_id for name in "ab"}
    assert len(ids) == 2


def test_stubs_inside_the_store_and_a_lock_are_no_strangers(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "stubs")
    (tmp_path / "stubs").mkdir()
    (tmp_path / "lock").touch()
    made(layout)


@pytest.mark.parametrize("stranger", ["file", "packs", "store.toml.bak", "stubs"])
def test_a_place_that_holds_something_else_is_refused(tmp_path: Path, stranger: str) -> None:
    layout = layout_in(tmp_path)
    layout.root.mkdir()
    if stranger in {"packs", "stubs"}:
        (layout.root / stranger / "inner").mkdir(parents=True)
    else:
        (layout.root / stranger).write_text("precious")
    before = listing(tmp_path)
    with pytest.raises(UsageError, match="is not empty and has no store.toml"):
        store_layout.create(layout, SIZES)
    assert listing(tmp_path) == before


def test_a_stub_tree_that_holds_something_is_refused(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    layout.stubs.mkdir()
    (layout.stubs / "file").write_text("precious")
    before = listing(tmp_path)
    with pytest.raises(UsageError, match="is not empty"):
        store_layout.create(layout, SIZES)
    assert listing(tmp_path) == before


def test_a_new_store_does_not_take_another_stores_stub_tree(tmp_path: Path) -> None:
    made(layout_in(tmp_path))
    other = Layout(tmp_path / "other", tmp_path / "stubs")
    before = listing(tmp_path)
    with pytest.raises(UsageError, match="belongs to another store"):
        store_layout.create(other, SIZES)
    assert listing(tmp_path) == before


def test_a_store_with_another_stub_tree_is_no_store(tmp_path: Path) -> None:
    first, second = made(layout_in(tmp_path / "a")), made(layout_in(tmp_path / "b"))
    with pytest.raises(NoStore, match="belongs to store"):
        store_layout.open_existing(Layout(first.root, second.stubs))


@pytest.mark.parametrize("state", ["absent", "no id", "a file", "empty id", "garbage"])
def test_a_stub_tree_without_its_id_is_no_store(tmp_path: Path, state: str) -> None:
    layout = made(layout_in(tmp_path))
    layout.stub_store_id.unlink()
    if state in {"absent", "a file"}:
        layout.stub_private.rmdir()
        layout.stubs.rmdir()
    if state == "a file":
        layout.stubs.touch()
    if state == "empty id":
        layout.stub_store_id.touch()
    if state == "garbage":
        layout.stub_store_id.write_bytes(b"\xff\xfe")
    before = listing(tmp_path)
    for act in (store_layout.open_existing, lambda at: store_layout.open_or_create(at, SIZES)):
        with pytest.raises(NoStore):
            act(layout)
    assert listing(tmp_path) == before


def test_a_newer_format_is_refused_before_anything_else(tmp_path: Path) -> None:
    layout = made(layout_in(tmp_path))
    layout.format.write_text("version = 2\nsomething = 'new'\n")
    layout.stub_store_id.unlink()
    before = listing(tmp_path)
    with pytest.raises(StoreFormatError, match="format 2"):
        store_layout.open_or_create(layout, SIZES)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("died_at", ["write format", "write stub id", "stub id", "format"])
def test_a_creation_that_was_interrupted_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_at: str
) -> None:
    layout = layout_in(tmp_path)
    layout.root.mkdir()
    name = "write_aside" if "write" in died_at else "put_in_place"
    act = getattr(store_layout, name)
    last = layout.stub_store_id if "stub id" in died_at else layout.format

    def dies(path: Path, *content: str) -> None:
        if path == last:
            raise KeyboardInterrupt
        act(path, *content)

    monkeypatch.setattr(store_layout, name, dies)
    with pytest.raises(KeyboardInterrupt):
        store_layout.open_or_create(layout, SIZES)
    monkeypatch.undo()
    fmt = store_layout.open_or_create(layout, SIZES)
    assert store_format.read(layout.format) == fmt
    assert layout.stub_store_id.read_text().strip() == fmt.store_id


def test_a_creation_that_was_interrupted_half_way_through_its_first_file_is_begun_anew(
    tmp_path: Path,
) -> None:
    layout = layout_in(tmp_path)
    layout.root.mkdir()
    (layout.root / ".store.toml.new").write_text("version = ")
    fmt = store_layout.open_or_create(layout, SIZES)
    assert store_layout.open_existing(layout) == fmt


def test_an_interrupted_creation_does_not_take_another_stores_stub_tree(tmp_path: Path) -> None:
    made(layout_in(tmp_path))
    other = Layout(tmp_path / "other", tmp_path / "stubs")
    other.root.mkdir()
    text = (tmp_path / "store" / "store.toml").read_text()
    fmt = store_format.read(tmp_path / "store" / "store.toml")
    (other.root / ".store.toml.new").write_text(text.replace(fmt.store_id, "0" * 32))
    with pytest.raises(UsageError, match="belongs to another store"):
        store_layout.create(other, SIZES)
