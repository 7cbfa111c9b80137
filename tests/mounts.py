"""Real mounts for tests, demo and benchmark: `kvtool mount` processes that are always gone afterwards.

A test that touches a mount can hang in the kernel, where no signal reaches it. So every mount has a
watchdog that aborts its FUSE connection, which answers all waiting calls with ENOTCONN; the test then fails
with its own traceback. Standard library only; the pytest fixtures are in conftest.py.

    def test_something(mount):
        (mount.dir / "a").write_bytes(b"x")
        mount.remount()
        mount.expect_log("chunk .* is missing")
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import processes
from tests.logs import alarms, unexpected

START_LIMIT = 60.0
STOP_LIMIT = 60.0
_CONNECTIONS = Path("/sys/fs/fuse/connections")


class MountFailed(Exception):
    """The mount did not start, did not stop, or ran out of time. Holds its log."""


class MountedStore:
    """A store, a stub tree and a mount of them in a folder of its own; a context manager.

    `dir`, `store` and `stubs` are the three folders, `flags` what is passed to `kvtool mount` in addition,
    `limit` the seconds after which the watchdog aborts the connection, counted anew at each start, `env`
    variables for the mount's processes alone.
    """

    def __init__(
        self, root: Path, *flags: str, limit: float = 120, env: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self.dir, self.store, self.stubs = root / "mnt", root / "store", root / "stubs"
        self.flags = flags
        self.limit = limit
        self.env = dict(env or {})
        self.timed_out = False
        self.log: list[str] = []
        self._expected: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._watchdog: threading.Timer | None = None

    # -- life

    def __enter__(self) -> "MountedStore":
        self.dir.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self._clear_away()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        trouble = []
        try:
            if self.running:
                self.umount()
        except (MountFailed, subprocess.TimeoutExpired) as problem:
            trouble.append(str(problem))
        finally:
            self._clear_away()
        if self.timed_out:
            trouble.insert(0, f"the mount was aborted after {self.limit:.0f} s")
        if surprises := unexpected(alarms(self.log), self._expected):
            trouble.append("unexpected lines in the mount's log:\n" + "\n".join(surprises))
        interrupted = kind is not None and not issubclass(kind, Exception)
        if trouble and not interrupted:
            raise MountFailed("\n".join([*trouble, "", "the mount's log:", *self.log])) from error

    def start(self, *flags: str) -> None:
        """Start the mount and return once it says that it is ready."""
        command = [
            sys.executable,
            "-m",
            "kvtool",
            "mount",
            str(self.dir),
            *self.settings,
            *self.flags,
            *flags,
        ]
        self._process = subprocess.Popen(
            command,
            env=self.environment | self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us: we unmount
        )
        answered = threading.Event()
        self._reader = threading.Thread(target=self._read_log, args=(self._process, answered), daemon=True)
        self._reader.start()
        self._watchdog = threading.Timer(self.limit, self._out_of_time)
        self._watchdog.daemon = True
        self._watchdog.start()
        if not answered.wait(START_LIMIT) or self.connection is None:
            raise MountFailed("\n".join(["the mount did not become ready:", *self.log]))

    def umount(self) -> None:
        """`kvtool umount`, and wait until the process is gone."""
        process = self._running()
        done = self.kvtool("umount", str(self.dir), check=False)
        if done.returncode:
            raise MountFailed(f"kvtool umount failed ({done.returncode}): {done.stderr}")
        code = process.wait(STOP_LIMIT)
        self._ended()
        if code:
            raise MountFailed(f"the mount ended with {code}")

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """End the mount by a signal, as a crash would. The dead mountpoint stays until `start` or the end."""
        process = self._running()
        family = processes.family(process.pid)
        process.send_signal(signum)
        process.wait(STOP_LIMIT)
        self._ended()
        processes.wait_gone(family, STOP_LIMIT)

    def signal(self, signum: int) -> None:
        """Send a signal to the mount's process alone."""
        self._running().send_signal(signum)

    def remount(self, *flags: str) -> None:
        """Stop the mount if it runs, and start it again."""
        if self.running:
            self.umount()
        self.start(*flags)

    # -- what it is

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def processes(self) -> list[int]:
        """The mount's process and all below it."""
        return processes.family(self.pid)

    @property
    def settings(self) -> list[str]:
        """The flags that name this store."""
        return ["--store.path", str(self.store), "--store.stubs", str(self.stubs)]

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment without the user's own settings of kvtool."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KVTOOL_")}
        return kept | {"XDG_CONFIG_HOME": str(self.root / "config")}

    @property
    def pack_bytes(self) -> int:
        """Size of all sealed packs; what it grows by is what a save has stored anew."""
        return sum(pack.stat().st_size for pack in (self.store / "packs").rglob("*.pack"))

    @property
    def connection(self) -> int | None:
        """The number of the FUSE connection, found without touching the mount; None when there is no
        mount.
        """
        return connection_of(self.dir)

    def kvtool(
        self, *arguments: str, check: bool = True, limit: float = STOP_LIMIT
    ) -> "subprocess.CompletedProcess[str]":
        """Run another kvtool command on this store."""
        return subprocess.run(
            [sys.executable, "-m", "kvtool", *arguments, *self.settings],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=limit,
        )

    def json(self, *arguments: str) -> Any:
        """What a kvtool command on this store says with --json."""
        return json.loads(self.kvtool(*arguments, "--json").stdout)

    def expect_log(self, pattern: str) -> None:
        """Allow lines of level warning and above in the mount's log that match this regular expression."""
        self._expected.append(pattern)

    def abort(self) -> None:
        """Abort the FUSE connection: every waiting call returns ENOTCONN."""
        abort(self.dir)

    # -- inside

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise MountFailed("there is no mount")
        return self._process

    def _read_log(self, process: "subprocess.Popen[str]", answered: threading.Event) -> None:
        assert process.stderr
        for line in process.stderr:
            self.log.append(line.rstrip("\n"))
            if line.startswith("kvtool: ready"):
                answered.set()
        answered.set()

    def _out_of_time(self) -> None:
        self.timed_out = True
        self.abort()
        if self._process:
            self._process.kill()

    def _ended(self) -> None:
        if self._watchdog:
            self._watchdog.cancel()
        if self._reader:
            self._reader.join(STOP_LIMIT)
        self._process = None

    def _clear_away(self) -> None:
        """Whatever happened before: no process, no mount, no watchdog."""
        if self._process:
            family = processes.family(self._process.pid)
            if self._process.poll() is None:
                self.abort()
                self._process.kill()
            self._process.wait(STOP_LIMIT)
            for pid in family:
                processes.end(pid)
            processes.wait_gone(family, STOP_LIMIT)
        self._ended()
        if self.connection is not None:
            subprocess.run(
                ["fusermount3", "-uz", str(self.dir)], check=False, capture_output=True, timeout=STOP_LIMIT
            )


