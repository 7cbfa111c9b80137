"""Saves through shared memory: nobody waits for ever, and a dead worker costs the saves under way alone."""

import errno
import os
import signal
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from kvtool.core.index import Index
from kvtool.fs.writer import IngestWorker, SaveStream
from kvtool.store.ingest import Saved
from kvtool.store.slots import DATA_SIZE
from tests.service import Service, serve
from tests.stores import SIZES, pack_paths, read
from tests.synth import random_bytes

ExpectLog = Callable[[str], None]


def content(service: Service, saved: Saved) -> bytes:
    return read(service.store, Index(SIZES).extended(saved.lengths, saved.ids))


def kill(worker: IngestWorker) -> None:
    """The worker is dead when this returns, and nobody has been told."""
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("step", [1000, DATA_SIZE - 1, DATA_SIZE, 2 * DATA_SIZE + 5])
def test_writes_of_any_size_come_out_as_they_went_in(tmp_path: Path, step: int) -> None:
    data = random_bytes(3 * DATA_SIZE + 7)

    async def act(service: Service) -> None:
        stream = await service.worker.begin(None)
        for start in range(0, len(data), step):
            await stream.write(data[start : start + step])
        saved = await stream.finish()
        assert content(service, saved) == data
        assert service.worker.queued == 0

    serve(tmp_path, act, count=2)


