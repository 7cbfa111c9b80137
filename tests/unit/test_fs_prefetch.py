"""The hint that a file will be restored soon: who is read when, who ends it, and that nobody waits for it."""

import errno
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kvtool.fs import prefetch as prefetch_module
from kvtool.fs.inodes import ROOT, Inode, InodeTable
from kvtool.fs.prefetch import Prefetch
from kvtool.fs.types import Caller, Change
from kvtool.store import child, warm
from tests.service import Service, serve
from tests.stores import layout_in
from tests.synth import random_bytes

LIMIT = 20.0
DATA = random_bytes(300_000)
HINT = b"user.kvtool.prefetch"


class Child:
    """Stands for the process: what is asked of it, and what it answers."""

    def __init__(self, path: bytes) -> None:
        self.path, self.pid, self.killed = path, 4000 + len(path), False
        self.returncode = 0
        self.released = threading.Event()  # whether it has really ended
        asked, to_child = os.pipe()
        from_child, self._answers = os.pipe()
        self._asked = open(asked, "rb")  # noqa: SIM115
        self.stdin, self.stdout = open(to_child, "wb"), open(from_child, "rb")  # noqa: SIM115

    async def asked(self) -> None:
        """Waits until a piece is asked for."""
        assert await trio.to_thread.run_sync(self._asked.readline) == b"\n"

    def answer(self) -> None:
        os.write(self._answers, b"\n")

    def end(self, code: int = 0, last: bytes = b"") -> None:
        self.returncode = code
        if not self.released.is_set():
            os.write(self._answers, last)
            os.close(self._answers)
            self.released.set()

    def kill(self) -> None:
        self.killed = True
        self.end(-9)

    def communicate(self) -> None:
        assert self.released.wait(LIMIT)
        for file in (self.stdin, self.stdout, self._asked):
            file.close()


class Scene:
    """A prefetch with three files, and the processes it has started."""

    def __init__(self, root: Path) -> None:
        self.inodes = InodeTable(layout_in(root))
        self.prefetch = Prefetch(self.inodes)
        self.a, self.b, self.c = (self.inodes.child(self.inodes.root, name) for name in (b"a", b"b", b"c"))
        for inode in (self.a, self.b, self.c):
            inode.lookups += 1  # the kernel knows it
        self.children: list[Child] = []

    def start(self, path: bytes) -> "subprocess.Popen[bytes]":
        self.children.append(Child(path))
        return cast("subprocess.Popen[bytes]", self.children[-1])

    async def child(self, number: int) -> Child:
        """The process of that number, once it runs and was asked for its first piece."""
        while len(self.children) <= number:
            await trio.lowlevel.checkpoint()
        await self.children[number].asked()
        return self.children[number]


def play(root: Path, act: Callable[[Scene, MockClock], Awaitable[None]]) -> Scene:
    """Runs `act` beside the prefetch, with a clock that stands still."""
    scene, clock = Scene(root), MockClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.prefetch.run, scene.start)
            await act(scene, clock)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
    return scene


def test_one_after_the_other_each_once(tmp_path: Path) -> None:
    async def act(scene: Scene, _: MockClock) -> None:
        prefetch = scene.prefetch
        first, second = prefetch.ask(scene.a), prefetch.ask(scene.b)
        assert prefetch.ask(scene.a) is first
        child = await scene.child(0)
        assert prefetch.is_reader(child.pid)
        assert not prefetch.is_reader(child.pid + 1)
        child.answer()
        await child.asked()
        assert len(scene.children) == 1
        child.end()
        await first.ended.wait()
        assert first.trouble is None
        (await scene.child(1)).end(1, b'{"failed": "b: Input/output error"}\n')
        await second.ended.wait()
        assert second.trouble == "b: Input/output error"
        assert len(prefetch) == 0
        third = prefetch.ask(scene.a)
        (await scene.child(2)).end(-9)
        await third.ended.wait()
        assert third.trouble == "its process ended unasked"

    scene = play(tmp_path, act)
    assert [child.path for child in scene.children] == [b"a", b"b", b"a"]
    assert not any(child.killed for child in scene.children)
    assert [inode.lookups for inode in (scene.a, scene.b)] == [1, 1]