def connection_of(mountpoint: Path) -> int | None:
    """The FUSE connection number of a mountpoint: the minor of its device, from /proc/self/mountinfo."""
    wanted = str(mountpoint).encode()
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields = line.split(b" ")
        if fields[4].decode("unicode_escape").encode("latin-1") == wanted:
            return int(fields[2].split(b":")[1])
    return None


def abort(mountpoint: Path) -> None:
    """Abort the FUSE connection of a mountpoint, if there is one and we may. Never touches the mount
    itself.
    """
    number = connection_of(mountpoint)
    if number is None:
        return
    ours = not any(_CONNECTIONS.iterdir()) and not _mount("-t", "fusectl", "fusectl", str(_CONNECTIONS))
    with contextlib.suppress(OSError):
        (_CONNECTIONS / str(number) / "abort").write_text("1")
    if ours:
        subprocess.run(["umount", str(_CONNECTIONS)], check=False, capture_output=True)


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder with a short path (control sockets), removed afterwards unless something is still mounted
    in it.
    """
    folder = Path(tempfile.mkdtemp(prefix="kvtool-test-", dir=parent))
    try:
        yield folder
    finally:
        if str(folder) not in Path("/proc/self/mountinfo").read_text():
            shutil.rmtree(folder)


def interrupt_once() -> None:
    """Let the first Ctrl-C or SIGTERM raise KeyboardInterrupt, and no other: nothing disturbs cleaning up."""

    def stop(*_: object) -> None:
        ignore_interrupts()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def ignore_interrupts() -> None:
    """From here on the way out is the same as after a Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
