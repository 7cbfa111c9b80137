"""Processes that a mount starts for itself: by exec, never by fork, and dead when the mount is.

A forked child would keep /dev/fuse open, and after a kill of the mount its users would hang until the child
died too.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvtool.core.text import printable
from kvtool.errors import KvtoolError, reason

_PR_SET_PDEATHSIG = 1


class _OneLine(logging.Formatter):
    """A line a record, whatever the names in it hold; tracebacks stay as they are."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        return f"kvtool: {record.levelname} {printable(record.message)}"


def log_to_stderr(level: int | str = logging.WARNING) -> None:
    """From here on the log goes to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    logging.basicConfig(handlers=[handler], level=level)


def start(
    module: str, arguments: Sequence[str], descriptors: Sequence[int] = (), *, talks: bool = False
) -> "subprocess.Popen[bytes]":
    """Runs a module of kvtool, which calls `settle` first; it inherits `descriptors` under their numbers.

    With `talks` its standard input, output and error are pipes.

    To be called from the main thread: the kernel kills the child when the thread that started it ends.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, "--parent", str(os.getpid()), *arguments],
        pass_fds=descriptors,
        stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
        stdout=subprocess.PIPE if talks else None,
        stderr=subprocess.PIPE if talks else None,
        start_new_session=True,
    )


@contextmanager
def failure_told() -> Iterator[None]:
    """In a child that `talks`: what goes wrong is its last word on standard error, and exit code 1."""
    try:
        yield
    except KvtoolError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(reason(error))


def settle(parent: int) -> None:
    """In the child: die with the parent (prctl(2)), and leave signals of terminal and service to it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()  # it has died already
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    log_to_stderr()
