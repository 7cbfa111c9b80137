"""A file's content: what was committed stays until the new is, and failed content is never taken for good."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtool.errors import IndexDamaged
from kvtool.fs.inodes import ROOT, Inode
from kvtool.fs.types import Change
from kvtool.fs.writer import SaveStream
from kvtool.store import stubs
from kvtool.store.store import Store
from tests.service import Service, serve
from tests.stores import layout_in, pack_paths, read, stub
from tests.synth import random_bytes

ExpectLog = Callable[[str], None]
W, A, RW, TRUNC = os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_TRUNC
OLD, NEW = random_bytes(5000, 1), random_bytes(3 << 20, 2)


def committed(root: Path, name: str) -> bytes:
    """What a mount after a crash of now would show."""
    store = Store.open(layout_in(root), writable=False)
    try:
        return read(store, stubs.read_index(stub(store, name)))
    finally:
        store.close()


async def failing_save(service: Service, name: bytes, flags: int = W | TRUNC) -> int:
    """An open handle whose save has failed."""
    handle = await service.open(name, flags)
    service.store.layout.incoming.rmdir()
    with pytest.raises(FileNotFoundError):  # the real reason comes once
        await write_and_flush(service, handle, len(OLD) if flags & os.O_APPEND else 0)
    service.store.layout.incoming.mkdir()
    return handle


async def write_and_flush(service: Service, handle: int, offset: int) -> None:
    await service.vfs.write(handle, offset, NEW)
    await service.vfs.flush(handle)


@pytest.mark.parametrize("flags", [W | TRUNC, A, RW], ids=["rewrite", "append", "in place"])
def test_a_failed_save_poisons_the_file_and_the_old_content_stays_committed(
    tmp_path: Path, expect_log: ExpectLog, flags: int
) -> None:
    expect_log("saving /a failed")

    async def act(service: Service) -> None:
        vfs = service.vfs
        await service.put(b"a", OLD)
        handle = await failing_save(service, b"a", flags)
        number = service.lookup(b"a").ino
        calls = [
            lambda: vfs.write(handle, 0, b"x"),
            lambda: vfs.read(handle, 0, 10),
            lambda: vfs.flush(handle),
            lambda: vfs.fsync(handle),
            lambda: vfs.rename(ROOT, b"a", ROOT, b"b"),
            lambda: service.open(b"a"),
            lambda: service.open(b"a", W),
            lambda: vfs.setattr(number, Change(size=10)),
        ]
        for call in calls:
            with pytest.raises(OSError, match="earlier write") as caught:
                await call()
            assert caught.value.errno == errno.EIO
        await vfs.release(handle)
        with pytest.raises(OSError, match="earlier write"):
            await service.get(b"a")
        assert committed(tmp_path, "a") == OLD
        assert len(pack_paths(service.store)) == 1

    serve(tmp_path, act)
    serve(tmp_path, lambda service: same(service, b"a", OLD))


async def same(service: Service, name: bytes, data: bytes) -> None:
    assert await service.get(name) == data


@pytest.mark.parametrize("how", ["open", "ftruncate", "truncate"])
def test_emptying_a_poisoned_file_heals_it(tmp_path: Path, expect_log: ExpectLog, how: str) -> None:
    expect_log("saving /a failed")

    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        handle = await failing_save(service, b"a")
        if how != "ftruncate":
            await service.vfs.release(handle)
        if how == "open":
            handle = await service.open(b"a", W | TRUNC)
        else:
            await service.vfs.setattr(service.lookup(b"a").ino, Change(size=0))
            if how == "truncate":
                assert committed(tmp_path, "a") == b""
                handle = await service.open(b"a", W)
        await service.vfs.write(handle, 0, NEW[:9000])
        await service.close(handle)
        assert committed(tmp_path, "a") == NEW[:9000]
        assert await service.get(b"a") == NEW[:9000]
        await service.vfs.rename(ROOT, b"a", ROOT, b"b")

    serve(tmp_path, act)


def test_a_poisoned_file_can_be_unlinked_and_replaced(tmp_path: Path, expect_log: ExpectLog) -> None:
    expect_log("saving /a failed")

    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        await service.vfs.release(await failing_save(service, b"a"))
        await service.vfs.unlink(ROOT, b"a")
        await service.put(b"a", b"fresh")
        assert await service.get(b"a") == b"fresh"
        await service.vfs.release(await failing_save(service, b"a"))
        await service.put(b"b", b"other")
        await service.vfs.rename(ROOT, b"b", ROOT, b"a")
        assert await service.get(b"a") == b"other"

    serve(tmp_path, act)


def test_a_new_file_whose_save_failed_is_gone_after_the_end(tmp_path: Path, expect_log: ExpectLog) -> None:
    expect_log("saving /a failed")

    async def act(service: Service) -> None:
        await service.close(await service.create(b"kept"))
        handle = await service.create(b"a")
        service.store.layout.incoming.rmdir()
        with pytest.raises(FileNotFoundError):
            await write_and_flush(service, handle, 0)
        service.store.layout.incoming.mkdir()
        await service.vfs.release(handle)
        with pytest.raises(OSError, match="earlier write"):
            await service.get(b"a")

    serve(tmp_path, act)
    assert not os.path.lexists(tmp_path / "stubs" / "a")
    assert committed(tmp_path, "kept") == b""


@pytest.mark.parametrize("how", ["open", "ftruncate", "truncate"])
def test_what_was_there_stays_committed_until_the_new_content_is(tmp_path: Path, how: str) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        if how == "open":
            handle = await service.open(b"a", W | TRUNC)
        else:
            handle = await service.open(b"a", W)
            await service.vfs.setattr(service.lookup(b"a").ino, Change(size=0))
        assert service.lookup(b"a").size == 0
        assert committed(tmp_path, "a") == OLD
        await service.vfs.write(handle, 0, NEW)
        assert service.lookup(b"a").size == len(NEW)
        assert committed(tmp_path, "a") == OLD
        await service.vfs.flush(handle)
        assert committed(tmp_path, "a") == NEW
        await service.vfs.release(handle)

    serve(tmp_path, act)


def test_reading_what_is_being_saved_commits_nothing(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        handle = await service.open(b"a", RW | TRUNC)
        await service.vfs.write(handle, 0, NEW[:70_000])
        assert await service.vfs.read(handle, 100, 50) == NEW[100:150]
        assert committed(tmp_path, "a") == OLD
        await service.vfs.write(handle, 70_000, NEW[70_000:])
        assert await service.vfs.read(handle, len(NEW) - 50, 100) == NEW[-50:]
        assert committed(tmp_path, "a") == OLD
        await service.close(handle)
        assert committed(tmp_path, "a") == NEW

    serve(tmp_path, act)


def test_an_append_is_committed_with_the_chunks_of_one_pass(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"whole", NEW[:50_000])
        await service.put(b"a", b"")
        for start in range(0, 50_000, 7001):
            handle = await service.open(b"a", A)
            await service.vfs.write(handle, start, NEW[start : min(start + 7001, 50_000)])
            await service.close(handle)
        indexes = [list(stubs.read_index(stub(service.store, name)).chunks()) for name in ("a", "whole")]
        assert indexes[0] == indexes[1]

    serve(tmp_path, act)


def test_writes_out_of_order_and_other_sizes_give_the_bytes_of_a_plain_file(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        plain = bytearray(OLD)
        handle = await service.open(b"a", RW)
        for offset, data in ((10, b"ten"), (6000, b"beyond"), (0, b"front")):
            await service.vfs.write(handle, offset, data)
            plain.extend(bytes(max(0, offset - len(plain))))
            plain[offset : offset + len(data)] = data
            assert await service.vfs.read(handle, 0, 1 << 20) == plain
        await service.vfs.setattr(service.lookup(b"a").ino, Change(size=4000))
        del plain[4000:]
        await service.vfs.setattr(service.lookup(b"a").ino, Change(size=9000))
        plain.extend(bytes(5000))
        assert committed(tmp_path, "a") == OLD
        await service.close(handle)
        assert committed(tmp_path, "a") == plain
        assert await service.get(b"a") == plain

    serve(tmp_path, act)


@pytest.mark.parametrize("content", [b"hello", b"", bytes(104), random_bytes(4000)])
def test_a_file_that_is_no_stub_is_listed_and_not_opened(
    tmp_path: Path, expect_log: ExpectLog, content: bytes
) -> None:
    expect_log("opening /foreign failed")

    async def act(service: Service) -> None:
        path = tmp_path / "stubs" / "foreign"
        path.write_bytes(content)
        listing = service.vfs.opendir(ROOT)
        assert service.vfs.listdir(listing, rewind=True) == [b"foreign"]
        service.vfs.releasedir(listing)
        assert service.lookup(b"foreign").size == len(content)
        for flags in (os.O_RDONLY, W, A, RW):
            with pytest.raises(IndexDamaged) as caught:
                await service.open(b"foreign", flags)
            assert caught.value.errno == errno.EIO
        assert path.read_bytes() == content
        assert service.vfs.open_files() == 0

    serve(tmp_path, act)


def test_with_durability_power_each_step_is_synced_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []

    async def act(service: Service) -> None:
        for name in ("fsync", "rename"):
            real = getattr(os, name)

            def noted(what: object, *rest: object, name: str = name, real: object = real) -> object:
                path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)  # type: ignore[arg-type]
                calls.append((name, os.path.basename(path)[:4] + f" {len(pack_paths(service.store))}"))
                return real(what, *rest)  # type: ignore[operator]

            monkeypatch.setattr(os, name, noted)
        await service.put(b"a", OLD)
        monkeypatch.undo()
        assert service.worker.pid is not None
        command = Path(f"/proc/{service.worker.pid}/cmdline").read_bytes().split(b"\0")
        assert b"--sync" in command

    serve(tmp_path, act, sync=True)
    # `create` moves its stub in place; then the pack is there (1) before the stub is synced and renamed, and
    # its folder synced.
    assert calls == [("rename", "new- 0"), ("fsync", "new- 1"), ("rename", "new- 1"), ("fsync", "stub 1")]


def test_a_full_disk_is_what_every_later_write_is_told(
    tmp_path: Path, expect_log: ExpectLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel cuts large writes in two, and keeps the error of the second half to itself."""
    expect_log("saving /a failed")

    async def act(service: Service) -> None:
        await service.put(b"a", OLD)
        handle = await service.open(b"a", W | TRUNC)

        async def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patch:
            patch.setattr(SaveStream, "write", full)
            with pytest.raises(OSError, match="full"):
                await service.vfs.write(handle, 0, NEW)
        for _ in range(2):
            with pytest.raises(OSError, match="earlier write") as caught:
                await service.vfs.write(handle, len(NEW), b"x")
            assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="earlier write") as caught:
            await service.vfs.read(handle, 0, 10)
        assert caught.value.errno == errno.EIO
        await service.vfs.release(handle)

    serve(tmp_path, act)


