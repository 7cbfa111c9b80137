"""kvtool inspect: list snapshots with what they cost, show one in depth, or the tree of what they share."""

import argparse
import fnmatch
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvtool.cli.call import Call, say
from kvtool.cli.parser import examples
from kvtool.cli.paths import existing_stub, layout_of
from kvtool.core.score import Score
from kvtool.core.text import printable
from kvtool.core.units import parse_duration
from kvtool.core.usage import count
from kvtool.errors import ChunkMissing, IndexDamaged, UsageError
from kvtool.store import layout as store_layout
from kvtool.store.layout import Layout
from kvtool.store.snapshots import (
    DamagedStub,
    Listing,
    Snapshot,
    iso_time,
    list_snapshots,
    read_indexes,
)

if TYPE_CHECKING:
    from kvtool.store.kinship import Tree

_LIST_FLAGS = ("sort", "reverse", "match", "label", "unused", "limit")

# Names and labels from A to Z, all else from the largest or the latest down.
_KEYS: dict[str, Callable[[Snapshot], Any]] = {
    "name": lambda row: row.name,
    "size": lambda row: row.size,
    "unique": lambda row: row.unique_bytes,
    "shared": lambda row: row.shared_bytes,
    "uses": lambda row: row.uses,
    "last-used": lambda row: row.last_used,
    "created": lambda row: row.created,
    "labels": lambda row: sorted(row.labels.items()),
    "score": lambda row: row.score,
}
_UPWARD = {"name", "labels"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="show this snapshot in depth")
    parser.add_argument("--tree", action="store_true", help="show which snapshots' token lists begin alike")
    group = parser.add_argument_group("which snapshots the list has, and in which order")
    group.add_argument("--sort", choices=_KEYS, help="by this column, the largest first (default: name)")
    group.add_argument("--reverse", action="store_true", help="the other way round")
    group.add_argument("--match", metavar="PATTERN", help="those with such names: * and ? match / too")
    group.add_argument(
        "--label",
        metavar="KEY[=VALUE]",
        action="append",
        help="those with this label; given several times, with all of them",
    )
    group.add_argument("--unused", metavar="DURATION", help="those neither used nor written for so long")
    group.add_argument("--limit", metavar="N", type=int, help="no more than N")
    examples(
        parser,
        ("kvtool inspect", "all snapshots: size, what deleting one frees, what it shares"),
        ("kvtool inspect --sort score --limit 10", "the ten best to delete"),
        ("kvtool inspect --label project=demo --unused 7d", "what project demo has not used for a week"),
        ("kvtool inspect chat.bin", "one of them: packs, fragmentation, tokens"),
        ("kvtool inspect --tree", "which are turns or branches of which conversation"),
    )


def run(call: Call) -> int:
    """Reads the stubs, beside a running mount or without one. Exit code 3 when one is damaged."""
    args = call.args
    if args.name is not None or args.tree:
        if args.name is not None and args.tree:
            raise UsageError("--tree is about all snapshots", hint="leave NAME out")
        if given := [
            flag for flag in _LIST_FLAGS if not any(getattr(args, flag) is unset for unset in (None, False))
        ]:
            raise UsageError(
                f"--{given[0]} goes with the list of snapshots", hint="leave NAME and --tree out"
            )
    layout = layout_of(call.values)
    store_layout.open_existing(layout)
    if args.name is not None:
        return _show(call, layout)
    return _show_tree(call, layout) if args.tree else _list(call, layout)


def _list(call: Call, layout: Layout) -> int:
    from kvtool.cli.inspected import listing_text

    wanted = _filter(call.args)
    listing = list_snapshots(layout, Score(call.values["score.expression"]))
    rows = sorted((row for row in listing.snapshots if wanted(row)), key=_KEYS["name"])
    by = call.args.sort or "name"
    rows.sort(key=_KEYS[by], reverse=(by not in _UPWARD) != call.args.reverse)
    shown = Listing(rows[: call.args.limit], listing.damaged)
    call.emit(asdict(shown), listing_text(shown))
    return _damaged(call, listing.damaged)


def _filter(args: argparse.Namespace) -> Callable[[Snapshot], bool]:
    """Whether a snapshot is one of those asked for. Raises UsageError."""
    if args.limit is not None and args.limit < 0:
        raise UsageError("--limit takes a number of snapshots")
    unused = parse_duration(args.unused) if args.unused is not None else None
    # Times in this spelling sort as what they say.
    before = iso_time(time.time() - unused) if unused is not None else None
    labels = [text.partition("=") for text in args.label or ()]

    def wanted(row: Snapshot) -> bool:
        return (
            (args.match is None or fnmatch.fnmatchcase(row.name, args.match))
            and all(
                key in row.labels and (not sign or row.labels[key] == value) for key, sign, value in labels
            )
            and (before is None or max(row.created, row.modified, row.last_used) < before)
        )

    return wanted


def _show(call: Call, layout: Layout) -> int:
    from kvtool.cli.inspected import anatomy_text
    from kvtool.store.anatomy import dissect
    from kvtool.store.store import Store

    path = existing_stub(layout, call.args.name)
    score = Score(call.values["score.expression"])
    others = count(read_indexes(layout).of).others
    found = dissect(Store.open(layout, writable=False), path, score, others)
    call.emit(asdict(found), anatomy_text(found))
    return ChunkMissing.exit_code if found.missing else 0


def _show_tree(call: Call, layout: Layout) -> int:
    from kvtool.cli.inspected import tree_text
    from kvtool.store.kinship import prefix_tree
    from kvtool.store.store import Store

    tree: Tree = prefix_tree(Store.open(layout, writable=False))
    call.emit(asdict(tree), tree_text(tree))
    return _damaged(call, tree.damaged)


def _damaged(call: Call, damaged: Sequence[DamagedStub]) -> int:
    for entry in () if call.json else damaged:
        say(f"damaged: {printable(entry.message)}")
    return IndexDamaged.exit_code if damaged else 0