def test_it_waits_while_others_restore_other_files(tmp_path: Path) -> None:
    async def act(scene: Scene, clock: MockClock) -> None:
        scene.prefetch.ask(scene.a)
        child = await scene.child(0)
        scene.prefetch.other_read(scene.b)
        child.answer()
        asked = threading.Event()

        async def watch() -> None:
            await child.asked()
            asked.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            clock.jump(prefetch_module._QUIET / 2)
            scene.prefetch.other_read(scene.b)
            clock.jump(prefetch_module._QUIET * 0.9)
            await wait_all_tasks_blocked(0.05)
            assert not asked.is_set()
            clock.jump(prefetch_module._QUIET)
        assert asked.is_set()

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("end", "trouble"),
    [
        (lambda scene: scene.prefetch.other_read(scene.a), "somebody else reads it"),
        (lambda scene: scene.prefetch.drop(scene.a, "gone"), "gone"),
        (lambda scene: scene.prefetch.stop(), "the mount ends"),
    ],
    ids=["read", "dropped", "stopped"],
)
def test_what_kills_it(tmp_path: Path, end: Callable[[Scene], None], trouble: str) -> None:
    async def act(scene: Scene, _: MockClock) -> None:
        hint, other = scene.prefetch.ask(scene.a), scene.prefetch.ask(scene.b)
        child = await scene.child(0)
        end(scene)
        assert child.killed
        assert hint.ended.is_set()
        assert hint.trouble == trouble
        assert scene.a not in scene.prefetch
        if trouble == "the mount ends":
            assert other.trouble == trouble
            assert scene.prefetch.ask(scene.c).trouble == trouble
            await wait_all_tasks_blocked()
            assert len(scene.children) == 1
        else:
            (await scene.child(1)).end()
            await other.ended.wait()

    play(tmp_path, act)


def test_a_hint_in_line_is_dropped_without_a_process(tmp_path: Path) -> None:
    async def act(scene: Scene, _: MockClock) -> None:
        hint = scene.prefetch.ask(scene.a)
        for inode in (scene.b, scene.c):
            scene.prefetch.ask(inode)
        child = await scene.child(0)
        scene.prefetch.drop(scene.b, "deleted")
        scene.prefetch.other_read(scene.c)  # that one may only look at its first page
        assert not child.killed
        child.end()
        await hint.ended.wait()
        (await scene.child(1)).end()

    assert [child.path for child in play(tmp_path, act).children] == [b"a", b"c"]


def test_the_end_does_not_wait_for_a_process_that_waits_for_the_mount(tmp_path: Path) -> None:
    """Killed, it may still hang in the kernel until the connection is closed: after the mount has ended."""

    async def act(scene: Scene, _: MockClock) -> None:
        scene.prefetch.ask(scene.a)
        child = await scene.child(0)
        child.kill = lambda: setattr(child, "killed", True)  # type: ignore[method-assign]
        scene.prefetch.stop()

    scene = play(tmp_path, act)  # would hang
    assert scene.children[0].killed
    scene.children[0].end(-9)


def test_a_process_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Scene, path: bytes) -> "subprocess.Popen[bytes]":
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(Scene, "start", fail)

    async def act(scene: Scene, _: MockClock) -> None:
        hint = scene.prefetch.ask(scene.a)
        await hint.ended.wait()
        assert hint.trouble == "its process cannot be started: no more processes"

    play(tmp_path, act)


def known(service: Service, name: bytes) -> int:
    """The number of a file that the kernel goes on knowing."""
    return service.vfs.lookup(ROOT, name).ino


def hinted(service: Service, name: bytes) -> Inode:
    number = known(service, name)
    service.vfs.setxattr(number, HINT, b"1")
    return service.env.inodes[number]