def test_pages_that_readers_may_have_filled_are_dropped_after_a_write_past_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(service: Service) -> None:
        dropped: list[str] = []

        async def drop(inode: Inode) -> None:
            dropped.append(service.env.inodes.name(inode))

        async def write_twice(handle: int) -> int:
            dropped.clear()
            for offset in (0, 1):
                await service.vfs.write(handle, offset, b"x")
            return len(dropped)

        monkeypatch.setattr(service.env, "drop_pages", drop)
        vfs = service.vfs
        await service.put(b"a", OLD)
        writer = await service.open(b"a", W)
        other = await service.open(b"a", A)
        assert vfs.is_direct(writer)
        assert vfs.is_direct(other)
        assert await write_twice(writer) == 0
        await vfs.release(other)
        reader = await service.open(b"a")
        assert not vfs.is_direct(reader)
        assert await write_twice(writer) == 2
        assert dropped[0] == "/a"
        third = await service.open(b"a", W)
        assert not vfs.is_direct(third)  # the kernel itself keeps the pages right
        assert await write_twice(third) == 0
        for handle in (reader, third):
            await vfs.release(handle)
        assert await write_twice(writer) == 0
        await service.close(writer)
        assert await service.get(b"a") == b"xx" + OLD[2:]

    serve(tmp_path, act)
