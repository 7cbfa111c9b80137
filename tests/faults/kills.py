"""Kills: a scenario is run up to a step, where all its processes are killed, and what is left is checked."""

from pathlib import Path
from typing import NamedTuple

from kvtool.store.repair import repair
from tests.faults.runs import Prepared, running
from tests.faults.scenarios import Scenario
from tests.faults.shim import CHANGES, Action, Kind
from tests.faults.verify import check_after_kill, check_in_mount
from tests.mounts import temporary_folder
from tests.stores import layout_in


class Kill(NamedTuple):
    """Before step `at` of those that change anything, or after half of the write number `at`."""

    at: int
    halfway: bool = False

    def __str__(self) -> str:
        return f"write{self.at}" if self.halfway else f"step{self.at}"


def kill(scenario: Scenario, how: Kill, library: Path, prepared: Prepared, *, in_mount: bool = False) -> str:
    """Runs the scenario with that kill and checks what is left, with `in_mount` in a mount.

    Returns what the step was, empty when there are not so many.
    """
    with temporary_folder() as root:
        tree = prepared.copy(scenario, root)
        with running(scenario, library, root, tree) as run:
            if how.halfway:
                run.shim.watch(Kind.WRITE, Action.KILL_HALFWAY, how.at)
            else:
                run.shim.watch(CHANGES, Action.KILL, how.at)
            run.play()
            run.kill()
            what = run.shim.what.replace(str(root), "") if run.shim.fired else ""
        if scenario.is_repair:
            repair(layout_in(root))
        check = check_in_mount if in_mount else check_after_kill
        try:
            check(root, run.trees)
        except Exception as error:
            error.add_note(f"{scenario.name}, {how}: killed at {what}")
            raise
    return what
