"""kvtool cat: a snapshot's bytes without a mount, every chunk verified."""

import argparse
import sys

from kvtool.cli.call import Call
from kvtool.cli.paths import existing_stub, layout_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("name", metavar="NAME", help="the snapshot, as it is named in the mount")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output")


def run(call: Call) -> int:
    """Writes the snapshot. Every chunk is looked up before the first byte is written."""
    from kvtool.store import fetch, stubs
    from kvtool.store.store import Store

    layout = layout_of(call.settings)
    store = Store.open(layout, writable=False)
    index = stubs.read_index(existing_stub(layout, call.args.name))
    pieces = fetch.read_file(store, index)
    if call.args.output is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0
    first = next(pieces, b"")  # what is there is not touched for a snapshot that cannot be read
    with open(call.args.output, "wb") as file:
        file.write(first)
        for piece in pieces:
            file.write(piece)
    call.emit(
        {"name": call.args.name, "size": index.size, "output": call.args.output},
        f"{call.args.name}: {index.size} bytes to {call.args.output}",
    )
    return 0
