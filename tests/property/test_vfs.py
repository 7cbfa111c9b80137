"""The file system in process, without the kernel, against the model."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings

from tests.property.check import check_collected, check_store
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


TestVfs = VfsMachine.TestCase
TestVfs.settings = settings(max_examples=60, stateful_step_count=40)
