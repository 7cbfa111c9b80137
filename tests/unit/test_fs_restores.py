"""What who restores a file gets: its own bytes or EIO, and room for what is read ahead."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kvtool.core.index import Index
from kvtool.core.readplan import ReadPlan, Segment
from kvtool.errors import ChunkCorrupt, ChunkMissing, KvtoolError
from kvtool.fs import reader as reader_module
from kvtool.fs.inodes import ROOT
from kvtool.fs.types import Change
from kvtool.store import stubs
from kvtool.store.fetch import Brought
from kvtool.store.store import Store
from tests.readers import LIMIT, settled
from tests.service import Service, serve
from tests.stores import flip, pack_paths
from tests.synth import random_bytes

ExpectLog = Callable[[str], None]
OLD, NEW = random_bytes(5000, 1), random_bytes(3 << 20, 2)


def test_a_chunk_whose_pack_is_gone_is_eio_at_open_and_named(tmp_path: Path, expect_log: ExpectLog) -> None:
    expect_log("opening /a failed: chunk [0-9a-f]{64} is missing: pack .* is gone")

    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        await service.put(b"b", NEW[:5000])
        pack = service.store.packs.path(1)
        content = pack.read_bytes()
        pack.unlink()
        with pytest.raises(ChunkMissing) as caught:
            await service.open(b"a")
        assert caught.value.errno == errno.EIO
        assert service.vfs.open_files() == 0
        assert await service.get(b"b") == NEW[:5000]
        pack.write_bytes(content)
        assert await service.get(b"a") == OLD

    serve(tmp_path, act)


def test_a_damaged_chunk_is_eio_at_its_bytes_and_only_there(tmp_path: Path, expect_log: ExpectLog) -> None:
    expect_log("reading /a failed: chunk")
    expect_log("opening /a failed: chunk")
    data = random_bytes(9 << 20)

    async def act(service: Service) -> None:
        await service.put(b"a", data)
        [path] = pack_paths(service.store)
        flip(path, 4096 + 10)
        handle = await service.open(b"a")
        with pytest.raises(ChunkCorrupt):
            await service.vfs.read(handle, 0, 100)
        await service.worker.forget_notes()  # an answer: the worker has looked at the chunk
        with pytest.raises(ChunkMissing):
            await service.open(b"a")
        assert await service.vfs.read(handle, 8 << 20, 1 << 20) == data[8 << 20 :]
        flip(path, 4096 + 10)
        assert await service.vfs.read(handle, 0, 100) == data[:100]
        await service.close(handle)

    serve(tmp_path, act)


def test_a_pack_that_cannot_be_read_is_eio_and_named(tmp_path: Path, expect_log: ExpectLog) -> None:
    expect_log("reading /a failed: .*[.]pack: Is a directory")

    async def act(service: Service) -> None:
        data = random_bytes(5000)
        await service.put(b"a", data)
        handle = await service.open(b"a")
        [path] = pack_paths(service.store)
        aside = path.rename(tmp_path / "aside")
        path.mkdir()
        service.store.packs.close()
        with pytest.raises(KvtoolError, match=str(path)) as caught:
            await service.vfs.read(handle, 0, 100)
        assert caught.value.errno == errno.EIO
        path.rmdir()
        aside.rename(path)
        assert await service.vfs.read(handle, 0, 5000) == data
        await service.close(handle)

    serve(tmp_path, act)


def test_a_closed_file_leaves_the_room_to_those_that_are_read(tmp_path: Path) -> None:
    """Many look at the beginnings of files alone: what was brought ahead of them is for nobody."""

    async def act(service: Service) -> None:
        reader = service.env.reader
        for name in (b"a", b"b"):
            await service.put(name, random_bytes(9 << 20, name[0]))
        held = []
        for name in (b"a", b"b"):
            handle = await service.open(name)
            await service.vfs.read(handle, 0, 100)
            await settled(reader)
            held.append(reader.bytes_held)
            await service.close(handle)
        assert held[0] > 0
        assert reader.bytes_held == held[1] - held[0]

    serve(tmp_path, act)


@pytest.mark.parametrize("offset", [9 << 20, 5])
def test_a_write_gives_back_the_room_of_what_was_read_before(tmp_path: Path, offset: int) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", random_bytes(9 << 20))
        handle = await service.open(b"a", os.O_RDWR)
        await service.vfs.read(handle, 0, 100)
        await settled(service.env.reader)
        assert service.env.reader.bytes_held > 0
        await service.vfs.write(handle, offset, b"x")
        assert service.env.reader.bytes_held == 0
        await service.close(handle)

    serve(tmp_path, act)


def test_a_read_that_a_write_overtakes_gives_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, bring, gate = random_bytes(9 << 20), reader_module.bring_segment, threading.Event()

    def late(store: Store, plan: ReadPlan, segment: Segment) -> Brought:
        assert gate.wait(LIMIT)
        return bring(store, plan, segment)

    async def act(service: Service) -> None:
        await service.put(b"a", data)
        monkeypatch.setattr(reader_module, "bring_segment", late)
        handle = await service.open(b"a", os.O_RDWR)

        async def read() -> None:
            assert await service.vfs.read(handle, 0, 100) == data[:100]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            await service.vfs.write(handle, len(data), b"x")
            gate.set()
        with trio.fail_after(LIMIT):
            while service.env.reader.bytes_held:  # what is on its way is let go of when it comes
                await trio.lowlevel.checkpoint()
        await service.close(handle)

    serve(tmp_path, act)


def test_a_file_that_is_replaced_before_it_is_opened_is_looked_up_again(tmp_path: Path) -> None:
    """rename(2) puts one file in another's place at once: who opens the name finds the one or the other."""

    async def act(service: Service) -> None:
        for name in (b"a", b"b"):
            await service.put(name, OLD)
        found, stale = service.vfs.lookup(ROOT, b"a"), os.strerror(errno.ESTALE)  # has the kernel look again
        await service.vfs.rename(ROOT, b"b", ROOT, b"a")
        for asked in (service.vfs.open(found.ino, 0), service.vfs.setattr(found.ino, Change(mode=0o600))):
            with pytest.raises(OSError, match=stale):
                await asked
        with pytest.raises(OSError, match=stale):
            service.vfs.getattr(found.ino)

    serve(tmp_path, act)


@pytest.mark.parametrize("how", ["replaced", "unlinked"])
def test_a_file_that_goes_while_it_is_being_opened_has_its_own_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    read_index = stubs.read_index

    async def save(service: Service) -> None:
        await service.put(b"a", OLD)
        await service.put(b"b", NEW)

    async def act(service: Service) -> None:
        calls = []

        def meanwhile(path: bytes) -> Index:
            calls.append(path)
            if len(calls) == 1 and how == "replaced":
                trio.from_thread.run(service.vfs.rename, ROOT, b"b", ROOT, b"a")
            elif len(calls) == 1:
                trio.from_thread.run(service.vfs.unlink, ROOT, b"a")
            return read_index(path)

        monkeypatch.setattr(stubs, "read_index", meanwhile)
        assert await service.get(b"a") == OLD
        assert len(calls) == 2

    serve(tmp_path, save)
    serve(tmp_path, act)
