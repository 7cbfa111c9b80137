"""A repair of a store that was damaged in any way loses nothing that could be read before."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from kvtool.errors import KvtoolError, StoreTooNew
from kvtool.store import catalog_files, recover, stubs
from kvtool.store.check import check_store
from kvtool.store.fetch import read_file
from kvtool.store.findings import Code, Outcome, Report, Severity
from kvtool.store.layout import Layout
from kvtool.store.repair import repair
from kvtool.store.store import Store
from tests.stores import layout_in, open_store, save
from tests.synth import random_bytes

Draw = Callable[..., object]
A, B, C = (random_bytes(size, seed) for seed, size in enumerate((4000, 2000, 1000)))

# What a repair leaves, when the store can be opened.
LOSSES = {
    Code.STUB_CHUNK_MISSING,
    Code.STUB_CHUNK_LENGTH,
    Code.STUB_FOREIGN,
    Code.STUB_HEADER,  # where the chunk sizes would make the stub unreadable
    Code.IN_THE_WAY,
}
FOUNDATIONS = {Code.STORE_TOML, Code.STUBS_NO_ID, Code.STUBS_OTHER_ID}


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    """A store as a kill leaves it: the catalog's log is not written back, and there are leftovers."""
    with tempfile.TemporaryDirectory(prefix="kvtool-repair-") as folder:
        root, copy = Path(folder) / "made", Path(folder) / "original"
        with open_store(root) as store:
            save(store, A, "a")
            save(store, A[:1500] + B + A[1500:], "b")
            (root / "stubs" / "d").mkdir()
            save(store, C, "d/c")
            save(store, A, "d/again")
            save(store, b"", "empty")
            save(store, random_bytes(2000, 9))  # an orphan
            save(store, C + B, "twice")
            # Once more, as a compaction that was killed leaves it: chunks in two packs.
            key = store.catalog.packs()[0].key
            entries = store.catalog.entries(key)
            store.catalog.drop_packs([key])
            save(store, A)
            store.catalog.add_pack(_packs_without_row(store)[0], _size(store), entries)
            stubs.create(store.layout, os.fsencode(store.layout.stubs / "half"), 0o600, None, None)
            (store.layout.incoming / "half.pack").write_bytes(b"half")
            shutil.copytree(root, copy)
        yield copy


def _packs_without_row(store: Store) -> list[bytes]:
    from kvtool.store import packs

    return sorted(packs.list_packs(store.layout).keys() - {row.id for row in store.catalog.packs()})


def _size(store: Store) -> int:
    return store.layout.pack(_packs_without_row(store)[0]).stat().st_size


def files(root: Path) -> list[Path]:
    """What can be damaged, in an order that is always the same but for the packs' names."""
    found = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.endswith("-shm")]
    packs = sorted((p for p in found if p.suffix == ".pack"), key=lambda p: (p.stat().st_size, p.name))
    return [path for path in found if path.suffix != ".pack"] + packs


def damage(draw: Draw, root: Path) -> None:
    """Damages one file."""
    there = files(root)
    path = draw(st.sampled_from(there), label="file")
    size = path.stat().st_size
    how = draw(st.sampled_from(["flip", "zero", "cut", "delete", "swap", "random", "replace"]))
    note(f"{how} {path.relative_to(root)} ({size} bytes)")
    if how == "delete":
        path.unlink()
    elif how == "cut":
        os.truncate(path, draw(st.integers(0, size)))
    elif how == "swap":
        other = draw(st.sampled_from(there), label="other")
        aside = path.with_name("aside")
        path.rename(aside)
        if other != path:
            other.rename(path)
        aside.rename(other)
    elif how == "random":
        path.write_bytes(draw(st.binary(max_size=200)))
    elif how == "replace":
        path.unlink()
        kind = draw(st.sampled_from(["directory", "pipe", "loop"]))
        if kind == "directory":
            path.mkdir()
            (path / "within").touch()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path.name)
    elif size:
        # Near the beginning, near the end, or anywhere: headers, footers, data.
        at = draw(st.integers(0, min(size, 5000) - 1) | st.integers(0, size - 1))
        at = draw(st.sampled_from([at, size - 1 - at]))
        content = bytearray(path.read_bytes())
        if how == "flip":
            content[at] ^= draw(st.integers(1, 255))
        else:
            count = draw(st.integers(1, 600))
            content[at : at + count] = bytes(len(content[at : at + count]))
        with path.open("r+b") as file:
            file.write(content)


