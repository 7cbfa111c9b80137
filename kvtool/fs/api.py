"""The HTTP API's process, which the mount starts and keeps alive. Nothing of HTTP is imported here.

A process of its own, since listings of a large store would hold the interpreter lock while file requests
wait (docs/api.md has the figures). The socket listens before the mount says that it is ready, and outlives
the process: who connects while a new one starts is answered by that.
"""

import json
import logging
import os
import socket
from dataclasses import asdict, dataclass
from importlib.util import find_spec

import trio

from kvtool.core import address
from kvtool.errors import KvtoolError, UsageError
from kvtool.store import child
from kvtool.store.layout import Layout

log = logging.getLogger(__name__)
_PACKAGES = ("fastapi", "hypercorn", "jinja2", "prometheus_client")
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before a process that ended is started again; doubled each time
_BACKLOG = 128
STALLED = 20_000  # ms without progress after which the kernel ends the connection of who does not read


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Where to listen, and who may change things."""

    listen: str
    token: str


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """What the process is told, through a pipe: the command line is everybody's to read."""

    name: str
    token: str
    score: str


class ApiProcess:
    """Binds at once: raises KvtoolError when the address or a package is not to be had."""

    def __init__(self, layout: Layout, options: ApiOptions, score: str) -> None:
        missing = [name for name in _PACKAGES if find_spec(name) is None]
        if missing:
            raise KvtoolError(
                f"http.listen needs {', '.join(missing)}, which is not installed",
                hint="pip install 'kvtool[http]', or leave http.listen unset",
            )
        self._layout = layout
        self._options = options
        self._score = score
        self._socket = listen(options)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://{address.join(host, port)}"

    async def run(self) -> None:
        """Keeps a process running until cancelled."""
        pause = _PAUSE
        with self._socket:
            while True:
                began = trio.current_time()
                code = await self._run_one()
                if trio.current_time() - began > _LONGEST_PAUSE:
                    pause = _PAUSE
                log.error(
                    "the HTTP API's process ended (exit code %d); another starts in %.0f s", code, pause
                )
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_one(self) -> int:
        readable, writable = os.pipe()
        config = ApiConfig(
            name=address.parse(self._options.listen)[0],
            token=self._options.token,
            score=self._score,
        )
        with open(writable, "wb") as file:  # a pipe holds 64 KiB
            file.write(json.dumps(asdict(config)).encode())
        arguments = ["--store", str(self._layout.root), "--stubs", str(self._layout.stubs)]
        arguments += ["--socket", str(self._socket.fileno()), "--config", str(readable)]
        try:
            process = child.start("kvtool.http.main", arguments, (self._socket.fileno(), readable))
        finally:
            os.close(readable)
        try:
            # The thread is left behind when nobody waits any more: it ends with the process.
            return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(process.wait)


def listen(options: ApiOptions) -> socket.socket:
    """The socket. Raises KvtoolError when it cannot be had, UsageError where it would be open to all."""
    host, port = address.parse(options.listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED
            )  # connections inherit it
            listener.bind(place)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        text = f"http.listen: cannot listen on {options.listen}: {error.strerror or error}"
        raise KvtoolError(text, hint="choose another address or port") from error
    if not options.token and not address.is_loopback(listener.getsockname()[0]):
        listener.close()
        raise UsageError(
            f"http.listen: {options.listen} is reached from other machines, and needs http.token"
        )
    return listener
