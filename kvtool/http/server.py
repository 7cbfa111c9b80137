"""Hypercorn on trio around the application, with its patience bounded."""

import logging
import socket
from dataclasses import dataclass
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve

log = logging.getLogger(__name__)
_QUIET = 60.0  # seconds between two lines about the same trouble


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: for the head of a request, on a connection that is idle, and between two pieces of a body.

    Who does not take an answer is cut off by the kernel (`fs.api`).
    """

    head: float = 5.0
    piece: float = 60.0
    end: float = 1.0


class Crowded(logging.Filter):
    """While there is no descriptor for one more connection trio says so ten times a second, each time with a
    traceback: one line a minute tells as much.
    """

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Says it in our words, now and then."""
        if record.created >= self._quiet_until:
            self._quiet_until = record.created + _QUIET
            log.warning("no more connections are taken for now: %s", record.getMessage())
        return False


async def serve(
    app: Any,
    listener: socket.socket,
    patience: Patience,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled; takes the listener over."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.accesslog = None
    config.errorlog = logging.getLogger("kvtool.http.hypercorn")
    config.errorlog.setLevel(max(logging.WARNING, log.getEffectiveLevel()))  # it greets
    config.include_server_header = False
    config.h11_max_incomplete_size = 64 << 10
    config.keep_alive_timeout = patience.head
    config.read_timeout = cast(int, patience.piece)
    config.graceful_timeout = patience.end
    logging.getLogger("trio.serve_listeners").addFilter(Crowded())
    await hypercorn_serve(app, config, task_status=task_status)
