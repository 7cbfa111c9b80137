"""Log lines of the processes that a mount starts, on their way to the mount's own log.

Beside standard error and not instead of it, so what a dying process says reaches the terminal or the
journal without anybody's help. A line is a datagram with a JSON object: it arrives whole or not at all.
Nobody waits: what finds the socket full is on standard error alone, and is counted with the next line.
"""

import json
import logging
import socket
from collections import Counter

TEXT_MAX = 4096  # characters of one line; a traceback is as long as it is

_ours: socket.socket | None = None  # one a process, as the log itself is


def open_receiver() -> socket.socket:
    """Has the processes that are started from now on send their lines to the socket returned."""
    global _ours
    receiver, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    _ours = ours
    return receiver


def descriptor() -> int | None:
    """What the processes that we start inherit to send their lines to."""
    return _ours.fileno() if _ours is not None else None


def begin(fd: int, process: str) -> None:
    """In a process that inherited `fd`: the log goes there too, under this name."""
    global _ours
    _ours = socket.socket(fileno=fd)
    logging.getLogger().addHandler(Sender(_ours, process))


class Sender(logging.Handler):
    """Sends records with the process before the logger's name; `missed` are [level, number of lines]."""

    def __init__(self, connection: socket.socket, process: str) -> None:
        super().__init__()
        self._socket = connection
        self._process = process
        self._missed: Counter[int] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one, or counts it."""
        try:
            said = {
                "logger": f"{self._process}:{record.name}",
                "level": record.levelno,
                "time": record.created,
                "text": self.format(record)[:TEXT_MAX],
                "missed": list(self._missed.items()),
            }
            self._socket.send(json.dumps(said).encode(), socket.MSG_DONTWAIT)
            self._missed.clear()
        except OSError:  # it is full, or the mount is gone
            self._missed[record.levelno] += 1
        except Exception:
            self.handleError(record)
