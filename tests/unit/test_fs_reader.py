"""The reader: every byte right, each segment fetched once, what fails tried again."""

import errno
from array import array
from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kvtool.core.index import Index
from kvtool.core.readplan import Placement, ReadPlan
from kvtool.errors import ChunkCorrupt, ChunkMissing
from kvtool.fs.reader import Position, Reader
from tests.readers import DATA, SEGMENT, Disk, plan_of, read_all, run, settled
from tests.stores import SIZES


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


@pytest.mark.parametrize("when", ["failures", "decayed"])
def test_a_failed_segment_is_an_error_and_the_next_read_tries_again(disk: Disk, when: str) -> None:
    async def act(reader: Reader) -> None:
        plan, position = plan_of(), Position()
        for error in (ChunkCorrupt(bytes(32), 1, "a pack"), OSError(errno.EIO, "broken")):
            getattr(disk, when)[1] = error
            with pytest.raises(type(error)):
                await reader.read(plan, position, 500, 1000)  # a part of it is no answer
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
