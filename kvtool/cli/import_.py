"""kvtool import: store files that casync, desync or `kvtool export` wrote, without a mount."""

import argparse
import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import directory_name, layout_of, stub_path
from kvtool.cli.storing import Task, run_tasks
from kvtool.errors import UsageError

if TYPE_CHECKING:
    from kvtool.store.exchange import Assembled
    from kvtool.store.ingest import Source


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="the index of what to store, a .caibx file")
    beside = "the directory of its chunks, uncompressed (default: default.castr beside FILE)"
    parser.add_argument("--store", metavar="DIR", type=directory_name, help=beside)
    parser.add_argument(
        "--name", help="the snapshot's name in the mount (default: FILE's own without .caibx)"
    )
    parser.add_argument("--dry-run", action="store_true", help="verify all chunks, say what would be new")
    examples(
        parser,
        ("kvtool import /mnt/usb/chat.bin.caibx", "with the chunks in /mnt/usb/default.castr"),
        ("kvtool import x.caibx --store /srv/x.castr --name chat/x.bin", "from elsewhere, to another name"),
        ("kvtool import *.caibx --dry-run", "whether all of an export is good; also beside a mount"),
    )


def run(call: Call) -> int:
    """Stores each file. With --dry-run also beside a running mount, else under the lock."""
    from kvtool.store.exchange import SEAL_EVERY, SUFFIX, Assembled

    layout = layout_of(call.values)
    files: list[str] = call.args.files
    if call.args.name is not None and len(files) > 1:
        raise UsageError("--name goes with one file", hint="import the files one by one")
    tasks = []
    for file in files:
        name: str = call.args.name
        if name is None:
            name = os.path.basename(file).removesuffix(SUFFIX)
        source = Assembled(file, call.args.store)
        path = stub_path(layout, name)
        tasks.append(Task(name, path, source.index.size, partial(_opened, source), SEAL_EVERY))
    return run_tasks(call, tasks)


def _opened(source: "Assembled") -> "AbstractContextManager[Source]":
    return nullcontext(source)
