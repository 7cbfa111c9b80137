"""Each race between a collection and what a mount does meanwhile, driven by hand."""

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kvtool.errors import KvtoolError
from kvtool.fs.collection import Collection, Collector
from kvtool.fs.inodes import ROOT
from kvtool.fs.types import Caller
from kvtool.store import collect, stubs
from kvtool.store.collect import Collected
from kvtool.store.layout import Layout
from tests import processes
from tests.service import Service, ThreadCollection, serve
from tests.stores import pack_paths
from tests.synth import random_bytes

ExpectLog = Callable[[str], None]
A, B, C = (random_bytes(40_000, seed) for seed in (1, 2, 3))
W, APPEND, TRUNC = os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_TRUNC


def collected(
    service: Service, meanwhile: Callable[[dict[str, Any]], Awaitable[None]] | None = None
) -> Awaitable[Collected]:
    """A collection; `meanwhile` runs when a step of the collector is known and not yet handled."""
    collection = ThreadCollection(service.env)

    async def once(step: dict[str, Any] | None) -> None:
        if step is not None and meanwhile is not None:
            await meanwhile(step)

    collection.meanwhile = once  # type: ignore[method-assign]
    return collection.run()


async def unlink(service: Service, name: bytes) -> None:
    await service.vfs.unlink(ROOT, name)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"failed": "no space"}\n', "the collection stops: no space"),
        ('{"dead": [1, 2', "the collection stops: its process ended unasked"),
        ("", "the collection stops: its process ended unasked"),
    ],
)
def test_a_collector_that_ends_in_the_middle_stops_the_collection(said: str, told: str) -> None:
    code = f"import os; os.write(1, {said.encode()!r}); os._exit(1)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with pytest.raises(KvtoolError) as caught:
            trio.run(Collector(process).step)
        assert str(caught.value) == told


