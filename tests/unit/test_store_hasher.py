"""Looking at chunks in a pack: which are wrong and why, in one process and in several."""

import errno
import hashlib
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtool.core.pack import HEADER_SIZE, encode_entries
from kvtool.errors import KvtoolError
from kvtool.store import hasher, hashers
from kvtool.store.hasher import Fault, look_at
from kvtool.store.hashers import Hashers, Job
from tests import processes
from tests.stores import flip
from tests.synth import random_bytes

LIMIT = 30.0
SIZES = [100, 5000, 70_000, 1, 300_000, 4096]
Entries = list[tuple[bytes, int, int, int]]


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    """The chunks of the file tmp_path/pack, back to back behind a header."""
    found, data = [], bytearray(HEADER_SIZE)
    for seed, size in enumerate(SIZES):
        chunk = random_bytes(size, seed)
        found.append((hashlib.sha256(chunk).digest(), len(data), size, 0))
        data += chunk
    (tmp_path / "pack").write_bytes(data + b"footer")
    return found


def kinds(path: Path, entries: Entries) -> dict[int, str]:
    return {number: fault.kind for number, fault in look_at(path, entries).faults.items()}


def test_what_is_right_has_no_faults(tmp_path: Path, entries: Entries) -> None:
    assert look_at(tmp_path / "pack", entries) == (sum(SIZES), {})
    assert look_at(tmp_path / "pack", entries[::2]).faults == {}
    assert look_at(tmp_path / "pack", []) == (0, {})


@pytest.mark.parametrize("number", range(len(SIZES)))
@pytest.mark.parametrize("last", [False, True])
def test_a_flipped_byte_is_in_one_chunk(tmp_path: Path, entries: Entries, number: int, last: bool) -> None:
    _, offset, length, _ = entries[number]
    flip(tmp_path / "pack", offset + (length - 1 if last else 0))
    assert kinds(tmp_path / "pack", entries) == {number: "corrupt"}


@pytest.mark.parametrize(("piece", "gap"), [(1, 0), (75_100, 0), (75_100, 1 << 20), (1 << 30, 1 << 30)])
def test_however_neighbours_are_mapped(
    tmp_path: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch, piece: int, gap: int
) -> None:
    monkeypatch.setattr(hasher, "_PIECE", piece)
    monkeypatch.setattr(hasher, "_GAP", gap)
    assert kinds(tmp_path / "pack", entries) == {}
    assert kinds(tmp_path / "pack", [entries[0], entries[3], entries[5]]) == {}
    assert kinds(tmp_path / "pack", entries[::-1]) == {}
    flip(tmp_path / "pack", entries[3][1])
    assert kinds(tmp_path / "pack", entries) == {3: "corrupt"}


def test_neighbours_are_mapped_together_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hasher, "_PIECE", 100)
    monkeypatch.setattr(hasher, "_GAP", 10)
    lying = [
        (b"", start, length, 0) for start, length in [(0, 50), (50, 50), (100, 40), (150, 9), (170, 300)]
    ]
    assert list(hasher._pieces(lying)) == [(0, 2), (2, 4), (4, 5)]


def test_a_pack_that_is_cut_gone_or_no_file(tmp_path: Path, entries: Entries) -> None:
    pack = tmp_path / "pack"
    os.truncate(pack, entries[3][1])
    assert kinds(pack, entries) == {3: "missing", 4: "missing", 5: "missing"}
    os.truncate(pack, 0)
    assert set(look_at(pack, entries).faults.values()) == {Fault("missing", "the pack is cut short")}
    pack.unlink()
    assert set(look_at(pack, entries).faults.values()) == {Fault("missing", "the pack is gone")}
    pack.mkdir()
    assert set(kinds(pack, entries).values()) == {"unreadable"}
    pack.rmdir()
    os.mkfifo(pack)
    assert set(kinds(pack, entries).values()) == {"unreadable"}
    assert look_at(pack / "below", entries).faults[0] == Fault("unreadable", "Not a directory", errno.ENOTDIR)


def test_places_that_make_no_sense(tmp_path: Path, entries: Entries) -> None:
    odd = [(entries[0][0], offset, length, 0) for offset, length in [(1 << 62, 5), ((1 << 64) - 1, 1 << 63)]]
    assert kinds(tmp_path / "pack", [*entries, *odd]) == {6: "missing", 7: "missing"}


def test_what_the_disk_cannot_read(tmp_path: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a failing disk says it: EFAULT for the whole that is mapped, EIO for the chunk."""
    bad = entries[2][1]
    pread = os.pread

    def failing(fd: int, length: int, offset: int) -> bytes:
        if offset == bad:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, length, offset)

    class Unmappable(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EFAULT, "Bad address")

    monkeypatch.setattr(os, "pread", failing)
    assert look_at(tmp_path / "pack", entries).faults == {}
    monkeypatch.setattr(mmap, "mmap", Unmappable)
    assert look_at(tmp_path / "pack", entries).faults == {
        2: Fault("unreadable", "Input/output error", errno.EIO)
    }
    flip(tmp_path / "pack", entries[1][1])
    assert kinds(tmp_path / "pack", entries) == {1: "corrupt", 2: "unreadable"}


def jobs(path: Path, entries: Entries, count: int) -> list[Job]:
    return [Job(bytes([number]), path, encode_entries(entries)) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_job_is_answered_once_and_the_rest_is_done(
    tmp_path: Path, entries: Entries, count: int
) -> None:
    flip(tmp_path / "pack", entries[1][1])
    taken: list[int] = []
    with Hashers(count) as at_work:
        found = list(at_work.run(jobs(tmp_path / "pack", entries, 20), (taken.append(i) for i in range(5))))
    assert sorted(job.pack for job, _ in found) == [bytes([number]) for number in range(20)]
    assert {looked.bytes for _, looked in found} == {sum(SIZES)}
    assert all(looked.faults.keys() == {1} and looked.faults[1] == hasher._CORRUPT for _, looked in found)
    assert taken == [0, 1, 2, 3, 4]


def run(path: Path, entries: Entries, then: Callable[[list[int]], object]) -> None:
    """Takes answers of two processes, and after each does something with their ids."""
    with Hashers(2) as at_work:
        pids = [one.pid for one in at_work._hashers]
        for _ in at_work.run(jobs(path, entries, 20), iter(())):
            then(pids)


def test_no_process_is_left_whatever_ends_it(tmp_path: Path, entries: Entries) -> None:
    seen: list[int] = []

    def interrupt(pids: list[int]) -> None:
        seen.extend(pids)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "pack", entries, interrupt)
    assert len(seen) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in seen)


def test_a_process_that_dies_is_an_error_that_names_the_pack(tmp_path: Path, entries: Entries) -> None:
    with pytest.raises(KvtoolError, match=f"pack {tmp_path}/pack ended unasked"):
        run(tmp_path / "pack", entries, lambda pids: processes.end(pids[0]))


def test_the_processes_die_with_the_one_that_started_them() -> None:
    script = (
        "import signal; from kvtool.store.hashers import Hashers\n"
        "with Hashers(2) as h: print(*(one.pid for one in h._hashers), flush=True); signal.pause()"
    )
    started = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert started.stdout
    with started.stdout:
        pids = [int(word) for word in started.stdout.readline().split()]
    assert len(pids) == 2
    started.send_signal(signal.SIGKILL)
    started.wait(LIMIT)
    processes.wait_gone(pids, LIMIT)


def test_a_process_for_each_core_when_there_is_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    assert [hashers.count_for(size) for size in (0, 1 << 20, 64 << 20, 1 << 40)] == [0, 0, 1, 3]
