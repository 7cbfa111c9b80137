"""The file system in process, without the kernel, against the model."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings

from tests.property.check import check_collected, check_store
from tests.property.inprocess import Session, VfsSubject
from tests.property.rules import Machine
from tests.property.tree import KVTOOL


class VfsMachine(Machine):
    """The model and the `Vfs` of a fresh store."""

    quirks = KVTOOL

    def begin(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="kvtool-vfs-")
        self.session = Session(Path(self.directory))
        self.subjects = [VfsSubject(self.session, b"")]

    def end(self) -> None:
        try:
            layout = self.session.layout
            if self.sound:
                before = check_store(layout.root, layout.stubs)
                self.session.run(self.session.collection.run)
                check_collected(layout.root, layout.stubs, before)
        finally:
            self.session.stop()
            shutil.rmtree(self.directory)


TestVfs = VfsMachine.TestCase
TestVfs.settings = settings(max_examples=60, stateful_step_count=40)
