"""Running each call on the model and on the subjects, and comparing.

Each call runs on the model and on every subject, and the outcomes are compared: value or errno. After each
step, as `watch` has it, the whole tree is compared too. A kind of machine says which file system it holds
against the model (`begin` and `end`).
"""

import os
from dataclasses import replace
from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from tests.property.calls import Look, Stat, Subject, Time
from tests.property.draws import FILE_MAX, brief
from tests.property.model import Model
from tests.property.tree import PLAIN, File, Quirks

_2020 = 1_577_836_800 * 10**9
Outcome = tuple[str, object]


def outcome(subject: Subject | Model, call: str, arguments: tuple[object, ...]) -> Outcome:
    """What the call answers: ("value", it) or ("errno", its name)."""
    try:
        return "value", getattr(subject, call)(*arguments)
    except OSError as error:
        return "errno", brief(error)


def agree(expected: object, actual: object) -> bool:
    """Whether `actual` is what the model allows: only a modification time may be left open by it."""
    if isinstance(expected, Look) and isinstance(actual, Look):
        same = (expected.xattrs, expected.names) == (actual.xattrs, actual.names)
        return same and agree(expected.stat, actual.stat)
    if not (isinstance(expected, Stat) and isinstance(actual, Stat)):
        return expected == actual
    if expected.mtime is Time.NOW and isinstance(actual.mtime, int):
        same = actual.mtime > _2020
    else:
        same = expected.mtime in (Time.ANY, actual.mtime)
    return same and replace(expected, mtime=0) == replace(actual, mtime=0)


def difference(expected: object, actual: object) -> str | None:
    """What distinguishes the two, in short; None when they agree."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for path in sorted(expected.keys() | actual.keys()):
            if not agree(expected.get(path), actual.get(path)):
                return f"at {path!r} {brief(expected.get(path))}, not {brief(actual.get(path))}"
        return None
    if agree(expected, actual):
        return None
    if not (isinstance(expected, bytes) and isinstance(actual, bytes)):
        return f"{brief(expected)}, not {brief(actual)}"
    shorter = min(len(expected), len(actual))
    at = next((i for i in range(shorter) if expected[i] != actual[i]), shorter)
    return f"{brief(expected)}, not {brief(actual)}, which differs from byte {at} on"


class Comparison(RuleBasedStateMachine):
    """All but the rules. A kind of machine puts its subjects into `self.subjects` in `begin`."""

    quirks: Quirks = PLAIN
    sequences: ClassVar[int] = 0
    steps: ClassVar[int] = 0  # rules that ran
    calls: ClassVar[int] = 0  # calls compared

    def __init__(self) -> None:
        super().__init__()
        Comparison.sequences += 1
        self.umask = os.umask(0o022)
        self.model = Model(self.quirks)
        self.subjects: list[Subject] = []
        self.watch, self.again, self.remounts = "end", False, 0
        self.sound = True
        self.begin()

    @classmethod
    def finish(cls) -> None:
        """Take down what several runs share."""

    def begin(self) -> None:
        """Make the subjects, empty."""
        raise NotImplementedError

    def end(self) -> None:
        """Take the subjects down and check what they left; called also after a failure, when `self.sound`
        is false.
        """

    def applies(self, subject: Subject, call: str, arguments: tuple[object, ...]) -> bool:
        """Whether `subject` is to answer as the model does; called before the model runs the call."""
        return True

    def teardown(self) -> None:
        try:
            if self.sound:
                self.close_all()
                self.compare_all()
                if self.again:
                    self.do("remount")
                    self.compare_all()
        finally:
            self.end()
            os.umask(self.umask)

    # Running and comparing

    def do(self, call: str, *arguments: object) -> object:
        """Run one call everywhere. Returns its value, None where it fails as it should."""
        line = f"{call}({', '.join(map(brief, arguments))})"
        note(f"    {line}")
        Comparison.calls += 1
        self.sound = False
        asked = [subject for subject in self.subjects if self.applies(subject, call, arguments)]
        expected = outcome(self.model, call, arguments)
        for subject in asked:
            kind, actual = outcome(subject, call, arguments)
            wrong = difference(expected[1], actual)
            if kind != expected[0]:
                wrong = f"{expected[0]} {brief(expected[1])}, not {kind} {brief(actual)}"
            assert wrong is None, f"{subject.name}: {line} should be {wrong}"
        self.sound = True
        return expected[1] if expected[0] == "value" else None

    def compare_bytes(self, path: bytes) -> None:
        handle = self.do("open", path, os.O_RDONLY, 0)
        self.do("pread", handle, FILE_MAX * 2, 0)
        self.do("close", handle)

    def compare_all(self) -> None:
        self.do("tree")
        for path, node in self.model.walk():
            if isinstance(node, File):
                self.compare_bytes(path)

    def touched(self, file: File) -> None:
        """Compare the bytes of what a step has just changed, through its name or any handle that can read
        it.
        """
        if self.watch != "bytes":
            return
        for path, node in self.model.walk():
            if node is file:
                self.compare_bytes(path)
        for number, description in self.model.handles.items():
            if description.node is file and description.readable:
                self.do("pread", number, FILE_MAX * 2, 0)

    @initialize(watch=st.sampled_from(["bytes", "stat", "end"]), again=st.integers(0, 3))
    def choose(self, watch: str, again: int) -> None:
        """How closely to watch: looking is a sequence of calls too, and may hide what goes wrong without."""
        self.watch, self.again = watch, again == 0

    @invariant()
    def tree_is_the_same(self) -> None:
        Comparison.steps += 1
        if self.watch != "end":
            self.do("tree")
            for number in self.model.handles:
                self.do("fstat", number)

    # Picking

    def handle(self, index: int, files: bool = False) -> int | None:
        known = [n for n, found in self.model.handles.items() if isinstance(found.node, File) or not files]
        return known[index % len(known)] if known else None

    def writer(self, index: int) -> int | None:
        """A handle of a file, mostly one that may write."""
        writable = [n for n, d in self.model.handles.items() if d.writable]
        return writable[index % len(writable)] if writable and index % 8 else self.handle(index, files=True)

    def file_of(self, handle: int) -> File:
        node = self.model.handles[handle].node
        assert isinstance(node, File)
        return node

    def close_all(self) -> None:
        for mapping in list(self.model.mappings):
            self.do("unmap", mapping)
        for handle in list(self.model.handles):
            self.do("close", handle)