def is_pipe(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISFIFO(path.stat().st_mode)
    return False


def contents(layout: Layout) -> dict[bytes, bytes]:
    """Every snapshot that can be read, by its name; nothing when the store cannot be opened."""
    waits = [layout.format, layout.stub_store_id, *catalog_files.files(layout.catalog)]
    if any(map(is_pipe, waits)):
        return {}  # who opens it waits for ever
    found = {}
    try:
        store = Store.open(layout, writable=False)
    except (KvtoolError, OSError):
        return {}
    try:
        for path in stubs.walk(layout):
            with suppress(KvtoolError, OSError, TypeError, ValueError):
                content = b"".join(bytes(piece) for piece in read_file(store, stubs.read_index(path)))
                found[os.path.relpath(path, os.fsencode(layout.stubs))] = content
    finally:
        store.close()
    return found


def readable(root: Path) -> dict[bytes, bytes]:
    """What can be read as it lies there, or, in a copy, after the start of a writer."""
    found = contents(layout_in(root))
    with tempfile.TemporaryDirectory(prefix="kvtool-repair-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(root, copy, symlinks=True, ignore=_pipes)
        with suppress(KvtoolError, OSError, TypeError), recover.writer(layout_in(copy), sync=False):
            pass
        return contents(layout_in(copy)) | found


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if is_pipe(Path(folder, name))]


def kept(root: Path) -> set[bytes]:
    """The contents of all files of which nothing may be deleted, by their hashes."""
    layout = layout_in(root)
    folders = [layout.packs, layout.stubs, layout.quarantine]
    there = [path for folder in folders for path in folder.rglob("*")] + [layout.format]
    mine = [path for path in there if path.is_file() and not path.is_symlink() and not is_leftover(path)]
    return {hashlib.sha256(path.read_bytes()).digest() for path in mine}


def is_leftover(path: Path) -> bool:
    return stubs.get(os.fsencode(path), stubs.INCOMPLETE) is not None or path.name.startswith("new-")


def codes(report: Report) -> set[Code]:
    return {found.code for found in report.findings if found.severity is not Severity.INFO}


@given(st.data())
def test_nothing_that_could_be_read_is_lost(
    original: Path, expect_log: Callable[[str], None], data: st.DataObject
) -> None:
    for pattern in ("gone or damaged", "moved to .*quarantine", "rebuilding it from the packs"):
        expect_log(pattern)
    with tempfile.TemporaryDirectory(prefix="kvtool-repair-") as folder:
        root = Path(folder) / "damaged"
        shutil.copytree(original, root)
        for _ in range(data.draw(st.integers(1, 4), label="damages")):
            damage(data.draw, root)
        before, files_before = readable(root), kept(root)
        layout = layout_in(root)
        adopt, quarantine = data.draw(st.booleans(), label="adopt"), data.draw(st.booleans(), label="move")
        try:
            seen = codes(check_store(layout))
            report = repair(layout, adopt_stubs=adopt, quarantine_snapshots=quarantine)
        except StoreTooNew:
            return
        except KvtoolError:
            assert Code.IN_THE_WAY in seen
            return
        after = contents(layout)
        assert {name: after.get(name) for name in before} == before
        left = {found.code for found in report.findings if found.outcome is Outcome.LEFT}
        left -= {found.code for found in report.findings if found.severity is Severity.INFO}
        if not left & FOUNDATIONS:
            assert left <= LOSSES
        if Code.STUB_HEADER not in seen | codes(report):
            assert kept(root) >= files_before
        if not seen:
            assert before == {b"a": A, b"b": A[:1500] + B + A[1500:]} | {
                b"d/c": C, b"d/again": A, b"empty": b"", b"twice": C + B
            }  # fmt: skip
        again = repair(layout, adopt_stubs=adopt, quarantine_snapshots=quarantine)
        assert not [found for found in again.findings if found.outcome is Outcome.MENDED]
        assert contents(layout) == after
        assert codes(again) == codes(check_store(layout)) == left
