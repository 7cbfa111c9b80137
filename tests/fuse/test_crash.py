"""Kills at many points: finished snapshots stay, unfinished ones are not seen, nothing is left behind."""

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kvtool.errors import KvtoolError
from kvtool.store import control
from kvtool.store.layout import Layout
from tests import processes
from tests.mounts import MountedStore, temporary_folder
from tests.property.check import check_collected, check_store
from tests.synth import random_bytes

PIECE = 256 << 10
LIMIT = 60.0
OLD = {
    name: random_bytes(700_000, seed)
    for seed, name in enumerate(("finished", "over", "log", "target", "closing"))
}
NEW = random_bytes(12 << 20, 99)
CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def put(path: Path, data: bytes) -> None:
    fd = os.open(path, CREATE)
    write(fd, data)
    os.close(fd)


def close(fd: int) -> None:
    with suppress(OSError):
        os.close(fd)


def fill(mount: MountedStore) -> None:
    for name, data in OLD.items():
        put(mount.dir / name, data)


def check(mount: MountedStore, contents: dict[str, list[bytes]]) -> None:
    """The mount shows these names, each with one of its contents, and collecting leaves no orphan pack."""
    assert sorted(os.listdir(mount.dir)) == sorted(contents)
    for name, possible in contents.items():
        assert (mount.dir / name).read_bytes() in possible, name
    before = check_store(mount.store, mount.stubs)
    mount.kvtool("gc")
    check_collected(mount.store, mount.stubs, before)
    assert os.listdir(mount.store / "incoming") == []


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_kill_after_any_number_of_writes(mounts: Callable[..., MountedStore], durability: str) -> None:
    mount = mounts("--store.durability", durability)
    fill(mount)
    for writes in (0, 1, 7, 8, 9, 40) if durability == "process" else (3,):
        data = NEW[: writes * PIECE]
        new = os.open(mount.dir / "new", CREATE)
        over = os.open(mount.dir / "over", CREATE)
        log = os.open(mount.dir / "log", os.O_WRONLY | os.O_APPEND)
        staged = os.open(mount.dir / "finished", os.O_RDWR)
        temporary = os.open(mount.dir / "target.tmp", CREATE)
        for start in range(0, len(data), PIECE):
            for fd in (new, over, log, temporary):
                write(fd, data[start : start + PIECE])
            os.pwrite(staged, b"changed", start // 2)
        put(mount.dir / "done.tmp", data + b"done")
        os.rename(mount.dir / "done.tmp", mount.dir / "done")
        closing = os.open(mount.dir / "closing", CREATE)
        write(closing, data + b"closing")
        thread = threading.Thread(target=close, args=(closing,))
        thread.start()
        mount.kill()
        thread.join(LIMIT)
        for fd in (new, over, log, staged, temporary):
            close(fd)
        with pytest.raises(OSError, match="not connected"):
            os.listdir(mount.dir)
        mount.start()
        contents = {name: [content] for name, content in OLD.items()} | {"done": [data + b"done"]}
        contents["closing"].append(data + b"closing")
        check(mount, contents)
        put(mount.dir / "closing", OLD["closing"])


def test_a_kill_during_a_rename_or_right_after_it_shows_one_of_both(mount: MountedStore) -> None:
    contents = {"a": [b"first" * 1000], "other": [b"other"]}
    put(mount.dir / "a", contents["a"][0])
    put(mount.dir / "other", b"other")
    for turn in range(3):
        new = random_bytes(300_000, 200 + turn)
        put(mount.dir / "a.tmp", new)
        if turn == 0:
            os.rename(mount.dir / "a.tmp", mount.dir / "a")
            contents["a"] = [new]
            mount.kill()
        else:

            def rename() -> None:
                with suppress(OSError):
                    os.rename(mount.dir / "a.tmp", mount.dir / "a")

            thread = threading.Thread(target=rename)
            thread.start()
            mount.kill()
            thread.join(LIMIT)
            contents["a"] = [*contents["a"][-1:], new]
        mount.start()
        with suppress(FileNotFoundError):
            assert (mount.dir / "a.tmp").read_bytes() == new
            (mount.dir / "a.tmp").unlink()
        check(mount, contents)
        contents["a"] = [(mount.dir / "a").read_bytes()]


def test_a_killed_worker_costs_the_saves_under_way_alone(mount: MountedStore) -> None:
    mount.expect_log("the ingest worker .* ended unasked: 2 saves under way are lost")
    mount.expect_log("saving /(over|new) failed: .*worker died")
    fill(mount)
    worker = mount.json("status")["worker_pid"]
    # From here on no child is started: the descriptors that it closes would commit what is written so far.
    fds = [os.open(mount.dir / name, CREATE) for name in ("over", "new")]
    for fd in fds:
        write(fd, NEW[:PIECE])
    processes.end(worker)
    processes.wait_gone([worker], LIMIT)
    for fd in fds:
        with pytest.raises(OSError, match=r".") as caught:
            write(fd, NEW)
        assert caught.value.errno == errno.EIO
        with pytest.raises(OSError, match=r".") as caught:
            os.close(fd)
        assert caught.value.errno == errno.EIO
    with pytest.raises(OSError, match=r"."):
        os.rename(mount.dir / "over", mount.dir / "finished")
    put(mount.dir / "fresh", NEW)
    assert mount.json("status")["worker_pid"] not in {None, worker}
    mount.remount()
    check(mount, {name: [content] for name, content in OLD.items()} | {"fresh": [NEW]})


def told(mount: MountedStore) -> int:
    """Sends SIGTERM and returns, with the process's id, when the mount has taken note."""
    pid = mount.pid
    os.kill(pid, signal.SIGTERM)
    processes.wait_until(
        lambda: any("SIGTERM: unmounting" in line for line in mount.log), LIMIT, "the signal"
    )
    return pid


def test_told_to_end_it_lets_a_save_finish(mount: MountedStore) -> None:
    fill(mount)
    fd = os.open(mount.dir / "over", CREATE)
    write(fd, NEW[:PIECE])
    pid = told(mount)
    write(fd, NEW[PIECE:])
    os.close(fd)
    processes.wait_gone([pid], LIMIT)
    mount.kill(0)  # it has ended; this only tells the harness
    mount.start()
    check(mount, {name: [content] for name, content in OLD.items()} | {"over": [NEW]})


def test_told_twice_it_gives_up_what_is_unfinished_and_keeps_what_was_there(mount: MountedStore) -> None:
    fill(mount)
    over, new = os.open(mount.dir / "over", CREATE), os.open(mount.dir / "new", CREATE)
    write(over, NEW[:PIECE])
    write(new, NEW[:PIECE])
    told(mount)
    mount.kill(signal.SIGTERM)
    close(over)
    close(new)
    assert (mount.store / "lock").read_text().startswith("- ")
    mount.start()
    check(mount, {name: [content] for name, content in OLD.items()})


def test_told_to_end_it_commits_what_was_appended(mount: MountedStore) -> None:
    fill(mount)
    log = os.open(mount.dir / "log", os.O_WRONLY | os.O_APPEND)
    fresh = os.open(mount.dir / "fresh", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    write(log, b"more")
    write(fresh, b"log")
    mount.kill(signal.SIGTERM)
    close(log)
    close(fresh)
    mount.start()
    contents = {name: [content] for name, content in OLD.items()}
    check(mount, contents | {"log": [OLD["log"] + b"more"], "fresh": [b"log"]})


def test_an_open_file_that_replaces_a_good_one_is_committed_first(mount: MountedStore) -> None:
    put(mount.dir / "chat", b"old" * 100_000)
    fd = os.open(mount.dir / "chat.tmp", CREATE)
    write(fd, b"new" * 100_000)
    os.rename(mount.dir / "chat.tmp", mount.dir / "chat")
    write(fd, b"more")
    mount.kill()
    close(fd)
    mount.start()
    assert (mount.dir / "chat").read_bytes() == b"new" * 100_000


def test_what_an_unmount_wrote_out_needs_no_reading_in_the_next_boot(mount: MountedStore) -> None:
    def starts_in_another_boot() -> bool:
        """Whether it reads packs then."""
        (mount.store / "lock").write_text("- another-boot\n")
        mount.log.clear()
        mount.start()
        return any("another boot than the last: reading the 1 packs" in line for line in mount.log)

    put(mount.dir / "first", OLD["over"])
    mount.umount()
    assert not starts_in_another_boot()
    put(mount.dir / "second", OLD["log"])
    mount.kill()
    assert starts_in_another_boot()
    assert (mount.dir / "second").read_bytes() == OLD["log"]


def test_an_unmount_writes_out_what_needed_no_new_pack(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--store.gc_interval", "0")
    put(mount.dir / "first", OLD["over"])
    mount.remount()
    put(mount.dir / "again", OLD["over"])
    os.utime(mount.store / "synced", (0, 0))  # written anew by whoever writes out
    mount.umount()
    assert (mount.store / "synced").stat().st_mtime


def test_an_unmount_that_cannot_write_out_says_so_and_ends(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--store.gc_interval", "0")
    mount.expect_log("what was saved may not be on the disk: .* is not a regular file.*synced")
    put(mount.dir / "first", OLD["over"])
    (mount.store / "synced").mkdir()
    mount.umount()
    (mount.store / "synced").rmdir()
    mount.start()
    assert (mount.dir / "first").read_bytes() == OLD["over"]


def test_no_command_is_taken_once_the_mount_writes_out(tmp_path: Path) -> None:
    gate = tmp_path / "gate"  # writing out waits until somebody has opened and closed it
    os.mkfifo(gate)
    (tmp_path / "sitecustomize.py").write_text(
        "from kvtool.store import durable\n"
        f"durable.sync_folder = lambda path: path.name == 'store' and open({str(gate)!r}, 'rb').read()\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    flags = ("--store.gc_interval", "0")
    with temporary_folder() as folder, MountedStore(folder, *flags, env={"PYTHONPATH": paths}) as mount:
        put(mount.dir / "a", OLD["over"])
        layout = Layout(mount.store, mount.stubs)
        ending = threading.Thread(target=mount.kill, args=(signal.SIGTERM,))
        ending.start()
        with gate.open("wb"):
            with pytest.raises(KvtoolError):
                control.ask(layout, "label", name="a", changes={"x": "y"})
            with pytest.raises(KvtoolError):
                control.ask(layout, "gc", wait=False)
        ending.join()
        assert layout.lock.read_text().startswith("- ")