def refused(code: int, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(OSError, match=r"\w") as caught:
        call(*arguments)
    assert caught.value.errno == code


def test_the_attribute(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        vfs = service.vfs
        await service.put(b"a", DATA)
        number = known(service, b"a")
        assert vfs.getxattr(number, HINT) == b"0"
        hinted(service, b"a")
        assert vfs.getxattr(number, HINT) == b"1"
        assert vfs.listxattr(number) == []
        vfs.setxattr(number, HINT, b"0")
        assert vfs.getxattr(number, HINT) == b"0"
        refused(errno.EINVAL, vfs.setxattr, number, HINT, b"yes")
        refused(errno.EISDIR, vfs.setxattr, vfs.mkdir(ROOT, b"d", 0o755, Caller()).ino, HINT, b"1")
        refused(errno.EPERM, vfs.removexattr, number, HINT)

    serve(tmp_path, act)


def test_a_name_that_the_kernel_does_not_know(tmp_path: Path) -> None:
    async def first(service: Service) -> None:
        await service.put(b"a", DATA)

    async def act(service: Service) -> None:
        hint = service.vfs.ask_prefetch(b"a")
        assert not hint.ended.is_set()
        assert len(list(service.env.inodes)) == 2
        service.vfs.prefetch.stop()
        assert len(list(service.env.inodes)) == 1
        for name in (b"b", b"a/b", b".kvtool/store-id", b"../a", b"", b"/a"):
            with pytest.raises(OSError, match=r"\w"):
                service.vfs.ask_prefetch(name)
        assert len(list(service.env.inodes)) == 1

    serve(tmp_path, first)
    serve(tmp_path, act)


def test_a_file_that_is_written_deleted_or_replaced_is_not_read(tmp_path: Path) -> None:
    async def act(service: Service) -> None:
        vfs = service.vfs
        for name in (b"a", b"b"):
            await service.put(name, DATA)

        async def opened(flags: int) -> None:
            await service.close(await service.open(b"a", flags))

        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: opened(os.O_WRONLY),
            lambda: opened(os.O_RDONLY | os.O_TRUNC),
            lambda: vfs.setattr(known(service, b"a"), Change(size=1)),
            lambda: vfs.rename(ROOT, b"b", ROOT, b"a"),
            lambda: vfs.unlink(ROOT, b"a"),
        ]
        for number, call in enumerate(calls):
            inode = hinted(service, b"a")
            await vfs.setattr(inode.number, Change(mode=0o600))
            await opened(os.O_RDONLY)
            assert inode in vfs.prefetch
            await call()
            assert inode not in vfs.prefetch, number
        handle = await service.create(b"new")
        refused(errno.EBUSY, hinted, service, b"new")
        await service.close(handle)

    serve(tmp_path, act)


def test_what_it_reads_counts_as_no_use_and_takes_no_buffer_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(service: Service) -> None:
        await service.put(b"a", DATA)

    async def act(service: Service) -> None:
        vfs, env = service.vfs, service.env
        monkeypatch.setattr(vfs.prefetch, "is_reader", lambda pid: pid == 77)
        number = known(service, b"a")
        others: list[Inode] = []
        monkeypatch.setattr(vfs.prefetch, "other_read", others.append)
        for pid, fetched in ((77, (0, len(DATA))), (78, (len(DATA), len(DATA)))):
            handle = await vfs.open(number, os.O_RDONLY, pid)
            assert bytes(await vfs.read(handle, 0, len(DATA))) == DATA
            await service.close(handle)
            assert (env.reader.bytes_fetched, env.background.bytes_fetched) == fetched
            assert vfs.getxattr(number, b"user.kvtool.uses") == (b"0" if pid == 77 else b"1")
            assert len(others) == pid - 77

    serve(tmp_path, first)
    serve(tmp_path, act)


def test_the_process_reads_piece_by_piece_and_says_what_fails(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2 * warm.PIECE + 1)

    def run(name: Path, lines: int) -> tuple[int, bytes]:
        process = child.start("kvtool.store.warm", [str(name)], talks=True)
        out, _ = process.communicate(b"\n" * lines, timeout=LIMIT)
        return process.returncode, out

    assert run(path, 1) == (0, b"\n")  # nobody asks for more
    assert run(path, 9) == (0, b"\n\n")
    code, out = run(tmp_path / "absent", 1)
    assert (code, child.failure_in(out)) == (1, f"{tmp_path}/absent: No such file or directory")
