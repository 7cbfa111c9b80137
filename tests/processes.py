"""Processes as /proc shows them: families, memory, CPU time, and waiting until they are gone."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all that descend from it, itself first. Empty when it is gone."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found = [pid] if _stat(pid) else []
    for one in found:
        found += parents.get(one, [])
    return found


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def end(pid: int) -> None:
    """Kill a process by its id, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_gone(pids: Iterable[int], limit: float) -> None:
    """Wait until none of them is left; AssertionError when the time is over."""
    pids = list(pids)
    wait_until(lambda: not any(map(alive, pids)), limit, f"processes {pids} to end")


def wait_until(condition: Callable[[], bool], limit: float, what: str) -> None:
    """Poll for something that another process does and tells nobody. The one place that sleeps."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit:.0f} s for {what}"
        time.sleep(0.01)


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that these processes have used so far, and their children that have ended."""
    ticks = sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid)))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_memory(pids: Iterable[int]) -> int:
    """The sum of the most memory that each of these processes ever had, shared pages counted in each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1]) * 1024
    return total


def bytes_from_disk(pid: int) -> int:
    """What the process has had the disk read so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def memory(pids: Iterable[int]) -> int:
    """Bytes of memory in use, shared pages counted once (the sum of Pss)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on, or nothing when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
