"""The reader: every byte right, each segment fetched once, memory bounded, nobody left waiting."""

import errno
import random
import threading
from array import array
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from kvtool.core.index import Index
from kvtool.core.readplan import Placement, ReadPlan, Segment
from kvtool.errors import ChunkCorrupt, ChunkMissing
from kvtool.fs import reader as reader_module
from kvtool.fs.reader import Position, Reader
from tests.stores import SIZES
from tests.synth import random_bytes

SEGMENT = 1000
DATA = random_bytes(20_000)
LIMIT = 20.0


class Disk:
    """Stands for `bring_segment`: what is asked for, and when it comes."""

    def __init__(self) -> None:
        self.fetched: list[int] = []
        self.failures: dict[int, Exception] = {}
        self.decayed: dict[int, Exception] = {}  # after it was fetched
        self.copied = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, packs: object, plan: ReadPlan, segment: Segment) -> "Content":
        self.fetched.append(segment.number)
        assert self.gate.wait(LIMIT)
        if segment.number in self.failures:
            raise self.failures.pop(segment.number)
        return Content(self, segment)


class Content:
    """A segment from it."""

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk, self._segment = disk, segment

    def copy(self, start: int, end: int, into: memoryview) -> None:
        self._disk.copied += 1
        begin = self._segment.start
        into[:] = b"\xee" * len(into)
        if self._segment.number in self._disk.decayed:
            raise self._disk.decayed.pop(self._segment.number)
        into[:] = DATA[begin + start : begin + end]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Segments of 1,000 bytes instead of 4 MiB, from a disk of ours."""
    disk = Disk()
    monkeypatch.setattr(reader_module, "bring_segment", disk)
    monkeypatch.setattr(reader_module, "SEGMENT_SIZE", SEGMENT)
    monkeypatch.setattr(reader_module, "_NEAR", SEGMENT)
    monkeypatch.setattr(reader_module, "_FULL_SPEED", 300)
    return disk


def plan_of(lengths: list[int] | None = None) -> ReadPlan:
    lengths = lengths or [100] * 200
    count = len(lengths)
    index = Index(SIZES).extended(array("Q", lengths), bytes(32 * count))
    blank = array("Q", [0] * count)
    return ReadPlan.build(index, Placement(blank, blank, blank), SEGMENT)


def run(
    act: Callable[[Reader], Awaitable[None]], *, read_ahead: int = 4, cache: int = 10, workers: int = 2
) -> None:
    async def main() -> None:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                reader = Reader(
                    None,  # type: ignore[arg-type]
                    nursery,
                    read_ahead=read_ahead * SEGMENT,
                    cache=cache * SEGMENT,
                    workers=workers,
                )
                await act(reader)

    trio.run(main)


async def settled(reader: Reader) -> None:
    """Returns when all that is on its way has come."""
    while not all(held.ready.is_set() for held in reader._held.values()):
        await trio.lowlevel.checkpoint()


async def read_all(reader: Reader, plan: ReadPlan, step: int, start: int = 0) -> bytes:
    position, parts = Position(), []
    while True:
        piece = bytes(await reader.read(plan, position, start, step))
        if not piece:
            return b"".join(parts)
        parts.append(piece)
        start += len(piece)


@pytest.mark.parametrize("step", [1, 7, 128, 999, 1000, 1001, 4500, 30_000])
def test_a_sequential_reader_gets_every_byte_and_each_segment_is_read_once(disk: Disk, step: int) -> None:
    async def act(reader: Reader) -> None:
        assert await read_all(reader, plan_of(), step) == DATA
        assert sorted(disk.fetched) == list(range(20))
        assert reader.bytes_fetched == len(DATA)

    run(act)


def test_a_sequential_reader_has_the_next_bytes_fetched_ahead(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        await reader.read(plan_of(), Position(), 0, 10)
        await settled(reader)
        assert sorted(disk.fetched) == [0, 1, 2, 3, 4]

    run(act, read_ahead=4)


@pytest.mark.parametrize(("offset", "size"), [(19_950, 100), (19_999, 1), (20_000, 10), (50_000, 10), (0, 0)])
def test_reads_at_the_end_are_short(disk: Disk, offset: int, size: int) -> None:
    async def act(reader: Reader) -> None:
        assert await reader.read(plan_of(), Position(), offset, size) == DATA[offset : offset + size]

    run(act)


def test_an_empty_file_is_read(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        empty = Index(SIZES)
        nothing = array("Q")
        plan = ReadPlan.build(empty, Placement(nothing, nothing, nothing))
        assert await reader.read(plan, Position(), 0, 10) == b""

    run(act)


def test_a_random_reader_has_nothing_fetched_ahead(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan, position = plan_of(), Position()
        for offset in (15_050, 3_010, 9_990):
            assert await reader.read(plan, position, offset, 20) == DATA[offset : offset + 20]
            await settled(reader)
        assert sorted(disk.fetched) == [3, 9, 10, 15]

    run(act)


def test_a_reader_from_the_middle_is_sequential_after_a_while(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan, position = plan_of(), Position()
        for offset in range(10_000, 10_300, 100):
            await reader.read(plan, position, offset, 100)
        await settled(reader)
        assert disk.fetched == [10]
        await reader.read(plan, position, 10_300, 100)
        await settled(reader)
        assert sorted(disk.fetched) == [10, 11, 12, 13, 14]

    run(act)


def test_a_look_at_the_tail_first_changes_nothing(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan, position = plan_of(), Position()
        await reader.read(plan, position, 19_990, 10)
        await reader.read(plan, position, 0, 10)
        await settled(reader)
        assert sorted(disk.fetched) == [0, 1, 2, 3, 4, 19]

    run(act)


def test_a_failed_segment_is_an_error_and_the_next_read_tries_again(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan, position = plan_of(), Position()
        for error in (ChunkCorrupt(bytes(32), 1, "a pack"), OSError(errno.EIO, "broken")):
            disk.failures[0] = error
            with pytest.raises(type(error)):
                await reader.read(plan, position, 0, 100)
        assert await reader.read(plan, position, 0, 100) == DATA[:100]
        disk.failures[2] = ChunkCorrupt(bytes(32), 1, "a pack")
        with pytest.raises(ChunkCorrupt):
            await reader.read(plan, Position(), 1500, 2000)  # a part of it is no answer
        assert await reader.read(plan, position, 1500, 2000) == DATA[1500:3500]

    run(act, read_ahead=0)


def test_a_segment_that_decays_before_the_reply_is_an_error_and_fetched_again(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan, position = plan_of(), Position()
        for error in (ChunkCorrupt(bytes(32), 1, "a pack"), OSError(errno.EIO, "broken")):
            disk.decayed[1] = error
            with pytest.raises(type(error)):
                await reader.read(plan, position, 500, 1000)
        assert await reader.read(plan, position, 500, 1000) == DATA[500:1500]
        assert disk.fetched.count(1) == 3

    run(act, read_ahead=0)


def test_what_a_collection_moves_before_the_reply_is_fetched_from_its_new_place(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        disk.decayed[1] = ChunkMissing("moved")
        assert await reader.read(plan_of(), Position(), 500, 1000) == DATA[500:1500]
        assert disk.fetched.count(1) == 2
        assert reader.bytes_held <= 2 * SEGMENT

    run(act, read_ahead=0)


def test_what_is_missing_for_good_is_an_error(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        class Moving(dict[int, Exception]):
            def pop(self, _number: int, *_default: object) -> Exception:
                return ChunkMissing("moved again")

        disk.decayed = Moving({0: ChunkMissing("moved")})
        with pytest.raises(ChunkMissing):
            await reader.read(plan_of(), Position(), 0, 100)

    run(act, read_ahead=0)


def test_small_reads_of_one_large_chunk_copy_it_once(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan = plan_of([4000, 4000, 4000])
        assert await read_all(reader, plan, 100) == DATA[:12_000]
        assert disk.copied == 3

    run(act)


def test_two_files_are_not_mixed_up(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        first, second = plan_of([4000]), plan_of([4000])
        for plan in (first, second, second, first, first):
            assert await reader.read(plan, Position(), 0, 100) == DATA[:100]
        assert disk.copied == 3
        reader.forget(first)
        assert await reader.read(first, Position(), 100, 100) == DATA[100:200]
        assert disk.copied == 4

    run(act)


def test_an_unforeseen_error_is_eio_and_logged(disk: Disk, expect_log: Callable[[str], None]) -> None:
    expect_log("reading segment 0")

    async def act(reader: Reader) -> None:
        disk.failures[0] = ZeroDivisionError()
        with pytest.raises(OSError, match="ZeroDivisionError") as caught:
            await reader.read(plan_of(), Position(), 0, 100)
        assert caught.value.errno == errno.EIO

    run(act, read_ahead=0)


def test_what_failed_ahead_of_the_reader_is_tried_again_when_it_comes_there(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        disk.failures[2] = OSError(errno.EIO, "a moment's trouble")
        plan, position = plan_of(), Position()
        await reader.read(plan, position, 0, 10)
        await settled(reader)
        assert 2 not in disk.failures
        assert await read_all(reader, plan, 500) == DATA

    run(act)


def test_waiting_for_the_same_segment_all_get_it_and_it_is_read_once(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan, found = plan_of(), []

        async def one(offset: int) -> None:
            found.append(bytes(await reader.read(plan, Position(), offset, 50)) == DATA[offset : offset + 50])

        disk.gate.clear()
        async with trio.open_nursery() as nursery:
            for offset in range(0, 800, 100):
                nursery.start_soon(one, offset)
            await wait_all_tasks_blocked()
            disk.gate.set()
        assert found == [True] * 8
        assert disk.fetched.count(0) == 1

    run(act)


@pytest.mark.parametrize("seed", range(6))
def test_many_readers_with_little_room_all_finish_within_the_budget(disk: Disk, seed: int) -> None:
    draw = random.Random(seed)

    async def act(reader: Reader) -> None:
        async def one(step: int, start: int) -> None:
            assert await read_all(reader, plan_of(), step, start) == DATA[start:]

        async def jumping(offsets: list[int]) -> None:
            plan, position = plan_of(), Position()
            for offset in offsets:
                assert reader.bytes_held <= 2 * SEGMENT
                assert await reader.read(plan, position, offset, 30) == DATA[offset : offset + 30]

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(one, draw.randrange(200, 3000), draw.choice([0, 0, 7777]))
                nursery.start_soon(jumping, [draw.randrange(len(DATA)) for _ in range(30)])
        assert reader.bytes_held <= 2 * SEGMENT

    run(act, cache=2, workers=3)


def test_who_waits_for_room_gets_that_of_a_reader_that_stops_half_way(disk: Disk) -> None:
    # Whether the one who waits runs before or after those that have read is up to chance: hence the rounds.
    async def act(reader: Reader) -> None:
        for _ in range(25):
            disk.gate.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(reader.read, plan_of(), Position(), 15_000, 10)
                await wait_all_tasks_blocked()
                disk.gate.set()

    run(act, cache=2, workers=4)


def test_a_segment_larger_than_all_the_room_is_read_alone(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan = plan_of([9000, 500, 500])
        assert await read_all(reader, plan, 4000) == DATA[:10_000]
        assert reader.bytes_held == 0

    run(act, cache=3)


def test_a_segment_larger_than_others_gets_the_room_of_several(disk: Disk) -> None:
    # A chunk may be longer than a segment; what others left half read has to make room for it.
    async def act(reader: Reader) -> None:
        for _ in range(4):
            await reader.read(plan_of(), Position(), 15_000, 10)
        assert reader.bytes_held == 4 * SEGMENT
        assert await reader.read(plan_of([4000, 500]), Position(), 0, 4000) == DATA[:4000]
        assert reader.bytes_held <= 4 * SEGMENT
        assert await reader.read(plan_of(), Position(), 15_000, 10) == DATA[15_000:15_010]

    run(act, cache=4, read_ahead=0)


def test_a_segment_whose_bytes_are_all_handed_out_is_let_go(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        for _ in range(5):
            assert await read_all(reader, plan_of(), 1000) == DATA
        assert reader.bytes_held <= 2 * SEGMENT

    run(act, read_ahead=1, cache=50)


def test_a_forgotten_file_makes_room_for_others(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan = plan_of()
        await reader.read(plan, Position(), 0, 10)
        await settled(reader)
        held = reader.bytes_held
        assert held == 5 * SEGMENT
        reader.forget(plan)
        other = plan_of()
        await reader.read(other, Position(), 0, 10)
        await settled(reader)
        assert reader.bytes_held == held

    run(act, cache=50)


def test_what_is_on_its_way_of_a_forgotten_file_gives_its_room_back(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        plan = plan_of()
        async with trio.open_nursery() as nursery:
            disk.gate.clear()
            nursery.start_soon(reader.read, plan, Position(), 0, 10)
            await trio.testing.wait_all_tasks_blocked()
            assert reader.bytes_held == 5 * SEGMENT
            reader.forget(plan)
            assert reader.bytes_held == 5 * SEGMENT  # there is a bound on what is on its way
            disk.gate.set()
        other = plan_of()
        assert await read_all(reader, other, 1000) == DATA
        reader.forget(plan)
        while reader.bytes_held:
            await trio.lowlevel.checkpoint()
        assert len(disk.fetched) <= 20 + 1 + 2  # what the reader waited for, and what two threads had begun

    run(act, cache=50)


def test_what_others_fetched_ahead_is_taken_only_by_who_waits(disk: Disk) -> None:
    async def act(reader: Reader) -> None:
        first, second = plan_of(), plan_of()
        await reader.read(first, Position(), 0, 10)
        await settled(reader)
        assert sorted(disk.fetched) == [0, 1, 2, 3]
        assert await reader.read(second, Position(), 0, 10) == DATA[:10]
        await settled(reader)
        assert sorted(disk.fetched) == [0, 0, 1, 2, 3]
        assert reader.bytes_held == 4 * SEGMENT

    run(act, cache=4, read_ahead=4)
