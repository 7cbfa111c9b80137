"""A service manager as far as a mount can tell: the socket of sd_notify(3), and what came in on it."""

import os
import socket
import time
from pathlib import Path
from types import TracebackType

LIMIT = 20.0


class Manager:
    """Listens on a socket in `folder`, or with `abstract` on one that is in no folder; a context manager."""

    def __init__(self, folder: Path, *, abstract: bool = False) -> None:
        self.address = f"@kvtool-test-{os.getpid()}-{folder.name}" if abstract else str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address.replace("@", "\0") if abstract else self.address)

    def __enter__(self) -> "Manager":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def next(self, limit: float = LIMIT) -> dict[str, str]:
        """The next message. Raises TimeoutError when none comes for `limit` seconds."""
        self._socket.settimeout(limit)
        lines = self._socket.recv(4096).decode().split("\n")
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def until(self, name: str, words: str = "") -> dict[str, str]:
        """The first message from here on in which that name has a value with these words."""
        deadline = time.monotonic() + LIMIT
        while True:
            message = self.next()
            if words in message.get(name, "") and name in message:
                return message
            assert time.monotonic() < deadline, f"no {name} with {words!r}, at last {message}"

    def waiting(self) -> list[dict[str, str]]:
        """What has come and was not looked at."""
        messages = []
        try:
            while True:
                messages.append(self.next(0))
        except BlockingIOError:
            return messages
