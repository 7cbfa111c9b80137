"""Hypercorn on trio around the application, with its patience bounded."""

import logging
import socket
from dataclasses import dataclass
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: for the head of a request, on a connection that is idle, and between two pieces of a body.

    Who does not take an answer is cut off by the kernel (`fs.api`).
    """

    head: float = 5.0
    piece: float = 60.0
    end: float = 1.0


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
    await hypercorn_serve(app, config, task_status=task_status)
