"""kvtool gc: free the packs that no snapshot needs."""

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from kvtool.cli.answers import Freed
from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of
from kvtool.cli.progress import progress
from kvtool.core.text import counted
from kvtool.core.units import format_size
from kvtool.errors import KvtoolError
from kvtool.store.watch import NOBODY, Watch

if TYPE_CHECKING:
    from kvtool.store.collect import Collected
    from kvtool.store.layout import Layout

_PAUSE = 0.2  # seconds between two questions to the mount how far it is


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be freed, delete nothing")
    examples(
        parser,
        ("kvtool gc", "free what nothing needs; a running mount does it, as it does every hour"),
        ("kvtool gc --dry-run", "how much that would be"),
    )


def run(call: Call) -> int:
    """Has the running mount collect, or does it under the lock when none runs."""
    from kvtool.store import collector, control, recover
    from kvtool.store import layout as store_layout
    from kvtool.store.collect import Collected
    from kvtool.store.store import Store

    layout = layout_of(call.values)
    dry_run = bool(call.args.dry_run)
    store_layout.open_existing(layout)
    leftovers = 0
    try:
        with progress(call, "gc: the mount collects", unit="packs") as watch, _followed(layout, watch):
            answer = control.ask(layout, "gc", dry_run=dry_run)
        freed = Collected(answer["packs"], answer["rewritten"], answer["bytes"])
    except control.NotRunning:
        if dry_run:
            with progress(call, "gc"):
                freed = collector.run(Store.open(layout, writable=False), dry_run=True)
            return _answer(call, freed, 0)
        with recover.writer(layout, sync=True) as (store, recovered, _):
            leftovers = recovered.leftovers
            with progress(call, "gc") as watch:
                freed = collector.run(store, watch=watch)
    return _answer(call, freed, leftovers)


@contextmanager
def _followed(layout: "Layout", watch: Watch) -> Iterator[None]:
    """Tells `watch` of the packs that the mount has to write, and has written, until the block ends."""
    from kvtool.store import control

    over = threading.Event()

    def follow() -> None:
        total = written = 0
        while not over.wait(_PAUSE):
            try:
                now = control.ask(layout, "collection")
            except (KvtoolError, OSError):
                return  # who waits for the end is told
            if now["packs_to_write"] != total:
                total, written = now["packs_to_write"], 0
                watch.begin(total)
            watch.done(now["packs_written"] - written)
            written = now["packs_written"]

    if watch is NOBODY:
        yield
        return
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _answer(call: Call, freed: "Collected", leftovers: int) -> int:
    dry_run = bool(call.args.dry_run)
    verb = "would be freed" if dry_run else "freed"
    text = f"{counted(freed.packs, 'pack')}, {format_size(freed.bytes)} {verb}"
    if freed.rewritten:
        new = counted(freed.rewritten, "new pack")
        does = "would hold" if dry_run else "holds" if freed.rewritten == 1 else "hold"
        text += f"; {new} {does} what is needed of the old"
    if leftovers:
        text += f"; {counted(leftovers, 'leftover')} removed"
    call.emit(asdict(Freed(**asdict(freed), leftovers=leftovers, dry_run=dry_run)), text)
    return 0
