"""`python -m tests.longrun [--minutes M | --steps N]`: mixed load, every byte compared, nothing may grow.

One mount lasts for the whole run: three clients use it at once, with collections, prefetches and questions to
its HTTP API in between. Another one is unmounted or killed and mounted again all the time. What the clients
restore is compared, and in the end every file of both. Exits 1 for a wrong byte, an unexpected line in a log,
or growth of the lasting mount's memory, descriptors, threads or processes from the first tenth to the last.
"""

import argparse
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.api import TOKEN, Api, wait_until_healthy
from tests.longrun import samples
from tests.longrun.load import Client, WrongBytes
from tests.longrun.samples import Sample
from tests.mounts import MountedStore, MountFailed, ignore_interrupts, interrupt_once, temporary_folder
from tests.timing import table

_DAY = 86400.0  # seconds; the watchdog of a mount that is to last
_FLAGS = ("--store.gc_interval", "0", "--mount.cache", "64 MiB", "--mount.write_queue", "16 MiB")
_CLIENTS = 3
_WARM_UP = 3  # rounds of every kind of step, before anything is measured


class Run:
    """The two mounts, their clients, and the samples taken so far."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        api = ("--http.listen", "127.0.0.1:0", "--http.token", TOKEN)
        self.lasting = stack.enter_context(MountedStore(folder / "a", *_FLAGS, *api, limit=_DAY))
        self.restless = stack.enter_context(MountedStore(folder / "b", *_FLAGS, limit=_DAY))
        self.api = Api(self.lasting)
        wait_until_healthy(self.api)
        self.clients = [Client(self.lasting.dir / f"client-{n}", n) for n in range(_CLIENTS)]
        self.other = Client(self.restless.dir / "client", _CLIENTS)
        self.pool = stack.enter_context(ThreadPoolExecutor(_CLIENTS + 1))
        self.chance = random.Random(0)
        self.samples: list[Sample] = []
        self.remounts = self.kills = self.collections = self.asked = 0
        self.began = time.monotonic()

    @property
    def steps(self) -> int:
        """Steps that the clients did."""
        return sum(client.counts.total() for client in [*self.clients, self.other])

    def warm_up(self) -> None:
        """Everything once and again, so that buffers and caches are there."""
        for done in [self.pool.submit(client.large) for client in self.clients]:
            done.result()
        for _ in range(_WARM_UP):
            for client in [*self.clients, self.other]:
                client.each()
        self.between(remount=True, collect=True, ask=True, prefetch=True)
        self.began = time.monotonic()

    def round(self) -> None:
        """A step of every client at once, then what is done alone, then a sample."""
        for done in [self.pool.submit(client.step) for client in [*self.clients, self.other]]:
            done.result()
        lots = [self.chance.random() for _ in range(4)]
        self.between(
            remount=lots[0] < 0.02, collect=lots[1] < 0.03, ask=lots[2] < 0.1, prefetch=lots[3] < 0.05
        )
        minutes = (time.monotonic() - self.began) / 60
        self.samples.append(samples.take(self.lasting.pid, minutes, self.steps, self.lasting.pack_bytes))

    def between(self, *, remount: bool, collect: bool, ask: bool, prefetch: bool) -> None:
        """What happens while no client does anything."""
        if remount:
            if self.chance.random() < 0.5:
                self.restless.kill()
                self.kills += 1
            self.restless.remount()
            self.remounts += 1
            self.other.compare_all()
        if collect:
            self.lasting.kvtool("gc")
            self.restless.kvtool("gc")
            self.collections += 2
        if ask:
            for path in ("/v1/snapshots?sort=score", "/v1/status", "/metrics"):
                self.asked += self.api(path).status == 200
        if prefetch:
            client = self.chance.choice(self.clients)
            names = [f"{client.folder.name}/{name}" for name in sorted(client.files)[:2]]
            if names:
                self.lasting.kvtool("prefetch", *names)

    def compare_all(self) -> None:
        """Every byte of both stores, as kvtool and as the clients see them."""
        for client in [*self.clients, self.other]:
            client.compare_all()
        for mount in (self.lasting, self.restless):
            mount.kvtool("gc")
            mount.umount()
            mount.kvtool("fsck")
            mount.kvtool("verify")

    def report(self) -> str:
        """The table, and what was done."""
        counts = sum((client.counts for client in self.clients), start=self.other.counts)
        did = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        text = (
            f"{self.steps} steps: {did}; {self.collections} collections, {self.remounts} remounts"
            f" ({self.kills} after a kill), {self.asked} answers of the API."
        )
        return f"{table(samples.rows(self.samples))}\n\n{text}"


def long_run(*, minutes: float, steps: float) -> int:
    """A run until so many minutes or steps are over. Returns the exit code."""
    trouble: list[str] = []
    run: Run | None = None
    try:
        with temporary_folder() as folder, ExitStack() as stack:
            run = Run(folder, stack)
            run.warm_up()
            while time.monotonic() - run.began < 60 * minutes and run.steps < steps:
                run.round()
            run.compare_all()
    except KeyboardInterrupt:
        trouble.append("interrupted")
    except (WrongBytes, MountFailed, OSError) as error:
        trouble.append(str(error))
    if run is not None and run.samples:
        trouble += samples.growth(run.samples)
        print(run.report())
    print("\n".join(f"FAILED: {line}" for line in trouble) or "Every byte was right, and nothing grew.")
    return 1 if trouble else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.longrun", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--steps", type=float, default=float("inf"), help="at most so many steps of clients")
    chosen = parser.parse_args()
    interrupt_once()
    code = long_run(minutes=chosen.minutes, steps=chosen.steps)
    ignore_interrupts()
    return code


if __name__ == "__main__":
    sys.exit(main())
