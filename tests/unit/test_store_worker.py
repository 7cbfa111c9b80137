"""The worker process, driven by hand through its socket; and the shared memory between it and the mount."""

import errno
import json
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash

from kvtool.core.index import Index
from kvtool.store import child, collect, compact, lock, slots, wire
from kvtool.store.layout import Layout
from kvtool.store.slots import DATA_SIZE, Slots
from kvtool.store.store import Store
from tests import processes
from tests.stores import SIZES, layout_in, open_store, pack_paths, read, save
from tests.synth import random_bytes

LIMIT = 30.0


class Hand:
    """A worker process and this end of its socket."""

    def __init__(self, layout: Layout, count: int = 3) -> None:
        self.held = lock.acquire(layout)
        self.memory_fd, self.slots = slots.create(SIZES.max_size, count)
        ours, theirs = socket.socketpair()
        arguments = ["--socket", str(theirs.fileno()), "--memory", str(self.memory_fd)]
        arguments += ["--headroom", str(SIZES.max_size), "--slots", str(count)]
        arguments += ["--store", str(layout.root), "--stubs", str(layout.stubs), "--digester"]
        inherited = (theirs.fileno(), self.memory_fd, self.held.fd)
        self.process = child.start("kvtool.store.worker", arguments, inherited)
        theirs.close()
        ours.settimeout(LIMIT)
        self.socket = ours
        self._file = ours.makefile("rb")

    def send(self, op: str, **fields: Any) -> None:
        self.socket.sendall(wire.encode(op, **fields))

    def receive(self) -> tuple[dict[str, Any], bytes]:
        prefix = self._file.read(wire.PREFIX.size)
        assert len(prefix) == wire.PREFIX.size, "the worker ended"
        header, body = wire.PREFIX.unpack(prefix)
        return wire.decode(self._file.read(header)), self._file.read(body)

    def data(self, stream: int, piece: bytes, slot: int = 0) -> list[dict[str, Any]]:
        """Fills a slot, hands it over, and returns the answers up to the one that frees it."""
        self.slots.slot(slot)[self.slots.headroom : self.slots.headroom + len(piece)] = piece
        self.send("data", stream=stream, slot=slot, length=len(piece))
        answers = [self.receive()[0]]
        while answers[-1]["op"] != "free":
            answers.append(self.receive()[0])
        assert answers[-1] == {"op": "free", "slot": slot}
        return answers[:-1]

    def finish(self, stream: int, data: bytes) -> tuple[dict[str, Any], bytes]:
        self.send("finish", stream=stream, digest=xxhash.xxh3_128_hexdigest(data))
        return self.receive()

    def settle(self) -> None:
        """Returns when the worker has done all that was sent."""
        self.send("note")
        assert self.receive()[0]["op"] == "note"

    def close(self) -> None:
        self._file.close()
        self.socket.close()
        self.process.wait(LIMIT)
        self.held.release()
        self.slots.close()
        os.close(self.memory_fd)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    with open_store(tmp_path):
        return layout_in(tmp_path)


@pytest.fixture
def hand(layout: Layout) -> Iterator[Hand]:
    worker = Hand(layout)
    try:
        yield worker
    finally:
        processes.end(worker.process.pid)
        worker.close()


def indexed(answer: tuple[dict[str, Any], bytes], head: Index | None = None) -> Index:
    message, body = answer
    assert message["op"] == "saved", message
    count = len(body) // 40
    return (head or Index(SIZES)).extended(array("Q", body[: 8 * count]), body[8 * count :])


def content(layout: Layout, index: Index) -> bytes:
    store = Store.open(layout, writable=False)
    try:
        return read(store, index)
    finally:
        store.close()


def test_a_save_and_an_append_come_back(hand: Hand, layout: Layout) -> None:
    first, second = random_bytes(DATA_SIZE, 1), random_bytes(5000, 2)
    hand.send("begin", stream=1)
    assert hand.data(1, first) == []
    assert hand.data(1, second, slot=2) == []
    answer = hand.finish(1, first + second)
    assert answer[0] == {
        "op": "saved",
        "stream": 1,
        "new_chunks": len(answer[1]) // 40,
        "new_bytes": DATA_SIZE + 5000,
    }
    index = indexed(answer)
    assert content(layout, index) == first + second
    last = len(index) - 1
    hand.send("begin", stream=2, resume=[index.id(last).hex(), index.length(last)])
    assert hand.data(2, b"and more") == []
    longer = indexed(hand.finish(2, b"and more"), index.head(last))
    assert content(layout, longer) == first + second + b"and more"


def test_interleaved_saves_do_not_mix(hand: Hand, layout: Layout) -> None:
    pieces = {
        stream: [random_bytes(3000 + stream, 10 * stream + i) for i in range(5)] for stream in (1, 2, 3)
    }
    for stream in pieces:
        hand.send("begin", stream=stream)
    for i in range(5):
        for stream, its in pieces.items():
            assert hand.data(stream, its[i], slot=stream - 1) == []
    for stream, its in pieces.items():
        assert content(layout, indexed(hand.finish(stream, b"".join(its)))) == b"".join(its)


