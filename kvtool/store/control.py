"""The client's end of the control socket of a running mount: one JSON object a line each way.

A request is `{"command": ...}` with these fields, an answer what stands behind the arrow, or
`{"error": {"message", "hint", "exit", "code"}}`:

    status                          -> `store.status.Status`
    settings                        -> what `kvtool config --explain --json` shows
    gc dry_run wait                 -> `store.collect.Collected`; with wait false, a Progress
    collection                      -> `store.progress.Progress`
    delete name                     -> nothing
    label name changes              -> labels; changes are an object of names with texts, null to remove
    meters                          -> `fs.meters.Meters`, and log lines by level
    history                         -> samples, each a `fs.history.Sample`
    logs level since after limit    -> `fs.logring.LogRing.read`
    condemn copies                  -> marked; copies are [pack in hex, chunk id in hex, offset, bytes]
    prefetch name wait              -> ended, trouble; with wait when it has ended
    umount                          -> mountpoint; the connection closes when the mount is gone
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from kvtool.errors import KvtoolError, StoreLocked
from kvtool.store import lock
from kvtool.store.layout import Layout


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """An address for the socket at `path`, whose own may be too long: a socket address holds 108 bytes."""
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


class NotRunning(KvtoolError):
    """No mount of the store answers."""

    code = "not_mounted"


def ask(
    layout: Layout,
    command: str,
    *,
    wait_for_end: bool = False,
    patience: float | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Sends one command to the store's mount and returns its answer.

    With `wait_for_end` also waits until the mount's process has let go; with `patience` not longer than so
    many seconds for each part of the answer. Raises NotRunning when there is no mount or it lets us wait
    longer, StoreLocked when there may be one that cannot be reached, KvtoolError with the mount's own error.
    """
    try:
        return _ask(layout, {"command": command, **fields}, wait_for_end=wait_for_end, patience=patience)
    except TimeoutError:
        raise NotRunning(
            f"the mount of store {layout.root} does not answer", hint="it is busy, or its disk is; try again"
        ) from None


def _ask(
    layout: Layout, request: dict[str, Any], *, wait_for_end: bool, patience: float | None
) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(patience)
        try:
            with reachable(layout.control) as address:
                connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            if lock.is_held(layout):
                raise StoreLocked(
                    f"store {layout.root} is in use, and nobody answers at {layout.control}",
                    hint="a command at work in it ends by itself; a mount whose socket was deleted goes by"
                    " `fusermount3 -u MOUNTPOINT`, once nothing is open in it",
                ) from None
            raise NotRunning(
                f"no mount of store {layout.root} is running", hint="start it with `kvtool mount MOUNTPOINT`"
            ) from None
        connection.sendall(json.dumps(request).encode() + b"\n")
        stream = connection.makefile("rb")
        line = stream.readline()
        if not line:
            raise KvtoolError(f"the mount of store {layout.root} ended before it answered")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            _raise(answer["error"])
        if wait_for_end:
            stream.read()
        return answer


def _raise(error: dict[str, Any]) -> NoReturn:
    failure = KvtoolError(error["message"], hint=error.get("hint"))
    failure.exit_code, failure.code = error["exit"], error["code"]
    raise failure
