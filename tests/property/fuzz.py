"""`python -m tests.property.fuzz [--mount | --upkeep] [--seconds N]`: random sequences until told to stop.

Sequences that found something are kept in .hypothesis and tried first the next time. Prints how many
sequences and steps ran, also after Ctrl-C; exits 1 when something was found.
"""

import argparse
import sys
import time
import traceback

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.stateful import run_state_machine_as_test

from tests.property.rules import Machine
from tests.property.test_model import PlainMachine
from tests.property.test_upkeep import UpkeepMachine
from tests.property.test_vfs import VfsMachine

ROUND = 25  # sequences between two looks at the clock


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.fuzz", description=__doc__)
    parser.add_argument("--mount", action="store_true", help="a real mount, not the file system in process")
    parser.add_argument("--plain", action="store_true", help="a plain directory: test the model itself")
    parser.add_argument("--upkeep", action="store_true", help="saves, collections and crashes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--steps", type=int, default=50, help="steps of one sequence at most")
    chosen = parser.parse_args()
    budget = settings(
        max_examples=ROUND,
        stateful_step_count=chosen.steps,
        deadline=None,
        derandomize=False,
        database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    machine: type[Machine | UpkeepMachine] = PlainMachine if chosen.plain else VfsMachine
    if chosen.upkeep:
        machine = UpkeepMachine
    if chosen.mount:
        from tests.fuse.test_sequences import MountMachine  # needs /dev/fuse

        MountMachine.limit = 3600
        machine = MountMachine
    return run(machine, budget, chosen.seconds)


def run(machine: type[Machine | UpkeepMachine], budget: settings, seconds: float) -> int:
    """Rounds of sequences until the time is over, Ctrl-C, or a finding."""
    start, found = time.monotonic(), False
    try:
        while time.monotonic() - start < seconds:
            run_state_machine_as_test(machine, settings=budget)
            report(machine, start, end="\r" if sys.stdout.isatty() else "\n")
    except KeyboardInterrupt:
        pass
    except Exception:
        traceback.print_exc()
        found = True
    finally:
        machine.finish()
    report(machine, start)
    return int(found)


def report(machine: type[Machine | UpkeepMachine], start: float, end: str = "\n") -> None:
    print(
        f"{machine.sequences} sequences, {machine.steps} steps, {machine.calls} calls compared"
        f" in {time.monotonic() - start:.0f} s",
        end=end,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
