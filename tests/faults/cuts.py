"""Power cuts: a scenario is recorded once, and what the disk may hold after any moment of it is checked."""

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kvtool.store.layout import Layout
from kvtool.store.repair import repair
from tests.faults.disk import Disk, Outcome
from tests.faults.operations import Tree
from tests.faults.runs import Prepared, running
from tests.faults.scenarios import Scenario
from tests.faults.shim import Event
from tests.faults.verify import check_after_kill, check_unpowered
from tests.mounts import temporary_folder
from tests.stores import layout_in

_FOLDERS = ("store", "stubs")
_OTHER_BOOT = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Recording:
    """What a scenario did to `disk`, whose store held the snapshots `tree`."""

    scenario: Scenario
    powered: bool
    disk: Disk
    tree: Tree
    events: list[Event]

    def moments(self, count: int | None = None) -> list[int]:
        """`count` moments, given as the number of events before: those after each acknowledgement, and others
        that are evenly spread; all without `count`.
        """
        every = range(len(self.events) + 1)
        if count is None:
            return list(every)
        marks = [i + 1 for i, event in enumerate(self.events) if event.data.startswith(b"end")]
        rest = [i for i in every if i not in marks]
        wanted = max(0, min(count - len(marks), len(rest)))
        return sorted([*marks, *(rest[(2 * i + 1) * len(rest) // (2 * wanted)] for i in range(wanted))])

    def trees(self, moment: int) -> list[Tree]:
        """What the names may hold after a cut: whatever they have held, but with durability "power" nothing
        that is older than what was acknowledged.
        """
        trees = before = [self.tree]
        for event in self.events[:moment]:
            if event.op != "mark":
                continue
            word, number = event.data.decode().split()
            operation = self.scenario.operations[int(number)]
            if word == "begin":
                before = trees
                last = trees if self.powered else trees[-1:]
                trees = [*trees, *(more for tree in last for more in operation.halfway(tree))]
                trees += [operation.after(tree) for tree in last]
            elif self.powered and operation.durable:
                trees = [operation.after(tree) for tree in before]
        return trees

    @contextmanager
    def after_cut(self, moment: int, outcome: Outcome, seed: int = 0) -> Iterator[Path]:
        """A folder with what may be left of the store, as another boot finds it."""
        disk = copy.deepcopy(self.disk)
        for event in self.events[:moment]:
            disk.play(event)
        with temporary_folder() as root:
            disk.cut(outcome, random.Random(f"{self.scenario.name} {moment} {seed}"), root)
            layout = layout_in(root)
            _keep_mark(layout)
            lock = layout.lock
            if lock.exists() and (text := lock.read_text(errors="replace")).count(" ") == 1:
                lock.write_text(f"{text.split()[0]} {_OTHER_BOOT}\n")
            yield root

    def check(self, moment: int, outcome: Outcome, seed: int = 0) -> None:
        """A cut at that moment, and what must hold then."""
        with self.after_cut(moment, outcome, seed) as root:
            trees = self.trees(moment)
            if self.scenario.is_repair:
                repair(layout_in(root))
            try:
                if self.powered:
                    check_after_kill(root, trees, sync=True)
                else:
                    check_unpowered(root, trees, self.disk.contents("stubs"))
            except Exception as error:
                error.add_note(f"{self.scenario.name}, {outcome.name} after event {moment}, seed {seed}")
                raise


def _keep_mark(layout: Layout) -> None:
    """It is the same disk, and only to us a copy: what was noted of it holds (see `durable`)."""
    with suppress(OSError, ValueError):
        newest, _ = map(int, layout.synced.read_text().split())
        layout.synced.write_text(f"{newest} {layout.format.stat().st_ctime_ns}\n")


def record(scenario: Scenario, library: Path, prepared: Prepared, durability: str) -> Recording:
    """Plays a scenario and notes every change from the mount's start to the end of the last operation."""
    with temporary_folder() as root:
        tree = prepared.copy(scenario, root)
        disk = Disk(root, _FOLDERS)
        flags = ("--store.durability", durability)
        with running(scenario, library, root, tree, *flags, recorded=True) as run:
            run.play()
            run.shim.stop()
            events = list(run.shim.events())
        assert len(run.trees) == 1, "an operation failed"
    return Recording(scenario, durability == "power", disk, tree, events)
