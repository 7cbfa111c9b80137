"""What a mount has saved and stored over time, for a picture of it: few samples, however long it runs."""

import time
from dataclasses import dataclass

import trio

from kvtool.fs.environment import Environment

_INTERVAL = 60.0  # seconds between two samples at first
_MOST = 500  # samples


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment, in seconds since the epoch; bytes saved since the mount's start, those of them that were new,
    and the bytes of all packs.
    """

    time: float
    saved: int
    new: int
    stored: int


class History:
    """The samples, oldest first. At many, every second goes and new ones come half as often."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.samples: list[Sample] = []
        self.interval = _INTERVAL

    async def run(self) -> None:
        """Takes samples until cancelled."""
        while True:
            self.add(await self.sample())
            await trio.sleep(self.interval)

    async def sample(self) -> Sample:
        """One of now."""
        env = self._env
        packs = await trio.to_thread.run_sync(env.store.catalog.packs)
        return Sample(time.time(), env.bytes_saved, env.bytes_new, sum(row.size for row in packs))

    def add(self, sample: Sample) -> None:
        """Keeps one more; the first is never dropped."""
        self.samples.append(sample)
        if len(self.samples) > _MOST:
            del self.samples[1::2]
            self.interval *= 2