def test_an_empty_save_has_no_chunks_and_no_pack(hand: Hand, layout: Layout) -> None:
    hand.send("begin", stream=1)
    assert hand.finish(1, b"") == ({"op": "saved", "stream": 1, "new_chunks": 0, "new_bytes": 0}, b"")
    assert pack_paths(layout) == []


def test_bytes_that_arrive_changed_fail_the_save_and_leave_nothing(hand: Hand, layout: Layout) -> None:
    hand.send("begin", stream=1)
    hand.data(1, random_bytes(5000))
    message, _ = hand.finish(1, b"other bytes")
    assert (message["op"], message["stream"], message["errno"]) == ("failed", 1, errno.EIO)
    hand.settle()
    assert pack_paths(layout) == []
    assert list(layout.incoming.iterdir()) == []


def test_a_chunk_that_cannot_be_taken_back_fails_that_save_alone(hand: Hand) -> None:
    hand.send("begin", stream=1, resume=["00" * 32, 100])
    message, _ = hand.receive()
    assert (message["op"], message["stream"]) == ("failed", 1)
    assert hand.data(1, b"what still comes is ignored") == []
    hand.send("finish", stream=1, digest="")
    hand.send("begin", stream=2)
    assert hand.data(2, b"fine") == []
    assert indexed(hand.finish(2, b"fine")).size == 4


def test_a_dropped_save_leaves_nothing(hand: Hand, layout: Layout) -> None:
    hand.send("begin", stream=1)
    hand.data(1, random_bytes(5000))
    assert len(list(layout.incoming.iterdir())) == 1
    hand.send("drop", stream=1)
    hand.send("drop", stream=99)
    hand.settle()
    assert list(layout.incoming.iterdir()) == []


def test_a_save_that_cannot_write_fails_with_its_errno(hand: Hand, layout: Layout) -> None:
    layout.incoming.rmdir()
    hand.send("begin", stream=1)
    [failed] = hand.data(1, random_bytes(5000))
    assert (failed["op"], failed["stream"], failed["errno"]) == ("failed", 1, errno.ENOENT)
    layout.incoming.mkdir()
    hand.send("begin", stream=2)
    assert hand.data(2, random_bytes(5000)) == []


def test_a_collection_spares_what_was_used_since_it_began(hand: Hand, layout: Layout) -> None:
    contents = {name: random_bytes(4000, seed) for seed, name in enumerate(("noted", "used", "dead"))}
    store = Store.open(layout, writable=True)
    keys = {}
    for name, data in contents.items():
        keys[name] = store.catalog.place(save(store, data)).packs[0]
    hand.send("note")
    assert hand.receive()[0]["newest"] == 3
    hand.send("begin", stream=1)
    hand.data(1, contents["noted"])
    hand.finish(1, contents["noted"])
    hand.send("begin", stream=2)
    hand.data(2, contents["used"])
    hand.send("delete", keys=list(keys.values()))
    answer, _ = hand.receive()
    assert (answer["op"], answer["packs"], answer["left"]) == ("delete", 1, [])
    assert {row.key for row in store.catalog.packs()} == {keys["noted"], keys["used"]}
    assert len(pack_paths(layout)) == 2
    hand.send("drop", stream=2)
    hand.send("forget")
    assert hand.receive()[0]["op"] == "forget"
    hand.settle()  # the next mark begins: nobody has used anything since
    hand.send("delete", keys=[keys["noted"], keys["used"]])
    assert hand.receive()[0]["packs"] == 2
    assert pack_paths(layout) == []
    store.close()


def test_a_new_pack_is_adopted_before_the_old_ones_go(hand: Hand, layout: Layout) -> None:
    store = Store.open(layout, writable=True)
    index = save(store, random_bytes(4000, 1), "a")
    [old] = store.catalog.packs()
    hand.settle()
    survey = collect.survey(store, collect.mark(store), old.key)
    [step] = compact.rewrite(store, replace(survey, uses=[survey.uses[0]._replace(size=1 << 20)]))
    assert step.sources == [old.key]
    hand.send("adopt", pack=step.pack_id.hex())
    new = layout.pack(step.pack_id)
    answer = hand.receive()[0]
    assert (answer["bytes"], answer["more"]) == (new.stat().st_size, False)
    assert read(store, index) == random_bytes(4000, 1)
    hand.send("delete", keys=step.sources)
    assert hand.receive()[0]["packs"] == 1
    assert pack_paths(layout) == [new]
    assert read(store, index) == random_bytes(4000, 1)
    new.write_bytes(b"damaged")
    hand.send("adopt", pack=step.pack_id.hex())
    assert hand.receive()[0]["errno"] == errno.EIO
    store.close()


