"""Running a scenario under the shim, and what may be there when it has ended."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvtool.errors import KvtoolError
from tests import processes
from tests.faults.operations import LIMIT, Killed, Stop, Tree, World
from tests.faults.scenarios import Scenario
from tests.faults.shim import Shim
from tests.mounts import MountedStore


@dataclass
class Run:
    """A scenario under way: the shim, the world, the mount if there is one, what the names may hold, and the
    error that has ended it.
    """

    scenario: Scenario
    shim: Shim
    world: World
    trees: list[Tree]
    mount: MountedStore | None = None
    error: Exception | None = None

    def play(self) -> None:
        """Does the operations until one fails. `trees` is then what was before it and what is after it."""
        for number, operation in enumerate(self.scenario.operations):
            (tree,) = self.trees
            self.trees = [tree, *operation.halfway(tree), operation.after(tree)]
            self.shim.mark(f"begin {number}")
            try:
                operation.run(self.world)
            except (OSError, KvtoolError, Killed) as error:
                self.error = error
                return
            self.shim.mark(f"end {number}")
            self.trees = self.trees[-1:]
            if isinstance(operation, Stop) and self.mount is not None:
                self.mount.kill(0)  # it has ended by itself; this tells the harness

    def kill(self) -> None:
        """No process of it is left, whether the shim has killed them or not."""
        if self.mount is not None and self.mount.running:
            self.mount.kill()
        processes.wait_gone(self.shim.pids, LIMIT)


class Prepared:
    """Scenarios' stores, each made once and copied for every run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trees: dict[str, Tree] = {}

    def copy(self, scenario: Scenario, root: Path) -> Tree:
        """A fresh store in the folder `root`, and what it holds."""
        origin = self._folder / scenario.prepare.__name__
        if scenario.prepare.__name__ not in self._trees:
            origin.mkdir()
            self._trees[scenario.prepare.__name__] = scenario.prepare(origin)
        shutil.copytree(origin, root, dirs_exist_ok=True)
        return self._trees[scenario.prepare.__name__]


@contextmanager
def running(
    scenario: Scenario, library: Path, root: Path, tree: Tree, *flags: str, recorded: bool = False
) -> Iterator[Run]:
    """The scenario ready to be played in `root`, which holds `tree`; no process of it is left afterwards."""
    with Shim(library, root) as shim:
        if recorded:
            shim.record()
        mount = MountedStore(root, "--store.gc_interval", "0", *flags, env=shim.environment)
        run = Run(scenario, shim, World(root, mount.environment | shim.environment, flags), [tree])
        if not scenario.is_mounted:
            yield run
            run.kill()
            return
        with mount:
            run.mount = mount
            yield run