def test_a_save_that_reuses_an_orphan_during_the_mark(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", A)
        await unlink(service, b"a")

        async def meanwhile(step: dict[str, Any]) -> None:
            assert len(step["dead"]) == 1
            await service.put(b"again", A)

        assert await collected(service, meanwhile) == Collected()
        assert await service.get(b"again") == A
        await unlink(service, b"again")
        assert (await collected(service)).packs == 1

    serve(tmp_path, act)


def test_a_save_under_way_that_reuses_an_orphan(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", A)
        await unlink(service, b"a")
        handle = await service.create(b"b")
        await service.vfs.write(handle, 0, A)
        await service.vfs.write(handle, len(A), bytes(3 << 20))  # the worker has the beginning by now
        before = pack_paths(service.store)
        assert await collected(service) == Collected()
        assert set(before) <= set(pack_paths(service.store))
        await service.close(handle)
        assert await service.get(b"b") == A + bytes(3 << 20)

    serve(tmp_path, act)


def test_a_rename_across_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark reads the new folder, then the file moves there, then the mark reads the old one."""

    async def act(service: Service) -> None:
        vfs = service.vfs
        old = vfs.mkdir(ROOT, b"old", 0o755, Caller()).ino
        new = vfs.mkdir(ROOT, b"new", 0o755, Caller()).ino
        await service.put(b"a", A, old)
        real, token = stubs.walk, trio.lowlevel.current_trio_token()

        def walk(layout: Layout) -> Iterator[bytes]:
            seen = [path for path in real(layout) if b"/new/" in path]
            trio.from_thread.run(vfs.rename, old, b"a", new, b"a", trio_token=token)
            yield from seen
            yield from [path for path in real(layout) if b"/old/" in path]

        monkeypatch.setattr(stubs, "walk", walk)
        marked: list[int] = []

        async def meanwhile(step: dict[str, Any]) -> None:
            marked.extend(step["dead"])

        assert await collected(service, meanwhile) == Collected()
        assert marked == [1]  # the mark has missed it
        assert await service.get(b"a", new) == A

    serve(tmp_path, act)


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_file_that_is_unlinked_while_it_is_open(tmp_path: Path, when: str) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", A)
        handle = await service.open(b"a")

        async def meanwhile(step: dict[str, Any]) -> None:
            if when == "during":
                await unlink(service, b"a")

        if when == "before":
            await unlink(service, b"a")
        assert await collected(service, meanwhile) == Collected()
        assert await service.vfs.read(handle, 0, len(A)) == A
        await service.close(handle)
        assert (await collected(service)).packs == 1

    serve(tmp_path, act)


def test_a_replaced_file_that_is_still_open(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", A)
        await service.put(b"b", B)
        handle = await service.open(b"a")
        await service.vfs.rename(ROOT, b"b", ROOT, b"a", 0)
        assert await collected(service) == Collected()
        assert await service.vfs.read(handle, 0, len(A)) == A
        await service.close(handle)
        assert (await collected(service)).packs == 1
        assert await service.get(b"a") == B

    serve(tmp_path, act)


async def half_dead(service: Service) -> None:
    """One pack, of which `a`, the bytes A, needs half."""
    await service.put(b"whole", A + B)
    await service.put(b"a", A)
    await unlink(service, b"whole")


def test_compaction_under_a_reader(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await half_dead(service)
        [old] = [path for path in pack_paths(service.store) if path.stat().st_size > len(A)]
        handle = await service.open(b"a")
        freed = await collected(service)
        assert (freed.packs, freed.rewritten) == (1, 1)
        assert not old.exists()
        assert await service.vfs.read(handle, 0, len(A)) == A
        assert await service.get(b"a") == A
        await service.close(handle)
        assert await collected(service) == Collected()
        assert await service.get(b"a") == A

    serve(tmp_path, act)


@pytest.mark.parametrize("finished", [True, False])
def test_a_save_that_reuses_a_dead_chunk_of_a_pack_that_is_being_rewritten(
    tmp_path: Path, finished: bool
) -> None:
    async def act(service: Service) -> None:
        await half_dead(service)
        handles: list[int] = []

        async def meanwhile(step: dict[str, Any]) -> None:
            if "pack" in step:
                handle = await service.create(b"b")
                await service.vfs.write(handle, 0, B)
                if finished:
                    await service.close(handle)
                else:
                    await service.vfs.write(handle, len(B), bytes(3 << 20))
                    handles.append(handle)

        freed = await collected(service, meanwhile)
        assert (freed.packs, freed.rewritten) == (0, 1)  # the old pack is spared
        for handle in handles:
            await service.close(handle)
        assert (await service.get(b"b"))[: len(B)] == B
        assert await service.get(b"a") == A
        await collected(service)
        assert (await service.get(b"b"))[: len(B)] == B
        assert await service.get(b"a") == A

    serve(tmp_path, act)


def test_a_log_that_is_being_appended_to(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"log", A)
        await service.put(b"other", C)
        await unlink(service, b"other")
        handle = await service.open(b"log", APPEND)
        content = A
        for piece in (B[:1000], B[1000:3000]):
            await service.vfs.write(handle, len(content), piece)
            content += piece
            await service.vfs.fsync(handle)
            await collected(service)
        await service.close(handle)
        await collected(service)
        assert await service.get(b"log") == content

    serve(tmp_path, act)


def test_when_the_worker_dies_in_between_nothing_more_is_deleted(
    tmp_path: Path, expect_log: ExpectLog
) -> None:
    expect_log("ended unasked: 0 saves under way are lost")

    async def act(service: Service) -> None:
        await service.put(b"a", A)
        await unlink(service, b"a")

        async def meanwhile(step: dict[str, Any]) -> None:
            pid = service.worker.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while service.worker.pid == pid:
                await trio.sleep(0.01)
            handles.append(await service.create(b"again"))
            await service.vfs.write(handles[0], 0, A)  # its successor has not noted the beginning

        handles: list[int] = []
        with pytest.raises(OSError, match="is gone"):
            await collected(service, meanwhile)
        await service.close(handles[0])
        assert await service.get(b"again") == A
        assert await collected(service) == Collected()

    serve(tmp_path, act)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await half_dead(service)
        before = pack_paths(service.store)
        would = await ThreadCollection(service.env).run(dry_run=True)
        assert pack_paths(service.store) == before
        assert await collected(service) == would

    serve(tmp_path, act)


def test_a_store_without_packs(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        assert await collected(service) == Collected()
        assert collect.newest_pack(service.store) == 0

    serve(tmp_path, act)


def test_the_process_ends_with_the_collection(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await half_dead(service)
        freed = await Collection(service.env).run()
        assert (freed.packs, freed.rewritten) == (1, 1)
        assert await service.get(b"a") == A
        assert processes.family(os.getpid())[1:] == [service.worker.pid]

    serve(tmp_path, act)
