"""The worker with and without a process that hashes: what is settled when, and whose failure is whose."""

import errno
import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import xxhash

from kvtool.core.chunker import cut
from kvtool.store import slots, wire
from kvtool.store.digests import Digester
from kvtool.store.store import Store
from kvtool.store.worker import Worker
from tests import processes
from tests.stores import SIZES
from tests.synth import random_bytes

LIMIT = 30.0


class InProcess:
    """A worker in this process, whose slots are filled by hand."""

    def __init__(self, store: Store, *, digesting: bool) -> None:
        fd, self._slots = slots.create(SIZES.max_size, 4)
        self.digester = Digester(fd, self._slots.size) if digesting else None
        os.close(fd)
        self.worker = Worker(store, self._slots, self.digester)

    def send(self, op: str, **fields: Any) -> list[tuple[str, int]]:
        return self.answers(self.worker.handle({"op": op, **fields}))

    def data(self, stream: int, slot: int, data: bytes) -> list[tuple[str, int]]:
        start = self._slots.headroom
        self._slots.slot(slot)[start : start + len(data)] = data
        return self.send("data", stream=stream, slot=slot, length=len(data))

    def finish(self, stream: int, data: bytes) -> list[tuple[str, int]]:
        return self.send("finish", stream=stream, digest=xxhash.xxh3_128_hexdigest(data))

    def answers(self, frames: list[bytes]) -> list[tuple[str, int]]:
        """What each says, and the slot or stream that it is about."""
        found = []
        for frame in frames:
            header, _ = wire.PREFIX.unpack_from(frame)
            message = wire.decode(frame[wire.PREFIX.size : wire.PREFIX.size + header])
            found.append((message["op"], message.get("slot", message.get("stream"))))
        return found


@pytest.fixture
def hand(store: Store, digesting: bool) -> Iterator[InProcess]:
    hand = InProcess(store, digesting=digesting)
    yield hand
    if hand.digester is not None:
        hand.digester.close()


def chunks_of(store: Store, data: bytes) -> set[bytes]:
    """The ids of the chunks of those bytes, all of which must be stored."""
    ids, start = set(), 0
    for length in cut(data, SIZES, final=True):
        ids.add(hashlib.sha256(data[start : start + length]).digest())
        start += length
    assert store.catalog.find(ids).keys() == ids
    return ids


@pytest.mark.parametrize("digesting", [False, True])
def test_data_is_settled_once_the_next_has_been_cut(hand: InProcess, store: Store) -> None:
    one, two, three, four = (random_bytes(5000, seed) for seed in range(4))
    assert hand.send("begin", stream=1) + hand.send("begin", stream=2) == []
    assert hand.data(1, 0, one) == []
    assert hand.data(2, 1, two) == [("free", 0)]
    assert hand.data(2, 2, three) == [("free", 1)]
    assert hand.answers(hand.worker.settle()) == [("free", 2)]
    assert hand.worker.settle() == []
    assert hand.data(1, 3, four) == []
    assert hand.finish(2, two + three) == [("free", 3), ("saved", 2)]
    assert hand.data(1, 0, one) == []
    assert hand.send("drop", stream=1) == [("free", 0)]
    chunks_of(store, two + three)


@pytest.mark.parametrize("digesting", [False, True])
def test_a_failure_to_store_ends_the_save_whose_data_it_was(
    hand: InProcess, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = random_bytes(5000, 1), random_bytes(5000, 2)
    assert hand.send("begin", stream=1) + hand.send("begin", stream=2) == []

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        assert hand.data(1, 0, one) == []
        assert hand.data(2, 1, two) == [("failed", 1), ("free", 0)]
    assert hand.finish(2, two) == [("free", 1), ("saved", 2)]
    assert hand.send("finish", stream=1, digest="") == []
    chunks_of(store, two)


@pytest.mark.parametrize("digesting", [True])
def test_what_was_given_up_is_not_taken_for_another(hand: InProcess, store: Store) -> None:
    one, two = random_bytes(5000, 1), random_bytes(5000, 2)
    assert hand.send("begin", stream=1) + hand.send("begin", stream=2) == []
    assert hand.data(1, 0, one) == []
    hand.worker._drop(1)  # its digests are on their way, and nobody asks for them
    assert hand.data(2, 1, two) == [("free", 0)]
    assert hand.finish(2, two) == [("free", 1), ("saved", 2)]
    chunks_of(store, two)


@pytest.mark.parametrize("digesting", [True])
def test_saves_go_on_without_the_process_that_hashes(
    hand: InProcess, store: Store, expect_log: Callable[[str], None]
) -> None:
    expect_log("the process that hashes has ended")
    one, two, three = (random_bytes(5000, seed) for seed in range(3))
    assert hand.digester is not None
    assert hand.send("begin", stream=1) == []
    os.kill(hand.digester.pid, signal.SIGSTOP)
    assert hand.data(1, 0, one) == []
    os.kill(hand.digester.pid, signal.SIGKILL)
    assert hand.data(1, 1, two) == [("free", 0)]
    processes.wait_gone([hand.digester.pid], LIMIT)
    assert hand.data(1, 2, three) == [("free", 1)]
    assert hand.finish(1, one + two + three) == [("free", 2), ("saved", 1)]
    chunks_of(store, one + two + three)
