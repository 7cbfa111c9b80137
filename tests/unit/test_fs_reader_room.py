"""The reader's room: bounded, given back, and nobody left waiting for it."""

import random

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from kvtool.fs.reader import Position, Reader
from tests.readers import DATA, SEGMENT, Disk, plan_of, read_all, run, settled


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
