"""Processes that a mount starts for itself: by exec, never by fork, and dead when the mount is.

A forked child would keep /dev/fuse open, and after a kill of the mount its users would hang until the child
died too.
"""

import argparse
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvtool.core.text import printable
from kvtool.errors import KvtoolError, reason
from kvtool.store import relay

log = logging.getLogger(__name__)
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
    """Runs a module of kvtool, which calls `begin` first; it inherits `descriptors` under their numbers.

    With `talks` its standard input and output are pipes. Standard error is ours in any case.

    To be called from the main thread: the kernel kills the child when the thread that started it ends.
    """
    own = ["--parent", str(os.getpid()), "--log-level", str(logging.getLogger().getEffectiveLevel())]
    relayed = relay.descriptor()
    if relayed is not None:
        own += ["--log", str(relayed)]
        descriptors = [*descriptors, relayed]
    return subprocess.Popen(
        [sys.executable, "-m", module, *own, *arguments],
        pass_fds=descriptors,
        stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
        stdout=subprocess.PIPE if talks else None,
        start_new_session=True,
    )


def parser(process: str) -> argparse.ArgumentParser:
    """The child's command line, with what `start` puts there for `begin`; the log calls it `process`."""
    made = argparse.ArgumentParser(prog=process)
    made.add_argument("--parent", type=int, required=True)
    made.add_argument("--log-level", type=int, required=True)
    made.add_argument("--log", type=int)
    return made


def begin(made: argparse.ArgumentParser) -> argparse.Namespace:
    """In the child: its arguments; from here on it is settled, and its log reaches the parent's."""
    args = made.parse_args()
    settle(args.parent, args.log_level)
    if args.log is not None:
        relay.begin(args.log, made.prog)
    sys.excepthook = lambda *error: log.error("%s ended by a bug", made.prog, exc_info=error)
    return args


@contextmanager
def failure_told() -> Iterator[None]:
    """In a child that `talks`: what goes wrong is its last line, for `failure_in`, and its exit code 1."""
    try:
        yield
    except (KvtoolError, OSError) as error:
        print(json.dumps({"failed": reason(error) if isinstance(error, OSError) else str(error)}), flush=True)
        sys.exit(1)


def failure_in(line: bytes) -> str:
    """What a child that ended unasked said about it on its last line."""
    try:
        return str(json.loads(line)["failed"])
    except (ValueError, KeyError, TypeError):
        return "its process ended unasked"


def settle(parent: int, log_level: int = logging.WARNING) -> None:
    """In the child: die with the parent (prctl(2)), and leave signals of terminal and service to it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()  # it has died already
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    log_to_stderr(log_level)
