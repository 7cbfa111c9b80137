"""The file system in process, without the kernel, against the model."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings

from kvtool.store import stubs
from tests.property.check import check_collected, check_store, content_of, stored_chunks, stub_files
from tests.property.inprocess import Session, VfsSubject
from tests.property.rules import Machine
from tests.property.tree import KVTOOL, Directory


class VfsMachine(Machine):
    """The model and a `Vfs`. Its store is used again when a run has left it empty."""

    quirks = KVTOOL
    session: ClassVar[Session | None] = None

    @classmethod
    def finish(cls) -> None:
        """Give the store up."""
        session, cls.session = cls.session, None
        if session is not None:
            session.stop()
            shutil.rmtree(session.layout.root.parent)

    def begin(self) -> None:
        if VfsMachine.session is None:
            VfsMachine.session = Session(Path(tempfile.mkdtemp(prefix="kvtool-vfs-")))
        self.vfs = VfsSubject(VfsMachine.session)
        self.subjects = [self.vfs]

    def end(self) -> None:
        session = VfsMachine.session
        emptied = False
        try:
            if self.sound and session is not None:
                root, stubs = session.layout.root, session.layout.stubs
                before = check_store(root, stubs)
                session.run(session.collection.run)
                check_collected(root, stubs, before)
                self.remove_all()
                session.run(session.collection.run)
                assert not list(root.rglob("*.pack")), "nothing is stored, and packs are left"
                assert session.vfs.open_files() == 0
                assert [inode.number for inode in session.vfs.inodes] == [1], (
                    "inodes that nobody knows are kept"
                )
                emptied = True
        finally:
            if not emptied:
                self.finish()

    def remove_all(self) -> None:
        for path, node in reversed(self.model.walk()[1:]):
            (self.vfs.rmdir if isinstance(node, Directory) else self.vfs.unlink)(path)


@pytest.fixture(scope="module", autouse=True)
def give_up() -> Iterator[None]:
    yield
    VfsMachine.finish()


@pytest.fixture
def vfs(tmp_path: Path) -> Iterator[VfsSubject]:
    session = Session(tmp_path)
    yield VfsSubject(session)
    session.stop()


def half_written(vfs: VfsSubject, flags: int) -> int:
    """A handle of the file `old`, which held b"old", and into which b"new" was written."""
    handle = vfs.open(b"old", os.O_WRONLY | os.O_CREAT, 0o644)
    vfs.write(handle, b"old")
    vfs.close(handle)
    handle = vfs.open(b"old", os.O_WRONLY | flags, 0)
    vfs.write(handle, b"new")
    return handle


@pytest.mark.parametrize(
    ("flags", "committed"), [(os.O_TRUNC, b"old"), (0, b"old"), (os.O_APPEND, b"oldnew")], ids=str
)
def test_of_what_is_unfinished_only_appends_are_committed(
    vfs: VfsSubject, tmp_path: Path, flags: int, committed: bytes
) -> None:
    """Half a snapshot must not take the place of a whole one; a log may be held open for weeks."""
    handle = half_written(vfs, flags)
    vfs.idle()
    assert committed_contents(tmp_path) == {b"old": committed}
    vfs.close(handle)


@pytest.mark.parametrize(("flags", "left"), [(os.O_TRUNC, b"old"), (os.O_APPEND, b"oldnew")], ids=str)
def test_the_end_discards_what_is_unfinished(
    vfs: VfsSubject, tmp_path: Path, flags: int, left: bytes
) -> None:
    half_written(vfs, flags)
    vfs.write(vfs.open(b"never closed", os.O_WRONLY | os.O_CREAT, 0o644), b"half")
    vfs.remount()
    assert check_store(tmp_path / "store", tmp_path / "stubs") == {b"old": left}


def committed_contents(root: Path) -> dict[bytes, bytes]:
    """What would survive a crash now."""
    chunks = stored_chunks(root / "store")
    return {
        name: content_of(stubs.read_index(os.fsencode(root / "stubs") + b"/" + name), chunks, name)
        for name in stub_files(root / "stubs")
    }


TestVfs = VfsMachine.TestCase
TestVfs.settings = settings(max_examples=60, stateful_step_count=40)