def test_a_damaged_catalog_fails_the_collection_and_not_the_worker(hand: Hand, layout: Layout) -> None:
    hand.send("note")
    assert hand.receive()[0]["newest"] == 0  # by now it has opened the catalog
    with sqlite3.connect(layout.catalog) as catalog:
        catalog.execute("DROP TABLE pack")
    catalog.close()
    hand.send("note")
    answer = hand.receive()[0]
    assert (answer["op"], answer["errno"]) == ("note", errno.EIO)
    hand.send("delete", keys=[1])
    assert hand.receive()[0]["errno"] == errno.EIO


def test_without_a_mark_nothing_is_deleted(hand: Hand, layout: Layout) -> None:
    with open_store(layout.root.parent) as store:
        save(store, random_bytes(4000))
    hand.send("delete", keys=[1])
    answer = hand.receive()[0]
    assert (answer["op"], answer["errno"]) == ("delete", errno.EIO)
    assert len(pack_paths(layout)) == 1


def test_it_ends_with_exit_code_0_when_the_mount_closes_its_end(hand: Hand, layout: Layout) -> None:
    hand.send("begin", stream=1)
    hand.data(1, random_bytes(5000))
    hand.socket.shutdown(socket.SHUT_RDWR)
    assert hand.process.wait(LIMIT) == 0
    assert pack_paths(layout) == []


def test_it_leaves_the_signals_of_terminal_and_service_to_the_mount(hand: Hand) -> None:
    hand.settle()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        hand.process.send_signal(number)
    hand.settle()
    assert hand.process.poll() is None
    assert os.getsid(hand.process.pid) == hand.process.pid


def test_it_keeps_the_store_locked_while_it_lives(hand: Hand, layout: Layout) -> None:
    hand.settle()
    hand.held.abandon()
    assert lock.is_held(layout)
    hand.socket.shutdown(socket.SHUT_RDWR)
    hand.process.wait(LIMIT)
    assert not lock.is_held(layout)
    hand.held = lock.acquire(layout)


def test_it_dies_with_the_process_that_started_it(tmp_path: Path, layout: Layout) -> None:
    # The parent is killed and its end of the socket kept open here: only the kernel can tell the worker.
    code = (
        "import os, sys, signal\n"
        "from kvtool.store import child\n"
        "fds = [int(fd) for fd in sys.argv[1:3]]\n"
        "arguments = ['--socket', sys.argv[1], '--memory', sys.argv[2], *sys.argv[3:]]\n"
        "print(child.start('kvtool.store.worker', arguments, fds).pid, flush=True)\n"
        "signal.pause()\n"
    )
    memory_fd, memory = slots.create(SIZES.max_size, 2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rest = ["--headroom", str(SIZES.max_size), "--slots", "2"]
        rest += ["--store", str(layout.root), "--stubs", str(layout.stubs)]
        parent = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno()), str(memory_fd), *rest],
            pass_fds=[theirs.fileno(), memory_fd],
            stdout=subprocess.PIPE,
        )
        assert parent.stdout
        worker = int(parent.stdout.readline())
        ours.settimeout(LIMIT)
        ours.sendall(wire.encode("note"))
        assert ours.recv(100)
        parent.kill()
        parent.communicate(timeout=LIMIT)
        processes.wait_gone([worker], LIMIT)
    memory.close()
    os.close(memory_fd)


def test_frames_are_lengths_a_json_object_and_a_body() -> None:
    frame = wire.encode("data", b"\x00\xff", stream=1, name="ä\udcff")
    header, body = struct.unpack("<II", frame[:8])
    assert (len(frame), body) == (8 + header + 2, 2)
    assert json.loads(frame[8 : 8 + header]) == {"op": "data", "stream": 1, "name": "ä\udcff"}
    assert wire.decode(frame[8 : 8 + header]) == {"op": "data", "stream": 1, "name": "ä\udcff"}


@pytest.mark.parametrize("headroom", [1, 4096, 4097, 256 << 10])
def test_slots_are_apart_and_seen_through_another_map(headroom: int) -> None:
    fd, ours = slots.create(headroom, 3)
    theirs = Slots(fd, headroom, 3)
    assert ours.headroom >= headroom
    assert ours.headroom % 4096 == 0
    for number in range(3):
        ours.slot(number)[:] = bytes([number + 1]) * (ours.headroom + DATA_SIZE)
    for number in range(3):
        assert bytes(theirs.slot(number)) == bytes([number + 1]) * (ours.headroom + DATA_SIZE)
    assert os.fstat(fd).st_size == 3 * (ours.headroom + DATA_SIZE)
    ours.close()
    theirs.close()
    os.close(fd)


def test_the_write_queue_bounds_the_slots() -> None:
    headroom = 256 << 10
    for queue in (8 << 20, 64 << 20, 1 << 30):
        count = slots.count_for(queue, headroom)
        assert count * (headroom + DATA_SIZE) <= queue < (count + 1) * (headroom + DATA_SIZE)
    assert slots.count_for(1, headroom) == 2


def test_a_worker_that_is_told_nonsense_ends(hand: Hand) -> None:
    hand.send("dance")
    assert hand.process.wait(LIMIT) != 0
