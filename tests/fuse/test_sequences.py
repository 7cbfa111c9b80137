"""Sequences of calls on a real mount and on a plain directory, against the model.

One mount serves all sequences, each in a directory of its own.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings

from kvtool.store import control
from kvtool.store.layout import Layout
from tests import processes
from tests.mounts import MountedStore, temporary_folder
from tests.property.calls import Subject
from tests.property.check import check_collected, check_store
from tests.property.draws import CHUNK_FLAGS
from tests.property.rules import Machine
from tests.property.subject import OsSubject
from tests.property.tree import KVTOOL, LABEL, OWN, RENAME_EXCHANGE


class MountMachine(Machine):
    """The model, a real mount and a plain directory."""

    quirks = replace(KVTOOL, reserved=None)  # the mount's root is not this machine's
    stack: ClassVar[ExitStack]
    mounted: ClassVar[MountedStore | None] = None
    number: ClassVar[int] = 0
    limit: ClassVar[float] = 250  # seconds without a remount after which something hangs

    @classmethod
    def mount(cls) -> MountedStore:
        """The mount of all sequences, started when there is none."""
        if cls.mounted is None:
            cls.stack = ExitStack()
            folder = cls.stack.enter_context(temporary_folder())
            (folder / "plain").mkdir()
            flags = [*CHUNK_FLAGS, "--store.gc_interval=0"]
            cls.mounted = cls.stack.enter_context(MountedStore(folder, *flags, limit=cls.limit))
        return cls.mounted

    @classmethod
    def finish(cls) -> None:
        """Give the mount up; its log must hold no surprise."""
        mounted, cls.mounted = cls.mounted, None
        if mounted is not None:
            cls.stack.close()

    def begin(self) -> None:
        mounted = self.mount()
        MountMachine.number += 1
        self.places = [mounted.dir / str(self.number), mounted.root / "plain" / str(self.number)]
        for place in self.places:
            place.mkdir(mode=0o755)
        self.real = OsSubject(os.fsencode(self.places[0]), "mount", mounted.remount, partial(self.ask, "gc"))
        self.plain = OsSubject(os.fsencode(self.places[1]), "plain directory")
        self.subjects = [self.real, self.plain]

    def ask(self, command: str) -> dict[str, Any]:
        """What the mount answers, without starting a process."""
        mounted = self.mount()
        return control.ask(Layout(mounted.store, mounted.stubs), command)

    def is_at_rest(self) -> bool:
        """Whether nothing is open; the kernel releases and forgets some time after close(2) has returned."""
        status = self.ask("status")
        private = os.listdir(self.mount().stubs / ".kvtool")
        return not status["open_files"] and not status["unfinished_saves"] and private == ["store-id"]

    def applies(self, subject: Subject, call: str, arguments: tuple[object, ...]) -> bool:
        if subject is not self.plain:
            return True
        if call in {"setxattr", "getxattr", "removexattr"}:
            key = arguments[1]
            assert isinstance(key, bytes)
            return not key.startswith((OWN, b"trusted."))
        if call == "tree":
            return not any(key.startswith(LABEL) for _, node in self.model.walk() for key in node.xattrs)
        if call == "rename":
            return arguments[2] != RENAME_EXCHANGE
        return call not in {"link", "symlink", "mknod", "fallocate"}

    def end(self) -> None:
        mounted = self.mount()
        self.real.shut()
        self.plain.shut()
        whole = False
        try:
            if self.sound:
                processes.wait_until(self.is_at_rest, 30, "the kernel to let go")
                before = check_store(mounted.store, mounted.stubs)
                if self.number % 8 == 0:
                    self.ask("gc")
                    check_collected(mounted.store, mounted.stubs, before)
                for place in self.places:
                    shutil.rmtree(place)
                whole = True
        finally:
            if not whole:
                self.finish()


@pytest.fixture(scope="module", autouse=True)
def give_up() -> Iterator[None]:
    yield
    MountMachine.finish()


TestMount = MountMachine.TestCase
TestMount.settings = settings(
    max_examples=20,
    stateful_step_count=40,
    phases=[Phase.generate],  # a mount is slow to shrink with: `make fuzz` does
)
