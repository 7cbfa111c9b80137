"""Measure kvtool beside a plain folder and its peers, print a report, keep it in bench-results/.

Contenders take turns within a run, so that a slow minute hits them all. Limits are printed with the ratios
and fail nothing. For example: make bench ARGS="--only save,latency --runs 3 --size 200". With --docs the
tables and the plot in docs/ are replaced by this run's: make bench ARGS="--llama --docs"
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench import (
    conversation,
    docs,
    floor,
    hashing,
    kinship,
    llama,
    loads,
    restores,
    scale,
    throughput,
    upkeep,
)
from tests.bench.peers import PEERS
from tests.bench.results import Plan, Results, machine
from tests.mounts import interrupt_once, temporary_folder
from tests.timing import timed

Case = Callable[[Results, Path, Plan], None]
CASES: dict[str, Case] = {
    "save": throughput.save_and_restore,
    "short": throughput.short_writes,
    "floor": floor.floor,
    "turns": conversation.turns,
    "fifty": conversation.fifty,
    "four": restores.four,
    "prefetch": restores.prefetch,
    "latency": loads.latency,
    "memory": loads.memory,
    "scale": scale.scale,
    "verify": hashing.verify,
    "tree": kinship.tree,
    "collection": upkeep.collection,
    "month": upkeep.month,
    "llama": llama.llama,
}
RESULTS = Path("bench-results")
RARE = ("collection", "month", "llama")  # take long, and are run when their part has changed
QUICK = [name for name in CASES if name not in RARE]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(QUICK), help=f"cases out of {','.join(CASES)}")
    parser.add_argument("--llama", action="store_true", help="the real server with full-size models too")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--size", type=int, default=541, help="MB (10^6 bytes) of random bytes")
    known = [peer.name for peer in PEERS]
    parser.add_argument("--peers", default=",".join(known), help="beside whom; an empty list for nobody")
    parser.add_argument("--folder", type=Path, help="where to work (default: TMPDIR); on the disk to measure")
    parser.add_argument("--docs", action="store_true", help="put the result into docs/performance.{md,svg}")
    parser.add_argument("--again", action="store_true", help="measure nothing, show the last run again")
    options = parser.parse_args()
    if options.again:
        return _show(Results.read(RESULTS), for_docs=options.docs)
    names = options.only.split(",") + ["llama"] * options.llama
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")

    wanted = [name for name in options.peers.split(",") if name]
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(known)}")

    interrupt_once()
    results = Results(machine=machine(options.folder or Path(tempfile.gettempdir())))
    peers = [peer for peer in PEERS if peer.name in wanted]
    for peer in peers:
        results.note(
            f"{peer.name}: {peer.how}" if peer.installed() else f"{peer.name}: not installed, left out"
        )
    plan = Plan(options.runs, options.size * 1_000_000, [peer for peer in peers if peer.installed()])
    for name in dict.fromkeys(names):
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        with temporary_folder(options.folder) as folder:
            seconds, _ = timed(partial(CASES[name], results, folder, plan))
        print(f"bench: {name} took {seconds:.0f} s", file=sys.stderr, flush=True)
        results.write(RESULTS)  # after each case: an interrupted run keeps what it has
    return _show(results, for_docs=options.docs)


def _show(results: Results, *, for_docs: bool) -> int:
    results.write(RESULTS)
    if for_docs:
        docs.refresh(results)
    print(results.markdown())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
