"""The control socket of a running mount (see `kvtool.store.control` for what is said on it)."""

import json
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import trio

from kvtool.errors import KvtoolError, UsageError, reason
from kvtool.store.control import reachable
from kvtool.store.layout import Layout

log = logging.getLogger(__name__)
_LINE_MAX = 1 << 19  # the API takes 64 KiB, of which JSON makes up to six times as much

Command = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]


class ControlServer:
    """Answers commands. A connection on which `umount` was asked closes when the process has ended."""

    def __init__(self, layout: Layout, commands: Mapping[str, Command]) -> None:
        self._path = layout.control
        self._commands = commands

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listens until cancelled. Whoever runs this holds the store's lock, so a socket there is stale."""
        self._path.unlink(missing_ok=True)
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        with listener:
            with reachable(self._path) as address:
                await listener.bind(address)
            os.chmod(self._path, 0o600)
            listener.listen()
            task_status.started()
            try:
                await trio.serve_listeners(self._answer, [trio.SocketListener(listener)])
            finally:
                self._path.unlink(missing_ok=True)

    async def _answer(self, stream: trio.SocketStream) -> None:
        received = piece = b""
        try:
            while b"\n" not in piece:
                piece = await stream.receive_some(4096)
                if not piece:
                    return
                if len(received) <= _LINE_MAX:  # what is too long is heard out, and refused
                    received += piece
            answer = await self._run(received.partition(b"\n")[0])
            await stream.send_all(json.dumps(answer).encode() + b"\n")
            if answer.get("command") == "umount":
                os.dup(stream.socket.fileno())  # closed by the kernel, when the process is gone
        except trio.BrokenResourceError:
            log.debug("a control connection broke")

    async def _run(self, line: bytes) -> dict[str, Any]:
        try:
            if len(line) > _LINE_MAX:
                raise UsageError(f"a request has at most {_LINE_MAX} bytes")
            request = json.loads(line)
            command = request["command"]
            handler = self._commands.get(command)
            if handler is None:
                raise UsageError(f"unknown command {command!r}")
            return {"command": command, **await handler(request)}
        except KvtoolError as error:
            return _error(error.message, error.exit_code, error.code, error.hint)
        except OSError as error:
            return _error(reason(error), 1, "os")
        except (ValueError, KeyError, TypeError) as error:
            return _error(f"bad request: {error!r}", 2, "usage")


def _error(message: str, exit_code: int, code: str, hint: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "hint": hint, "exit": exit_code, "code": code}}
