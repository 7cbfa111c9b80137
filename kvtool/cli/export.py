"""kvtool export: write snapshots to a directory as casync and desync read them."""

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import directory_name, existing_stub, layout_of
from kvtool.cli.progress import progress
from kvtool.core.text import counted, printable
from kvtool.core.units import format_size
from kvtool.errors import Damage

if TYPE_CHECKING:
    from kvtool.store.exchange import Exported


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("names", metavar="NAME", nargs="+", help="the snapshot, as it is named in the mount")
    parser.add_argument(
        "--to",
        metavar="DIR",
        type=directory_name,
        required=True,
        help="writes DIR/NAME.caibx, and the chunks to DIR/default.castr",
    )
    parser.add_argument(
        "--verify", action="store_true", help="hash chunks that are in DIR already, mend them"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, write nothing")
    examples(
        parser,
        ("kvtool export chat.bin --to /mnt/usb", "then `casync extract /mnt/usb/chat.bin.caibx chat.bin`"),
        ("kvtool export a.bin b.bin --to /mnt/usb", "what both share, or is there already, is written once"),
        ("kvtool export a.bin --to /mnt/usb --dry-run", "how much would be written"),
    )


def run(call: Call) -> int:
    """Exports beside a running mount or without one. Exit code 3 when a snapshot is damaged; others go on."""
    from kvtool.store import stubs
    from kvtool.store.exchange import Export, Exported, NotExported
    from kvtool.store.store import Store

    layout = layout_of(call.values)
    store = Store.open(layout, writable=False)
    work = Export(store, call.args.to, verify=call.args.verify, dry_run=call.args.dry_run)
    # A name that is wrong is told before the first byte is written.
    sizes = {}
    for name in call.args.names:
        work.target(name)
        sizes[name] = stubs.attributes(existing_stub(layout, name)).size
    found = Exported(
        chunks=os.fsdecode(work.chunks.path), snapshots=[], damaged=[], dry_run=call.args.dry_run
    )
    for name, size in sizes.items():
        try:
            with progress(call, name, size) as watch:
                found.snapshots.append(work.run(name, watch.done))
        except Damage as error:
            found.damaged.append(NotExported(name=name, message=error.message))
    call.emit(asdict(found), "\n".join(_lines(found)))
    return Damage.exit_code if found.damaged else 0


def _lines(found: "Exported") -> Iterator[str]:
    word = "to be written" if found.dry_run else "written"
    for row in found.snapshots:
        new = f"{format_size(row.new_bytes)} in {counted(row.new_chunks, 'chunk')} {word}"
        yield f"{printable(row.name)}: {format_size(row.size)} in {counted(row.chunks, 'chunk')}, {new}"
    for each in found.damaged:
        yield f"not exported: {printable(each.message)}"
