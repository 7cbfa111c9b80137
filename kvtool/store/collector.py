"""A whole collection: offline in one go, or step by step in a process of its own beside a mount.

The process reads, plans, and writes new packs; what changes the catalog or deletes anything is left to the
one writer, the mount's worker. It prints a line of JSON for each step, and goes on when it reads a line:

    {"dead": [keys], "packs": n, "rewritten": n, "bytes": n}     what there is to free, at most
    {"pack": id, "sources": [keys], "damaged": [[id, bytes]]}    a new pack to adopt, and what it replaces
    {"failed": text}                                             why it ends
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvtool.store import badlist, child, collect, compact
from kvtool.store.collect import Collected, Survey
from kvtool.store.durable import sync_all
from kvtool.store.layout import Layout
from kvtool.store.store import Store
from kvtool.store.watch import NOBODY, Watch


def run(store: Store, *, dry_run: bool = False, watch: Watch = NOBODY) -> Collected:
    """A collection while nothing else uses the store; the caller holds the lock unless `dry_run`.

    `watch` is told of the bytes of the packs that are to go.

    Raises IndexDamaged and NoStore, as `collect.mark` does, OSError.
    """
    newest = collect.newest_pack(store)
    survey = collect.survey(store, collect.mark(store), newest)
    if dry_run:
        return estimate(survey)
    watch.begin(sum(use.size for use in [*survey.dead, *compact.choose(survey.uses)]))
    sync_all(store.layout, newest)
    freed = Collected()
    for dropped in collect.drop(store, [use.key for use in survey.dead]):
        watch.done(dropped.bytes)
        freed += dropped
    for step in compact.rewrite(store, survey):
        for chunk_id, length in step.damaged:
            badlist.suspect(store, chunk_id, length)
        freed += Collected(rewritten=1, bytes=-compact.adopt(store, step.pack_id))
        for dropped in collect.drop(store, step.sources):
            watch.done(dropped.bytes)
            freed += dropped
    return freed


def estimate(survey: Survey) -> Collected:
    """What a collection would free, if nothing were used meanwhile and the disk had room."""
    chosen = compact.choose(survey.uses)
    return Collected(
        packs=len(survey.dead) + len(chosen),
        rewritten=len(list(compact.rounds(chosen))),
        bytes=sum(use.size for use in survey.dead) + sum(use.dead for use in chosen),
    )


def steps(store: Store, newest: int, say: Callable[[dict[str, Any]], None], *, dry_run: bool) -> None:
    """The process's work, for packs with keys up to `newest`: `say` takes each step and returns when the
    writer has done its part.
    """
    survey = collect.survey(store, collect.mark(store), newest)
    if not dry_run:
        sync_all(store.layout, newest)
    total = estimate(survey)
    dead = [use.key for use in survey.dead]
    say({"dead": dead, "packs": total.packs, "rewritten": total.rewritten, "bytes": total.bytes})
    if dry_run:
        return
    for step in compact.rewrite(store, survey):
        damaged = [[chunk_id.hex(), length] for chunk_id, length in step.damaged]
        say({"pack": step.pack_id.hex(), "sources": step.sources, "damaged": damaged})


def _say(step: dict[str, Any]) -> None:
    print(json.dumps(step), flush=True)
    if not sys.stdin.readline():
        sys.exit()  # the mount has no more use for us


def main() -> None:
    """The process's start."""
    parser = child.parser("collector")
    parser.add_argument("--newest", type=int, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--stubs", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true")
    args = child.begin(parser)
    os.nice(10)
    with child.failure_told():
        store = Store.open(Layout(args.store, args.stubs), writable=False)
        steps(store, args.newest, _say, dry_run=args.dry_run)


if __name__ == "__main__":
    main()
