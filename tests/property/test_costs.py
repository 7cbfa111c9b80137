"""What snapshots cost stays exact, whatever was saved, rewritten, renamed and deleted before."""

import hashlib
import os
import tempfile
from array import array
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvtool.core import usage
from kvtool.core.chunker import ChunkSizes
from kvtool.core.index import Index
from kvtool.core.score import Facts, Score
from kvtool.core.usage import freed
from kvtool.store import stubs
from kvtool.store.snapshots import overview, read_indexes
from tests.stores import open_store, save, stub

NAMES = st.sampled_from(["a", "b", "c", "d"])
# Parts of which files are made: some chunks are the same in several files, and several times in one.
PARTS = [os.fsencode(f"{number}") * 700 for number in range(5)] + [bytes(range(256)) * 6]
CONTENTS = st.lists(st.sampled_from(PARTS), max_size=4).map(b"".join)
SCORE = Score("unique_bytes * 1000 + shared_bytes + uses")


class Costs(RuleBasedStateMachine):
    """A store in a folder of its own; the recount goes chunk by chunk over the stubs' indexes."""

    @initialize()
    def begin(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._open = open_store(Path(self._folder.name))
        self.store = self._open.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self._open.__exit__(None, None, None)
            self._folder.cleanup()

    @rule(name=NAMES, data=CONTENTS)
    def save(self, name: str, data: bytes) -> None:
        save(self.store, data, name)

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        if os.path.exists(stub(self.store, old)):
            os.rename(stub(self.store, old), stub(self.store, new))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        stubs.drop(stub(self.store, name))

    @rule(name=NAMES)
    def use(self, name: str) -> None:
        if os.path.exists(stub(self.store, name)):
            stubs.count_use(stub(self.store, name))

    @invariant()
    def exact(self) -> None:
        if not hasattr(self, "store"):
            return
        layout = self.store.layout
        found = overview(layout, SCORE, {})
        indexes = read_indexes(layout).of
        chunks = {path: dict(index.chunks()) for path, index in indexes.items()}
        users = Counter(chunk for its in chunks.values() for chunk in its)
        assert {row.name for row in found.listing.snapshots} == {
            stubs.name_of(layout, path) for path in chunks
        }
        for row in found.listing.snapshots:
            its = chunks[stub(self.store, row.name)]
            unique = sum(length for chunk, length in its.items() if users[chunk] == 1)
            assert (row.unique_bytes, row.shared_bytes) == (unique, sum(its.values()) - unique)
            assert row.score == SCORE.of(
                Facts(unique_bytes=unique, shared_bytes=row.shared_bytes, uses=row.uses)
            )
        lengths = {chunk: length for its in chunks.values() for chunk, length in its.items()}
        assert found.live_bytes == sum(lengths.values())
        for some in (list(chunks)[:1], list(chunks)[1:3], list(chunks)):
            others = {chunk for path, its in chunks.items() if path not in some for chunk in its}
            gone = {chunk for path in some for chunk in chunks[path]} - others
            its = [indexes[path] for path in some]
            assert freed(its, found.others) == sum(lengths[chunk] for chunk in gone)


def index_of(chunks: list[int]) -> Index:
    """An index of chunks known by numbers, each of a length of its own."""
    ids = [hashlib.sha256(bytes([number])).digest() for number in chunks]
    return Index(ChunkSizes()).extended(array("Q", (number + 1 for number in chunks)), b"".join(ids))


@given(snapshots=st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6))
@settings(max_examples=100)
def test_many_references_are_counted_as_few_are(snapshots: list[list[int]]) -> None:
    indexes = dict(enumerate(map(index_of, snapshots)))
    few = usage.count(indexes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usage, "_MANY", 0)
        patch.setattr(usage, "_count_few", lambda _: None)
        many = usage.count(indexes) if any(snapshots) else few
    assert (many.of, many.live, many.others) == (few.of, few.live, few.others)
    assert all(type(value) is int for each in many.of.values() for value in (*each, many.live))


def test_ids_that_begin_alike_are_told_apart() -> None:
    ids = [bytes(31) + bytes([last]) for last in (1, 2)]
    indexes = {chunk: Index(ChunkSizes()).extended(array("Q", [5]), chunk) for chunk in ids}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usage, "_MANY", 0)
        assert usage.count(indexes).of == dict.fromkeys(ids, usage.Usage(unique=5, shared=0))


Costs.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestCosts = Costs.TestCase
