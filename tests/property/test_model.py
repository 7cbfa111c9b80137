"""The model itself, against a plain directory: what the other machines compare with must be what Linux
does.
"""

import os
import tempfile

from hypothesis import settings

from tests.property.rules import Machine
from tests.property.subject import OsSubject


class PlainMachine(Machine):
    """The model and a directory of the file system that holds the temporary files."""

    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="kvtool-plain-")
        root = os.path.join(os.fsencode(self.directory.name), b"root")
        os.mkdir(root, 0o755)
        self.plain = OsSubject(root, "plain directory")
        self.subjects = [self.plain]

    def end(self) -> None:
        self.plain.shut()
        self.directory.cleanup()


TestPlain = PlainMachine.TestCase
TestPlain.settings = settings(max_examples=100, stateful_step_count=40)
