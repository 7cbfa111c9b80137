"""`python -m tests.faults.sweep [SCENARIO ...]`: every step of every scenario (make faults).

Kills before each step and halfway through each write, and power cuts at each moment with all outcomes; for
each finding a line that says how to see it again. Exits 1 when something was found. Takes some hours.
"""

import argparse
import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.faults.cuts import record
from tests.faults.disk import Outcome
from tests.faults.kills import Kill, kill
from tests.faults.runs import Prepared
from tests.faults.scenarios import DAY, SCENARIOS, Scenario
from tests.faults.shim import compile_shim

Case = tuple[str, Callable[[], object]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.sweep", description=__doc__)
    everything = SCENARIOS | {DAY.name: DAY}
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(everything)}")
    parser.add_argument("--kills", action="store_true", help="kills alone")
    parser.add_argument("--cuts", action="store_true", help="power cuts alone")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th step and moment")
    parser.add_argument("--lots", type=int, default=10, help="power cuts drawn by lot at each moment")
    chosen = parser.parse_args()
    if unknown := set(chosen.scenarios) - everything.keys():
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    logging.disable()  # what is mended is no news here
    found = 0
    with tempfile.TemporaryDirectory(prefix="kvtool-sweep-") as folder:
        library, prepared = compile_shim(Path(folder)), Prepared(Path(folder))
        for name in chosen.scenarios or everything:
            scenario = everything[name]
            if chosen.kills or not chosen.cuts:
                found += run(f"{name}: kills", kills(scenario, library, prepared, chosen.every))
            if chosen.cuts or not chosen.kills:
                for durability in ("power", "process"):
                    cases = cuts(scenario, durability, library, prepared, chosen.every, chosen.lots)
                    found += run(f"{name}: power cuts, durability {durability}", cases)
    return int(found > 0)


def kills(scenario: Scenario, library: Path, prepared: Prepared, every: int) -> Iterator[Case]:
    for halfway in (False, True):
        at, more = 1, True

        def one(how: Kill) -> None:
            nonlocal more
            # Each second time in a mount: what the kernel asks for is looked at, too.
            more = bool(kill(scenario, how, library, prepared, in_mount=how.at % 2 == 0))

        while more:
            how = Kill(at, halfway)
            yield str(how), partial(one, how)
            at += every


def cuts(
    scenario: Scenario, durability: str, library: Path, prepared: Prepared, every: int, lots: int
) -> Iterator[Case]:
    recording = record(scenario, library, prepared, durability)
    for moment in recording.moments()[::every]:
        for outcome in Outcome:
            for seed in range(lots if outcome is Outcome.CHANCE else 1):
                check = partial(recording.check, moment, outcome, seed)
                yield f"{outcome.name} after event {moment}, seed {seed}", check


def run(title: str, cases: Iterator[Case]) -> int:
    """Runs these cases. Returns how many failed."""
    start, count, failed = time.monotonic(), 0, 0
    for name, check in cases:
        count += 1
        try:
            check()
        except Exception:
            failed += 1
            print(f"{title}: {name} FAILED", flush=True)
            traceback.print_exc(limit=-3)
    print(f"{title}: {count} cases, {failed} failed, {time.monotonic() - start:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
