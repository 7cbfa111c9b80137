"""kvtool cat: a snapshot's bytes without a mount, every chunk verified."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict

from kvtool.cli.answers import Restored
from kvtool.cli.call import Call, writing_output
from kvtool.cli.parser import examples
from kvtool.cli.paths import existing_stub, layout_of
from kvtool.cli.progress import progress
from kvtool.core.text import printable
from kvtool.errors import UsageError
from kvtool.store.watch import NOBODY


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("name", metavar="NAME", help="the snapshot, as it is named in the mount")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output")
    examples(
        parser,
        ("kvtool cat chat.bin > chat.bin", "restore a snapshot, also beside a mount"),
        ("kvtool cat chat.bin --output chat.bin", "whole, or not at all"),
    )


def run(call: Call) -> int:
    """Writes the snapshot. Every chunk is looked up before the first byte is written."""
    from kvtool.store import fetch, stubs
    from kvtool.store.store import Store

    layout = layout_of(call.values)
    store = Store.open(layout, writable=False)
    index = stubs.read_index(existing_stub(layout, call.args.name))
    pieces = fetch.read_file(store, index)
    if call.args.output is None and sys.stdout is None:
        raise UsageError("standard output is closed", hint="name a file with --output")
    if call.args.output is None:
        _print(call, pieces, index.size)
        return 0
    _write(call, pieces, index.size)
    call.emit(
        asdict(Restored(name=call.args.name, size=index.size, output=call.args.output)),
        f"{printable(call.args.name)}: {index.size} bytes to {printable(call.args.output)}",
    )
    return 0


def _print(call: Call, pieces: Iterator[memoryview], size: int) -> None:
    # A terminal that shows the bytes has no room for a line about them.
    shown = nullcontext(NOBODY) if sys.stdout.isatty() else progress(call, call.args.name, size)
    with shown as watch:
        for piece in pieces:
            with writing_output():
                sys.stdout.buffer.write(piece)
            watch.done(len(piece))
    with writing_output():
        sys.stdout.buffer.flush()


def _write(call: Call, pieces: Iterator[memoryview], size: int) -> None:
    """Writes beside the file and puts it in place at the end: it is whole, or as it was before."""
    from kvtool.store.castore import aside_in

    target: str = call.args.output
    aside = os.fsdecode(aside_in(os.fsencode(os.path.dirname(target))))
    if os.path.exists(target) and not os.path.isfile(target):
        aside = target  # a device or a pipe
    try:
        with open(aside, "wb") as file, progress(call, call.args.name, size) as watch:
            for piece in pieces:
                file.write(piece)
                watch.done(len(piece))
        if aside != target:
            os.replace(aside, target)
    except BaseException as error:
        if aside != target:
            with suppress(FileNotFoundError):
                os.unlink(aside)
        if isinstance(error, OSError) and error.filename in {None, aside}:  # which disk is full
            error.filename = target
        raise
