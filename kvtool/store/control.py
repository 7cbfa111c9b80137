"""The client's end of the control socket of a running mount: one JSON object a line each way.

Requests: `{"command": "status"}`, `{"command": "gc", "dry_run": false}`, `{"command": "umount"}`,
`{"command": "condemn", "copies": [[pack in hex, chunk id in hex, offset, bytes]]}`,
`{"command": "prefetch", "name": path, "wait": false}` (with `wait` the answer comes when it has ended).
Answers: the command's fields, or `{"error": {"message", "exit"}}`. After `umount` the mount closes the
connection when it is gone.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from kvtool.errors import KvtoolError
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


def ask(layout: Layout, command: str, *, wait_for_end: bool = False, **fields: Any) -> dict[str, Any]:
    """Sends one command to the store's mount and returns its answer.

    With `wait_for_end` also waits until the mount's process has let go. Raises NotRunning when there is no
    mount, KvtoolError with the mount's own error.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with reachable(layout.control) as address:
                connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise NotRunning(
                f"no mount of store {layout.root} is running", hint="start it with `kvtool mount MOUNTPOINT`"
            ) from None
        connection.sendall(json.dumps({"command": command, **fields}).encode() + b"\n")
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
    failure = KvtoolError(error["message"])
    failure.exit_code = error["exit"]
    raise failure
