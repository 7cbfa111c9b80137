"""What a service manager is told on the socket that it named in NOTIFY_SOCKET, as sd_notify(3) has it.

A message is one datagram of lines NAME=VALUE. Nothing is said where no socket is named. Pings for the
watchdog come from the event loop, and only after the mount has answered somebody else.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import trio

from kvtool.core.text import counted
from kvtool.core.units import format_size
from kvtool.errors import KvtoolError

log = logging.getLogger(__name__)
_INTERVAL = 60.0  # seconds between two texts, where no watchdog asks for more
_PATIENCE = 1.0  # seconds that a manager whose queue is full may hold a message up


@dataclass(slots=True)
class Notifier:
    """Where to tell it ("" where nobody asks), and after how many seconds without a ping the manager kills
    us (0: never).
    """

    address: str = ""
    watchdog: float = 0.0
    _failed: bool = field(default=False, init=False)

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> "Notifier":
        """As the environment of process `pid` says."""
        watchdog = environ.get("WATCHDOG_USEC", "")
        if environ.get("WATCHDOG_PID", str(pid)) != str(pid) or not watchdog.isdecimal():
            watchdog = "0"  # it is meant for another process
        return cls(environ.get("NOTIFY_SOCKET", ""), int(watchdog) / 1e6)

    async def say(self, **lines: str) -> None:
        """Sends one message. That it cannot be sent is logged once: the mount serves all the same."""
        if not self.address:
            return
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        text = "\n".join(f"{key}={value}" for key, value in lines.items())
        try:
            with trio.move_on_after(_PATIENCE), trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                await out.connect(name)  # so that to wait for a full queue is no busy loop
                await out.send(text.encode())
        except OSError as error:
            if not self._failed:
                log.warning("the service manager cannot be told: NOTIFY_SOCKET=%s: %s", self.address, error)
            self._failed = True

    async def run(self, answers: Callable[[], Awaitable[bool]], status: Callable[[], Awaitable[str]]) -> None:
        """Until cancelled: a text every minute, and a ping twice in each time of the watchdog.

        There is no ping while `answers` waits, or after it said no. Both may raise KvtoolError and OSError.
        """
        if not self.address:
            return
        interval = min(self.watchdog / 2 or _INTERVAL, _INTERVAL)
        while True:
            due = trio.current_time() + interval
            lines = {}
            try:
                if self.watchdog and await answers():
                    lines["WATCHDOG"] = "1"
                lines["STATUS"] = await status()
            except (KvtoolError, OSError) as error:
                log.error("the service manager is told less than it should be: %s", error)
            await self.say(**lines)
            await trio.sleep_until(due)


def summary(*, stored: int, commits: int, saved: int, new: int, unfinished: int, open_files: int) -> str:
    """What a mount does, in one line for `systemctl status`; sizes in bytes."""
    since = (
        f"{counted(commits, 'save')} of {format_size(saved)} since the start, {format_size(new)} of it new"
    )
    now = f"{counted(unfinished, 'save')} under way, {counted(open_files, 'file')} open"
    return f"{format_size(stored)} stored; {since}; {now}"
