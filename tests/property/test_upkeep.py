"""Saves, restores, deletions, collections and crashes in any order lose nothing and free everything.

A crash comes between any two calls, in the middle of a save, or before any step of a collection. What was
acknowledged by then is there afterwards, byte by byte; a save under way has left the old content.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvtool.fs.inodes import ROOT
from tests.property.check import check_collected, check_store
from tests.property.draws import CHUNK_SIZES
from tests.property.inprocess import Session

_NAMES = [b"a", b"b", b"c", b"d"]
_names = st.sampled_from(_NAMES)
_BLOCK = 4 * CHUNK_SIZES[2]
_recipes = st.lists(st.integers(0, 11), min_size=0, max_size=8)
_POOL = [random.Random(number).randbytes(_BLOCK + 777 * number) for number in range(12)]
_saves = st.tuples(_names, _recipes)


class Crash(BaseException):
    """Stands for the moment when the process is killed."""


class UpkeepMachine(RuleBasedStateMachine):
    """The contents that must be there, and a session on a store in a folder of its own."""

    sequences: ClassVar[int] = 0
    steps: ClassVar[int] = 0
    calls: ClassVar[int] = 0  # snapshots compared

    def __init__(self) -> None:
        super().__init__()
        UpkeepMachine.sequences += 1
        self.root = Path(tempfile.mkdtemp(prefix="kvtool-upkeep-"))
        self.session = Session(self.root)
        self.contents: dict[bytes, bytes] = {}

    @classmethod
    def finish(cls) -> None:
        """Nothing is shared between runs."""

    @invariant()
    def count(self) -> None:
        UpkeepMachine.steps += 1

    @rule(saved=_saves)
    def save(self, saved: tuple[bytes, list[int]]) -> None:
        self._save(*saved)

    @rule(saved=_saves)
    def save_aside_and_rename(self, saved: tuple[bytes, list[int]]) -> None:
        name, recipe = saved
        self._save(b"tmp", recipe)
        self._rename(b"tmp", name)

    @rule(name=_names, recipe=_recipes)
    def append(self, name: bytes, recipe: list[int]) -> None:
        if name in self.contents:
            self.session.run(self._append, name, content(recipe))
            self.contents[name] += content(recipe)

    @rule(name=_names, over=_names)
    def rename(self, name: bytes, over: bytes) -> None:
        if name in self.contents:
            self._rename(name, over)

    @rule(name=_names)
    def delete(self, name: bytes) -> None:
        if name in self.contents:
            self.session.run(self.session.vfs.unlink, ROOT, name)
            del self.contents[name]

    @rule(name=_names)
    def restore(self, name: bytes) -> None:
        if name in self.contents:
            self._compare(name)

    @rule(
        meanwhile=st.lists(st.one_of(_saves, _names), max_size=3),
        crash_at=st.one_of(st.none(), st.integers(0, 3)),
    )
    def collect(self, meanwhile: list[Any], crash_at: int | None) -> None:
        """A collection; before its steps something is saved or deleted, and maybe everything ends."""
        session, steps = self.session, iter(range(100))

        async def once(step: dict[str, Any] | None) -> None:
            if next(steps) == crash_at:
                raise Crash
            if meanwhile:
                await self._meanwhile(meanwhile.pop())

        session.collection.meanwhile = once  # type: ignore[method-assign]
        try:
            session.run(session.collection.run)
        except Crash:
            note("    crash within the collection")
            self._crash()

    @rule(name=_names, recipe=_recipes, aside=st.booleans())
    def crash_within_a_save(self, name: bytes, recipe: list[int], aside: bool) -> None:
        self.session.run(self._begin, b"tmp" if aside else name, content(recipe))
        self._crash()

    @rule()
    def crash(self) -> None:
        self._crash()

    @rule()
    def remount(self) -> None:
        self.session.stop()
        self.session.start()

    def teardown(self) -> None:
        try:
            self.session.stop()
            store, stubs = self.root / "store", self.root / "stubs"
            assert check_store(store, stubs) == self.contents
            self.session.start()
            self.session.run(self.session.collection.run)
            for name in self.contents:
                self._compare(name)
            self.session.stop()
            check_collected(store, stubs, self.contents)
        finally:
            shutil.rmtree(self.root)

    def _compare(self, name: bytes) -> None:
        UpkeepMachine.calls += 1
        assert self.session.run(self.session.service.get, name) == self.contents[name]

    def _save(self, name: bytes, recipe: list[int]) -> None:
        self.session.run(self._put, name, content(recipe))
        self.contents[name] = content(recipe)

    def _rename(self, name: bytes, target: bytes) -> None:
        self.session.run(self.session.vfs.rename, ROOT, name, ROOT, target)
        self.contents[target] = self.contents.pop(name)

    async def _meanwhile(self, what: bytes | tuple[bytes, list[int]]) -> None:
        if isinstance(what, tuple):
            await self._put(what[0], content(what[1]))
            self.contents[what[0]] = content(what[1])
        elif what in self.contents:
            await self.session.vfs.unlink(ROOT, what)
            del self.contents[what]

    async def _begin(self, name: bytes, data: bytes) -> int:
        service = self.session.service
        exists = name in self.contents
        handle = await (service.open(name, os.O_WRONLY | os.O_TRUNC) if exists else service.create(name))
        await service.vfs.write(handle, 0, data)
        return handle

    async def _put(self, name: bytes, data: bytes) -> None:
        await self.session.service.close(await self._begin(name, data))

    async def _append(self, name: bytes, data: bytes) -> None:
        service = self.session.service
        handle = await service.open(name, os.O_WRONLY | os.O_APPEND)
        await service.vfs.write(handle, len(self.contents[name]), data)
        await service.close(handle)

    def _crash(self) -> None:
        self.session.crash()
        self.session.start()
        listed = set(os.listdir(os.fsencode(self.root / "stubs"))) - {b".kvtool"}
        assert listed == set(self.contents)


def content(recipe: list[int]) -> bytes:
    return b"".join(_POOL[number] for number in recipe)


@pytest.fixture(autouse=True)
def crashes_are_logged(expect_log: Callable[[str], None]) -> None:
    expect_log("ended unasked")


TestUpkeep = UpkeepMachine.TestCase
TestUpkeep.settings = settings(max_examples=8, stateful_step_count=30)