def test_nothing_written_is_an_empty_save(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        stream = await service.worker.begin(None)
        await stream.write(b"")
        assert await stream.finish() == Saved(array("Q"), b"", 0, 0)

    serve(tmp_path, act)


def test_half_filled_slots_of_idle_saves_do_not_stop_others(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        idle = [await service.worker.begin(None) for _ in range(5)]
        for number, stream in enumerate(idle):  # one after the other, on two slots
            await stream.write(bytes([number]) * (1000 + number))
        busy = await service.worker.begin(None)
        data = random_bytes(3 * DATA_SIZE)
        await busy.write(data)
        assert content(service, await busy.finish()) == data
        for number, stream in enumerate(idle):
            await stream.write(b"end")
            assert content(service, await stream.finish()) == bytes([number]) * (1000 + number) + b"end"
        assert service.worker.queued == 0

    serve(tmp_path, act, count=2)


@pytest.mark.parametrize("count", [2, 3])
def test_saves_that_wait_for_slots_at_once_and_then_idle_do_not_stop_each_other(
    tmp_path: Path, count: int
) -> None:
    async def act(service: Service) -> None:
        streams = [await service.worker.begin(None) for _ in range(12)]
        full = [await service.worker.begin(None) for _ in range(count)]
        for stream in full:  # all slots are on their way to the worker
            await stream.write(bytes(DATA_SIZE))
        async with trio.open_nursery() as nursery:
            for number, stream in enumerate(streams):
                nursery.start_soon(stream.write, bytes([number]) * 500)
        for number, stream in enumerate(streams):
            assert content(service, await stream.finish()) == bytes([number]) * 500

    serve(tmp_path, act, count=count)


def test_a_given_up_save_frees_its_slot_and_leaves_no_pack(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        stream = await service.worker.begin(None)
        await stream.write(random_bytes(DATA_SIZE + 100))
        await stream.drop()
        await service.worker.note()  # the worker has done all before
        assert service.worker.queued == 0
        assert list(service.store.layout.incoming.iterdir()) == []
        with pytest.raises(OSError, match="given up"):
            await stream.write(b"more")
        with pytest.raises(OSError, match="given up"):
            await stream.finish()

    serve(tmp_path, act, count=2)


def test_bytes_that_change_on_the_way_fail_the_save(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        stream = await service.worker.begin(None)
        await stream.write(b"right" * 100)
        assert stream._slot is not None
        service.worker.fill(stream._slot, 7, memoryview(b"X"))
        with pytest.raises(OSError, match="are not those that were written") as caught:
            await stream.finish()
        assert caught.value.errno == errno.EIO
        assert pack_paths(service.store) == []

    serve(tmp_path, act)


def test_the_reason_of_a_failed_save_comes_with_the_next_write(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        service.store.layout.incoming.rmdir()
        stream = await service.worker.begin(None)
        await stream.write(random_bytes(DATA_SIZE))
        await stream.settled.wait()
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                await stream.write(b"more")
        with pytest.raises(FileNotFoundError):
            await stream.finish()
        await service.worker.note()  # it has freed the slot by now
        assert service.worker.queued == 0

    serve(tmp_path, act)


def test_a_killed_worker_fails_what_was_under_way_and_the_next_save_works(
    tmp_path: Path, expect_log: ExpectLog
) -> None:
    expect_log("ended unasked: 3 saves under way are lost")

    async def act(service: Service) -> None:
        worker = service.worker
        streams = [await worker.begin(None) for _ in range(3)]
        await streams[0].write(random_bytes(DATA_SIZE))
        await streams[1].write(b"half a slot")
        first = worker.pid
        kill(worker)
        for stream in streams:
            with pytest.raises(OSError, match="worker died") as caught:
                await stream.finish()
            assert caught.value.errno == errno.EIO
            with pytest.raises(OSError, match="worker died"):
                await stream.write(b"more")
            await stream.drop()
        assert worker.queued == 0
        stream = await worker.begin(None)
        assert worker.pid not in {None, first}
        await stream.write(b"again")
        assert content(service, await stream.finish()) == b"again"

    serve(tmp_path, act)


def test_whoever_waits_for_a_slot_when_the_worker_dies_gets_an_error(
    tmp_path: Path, expect_log: ExpectLog
) -> None:
    expect_log("ended unasked")

    async def act(service: Service) -> None:
        worker = service.worker
        streams = [await worker.begin(None) for _ in range(4)]
        await worker.note()
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        failed: list[int] = []

        async def write(stream: SaveStream) -> None:
            with pytest.raises(OSError, match="worker died"):
                await stream.write(bytes(3 * DATA_SIZE))
            failed.append(stream.number)

        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(write, stream)
            await trio.testing.wait_all_tasks_blocked()
            kill(worker)
        assert len(failed) == 4
        assert worker.queued == 0

    serve(tmp_path, act, count=2)


def test_a_question_to_a_worker_that_dies_is_an_error_and_not_a_wait(
    tmp_path: Path, expect_log: ExpectLog
) -> None:
    # What is noticed first, the end or the question, is up to chance: hence the rounds.
    expect_log("ended unasked")

    async def act(service: Service) -> None:
        for _ in range(12):
            await service.worker.note()
            kill(service.worker)
            try:
                await service.worker.note()  # its successor answers when the end is noticed first
            except OSError as error:
                assert "worker died" in str(error)  # noqa: PT017  (either outcome is right)

    serve(tmp_path, act)


def test_saves_begun_while_the_worker_dies_fail_or_work_and_no_slot_is_lost(
    tmp_path: Path, expect_log: ExpectLog
) -> None:
    expect_log("ended unasked")

    async def act(service: Service) -> None:
        worker = service.worker
        done: list[bool] = []
        errors: set[int | None] = set()

        async def save(seed: int) -> None:
            data = bytes([seed]) * (DATA_SIZE + 100)
            try:
                stream = await worker.begin(None)
                await stream.write(data)
                saved = await stream.finish()
            except OSError as error:
                done.append(False)
                errors.add(error.errno)
            else:
                assert content(service, saved) == data
                done.append(True)

        for _ in range(8):
            await worker.note()
            async with trio.open_nursery() as nursery:
                for seed in range(3):
                    nursery.start_soon(save, seed)
                kill(worker)
                for seed in range(3, 6):
                    nursery.start_soon(save, seed)
            assert worker.queued == 0
        assert errors <= {errno.EIO}
        await save(9)
        assert done[-1]

    serve(tmp_path, act, count=3)
