"""kvtool chunk: store files as snapshots, without a mount."""

import argparse
import os
from functools import partial
from io import BufferedReader

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of, stub_path
from kvtool.cli.storing import Task, run_tasks
from kvtool.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="what to store")
    parser.add_argument("--name", help="the snapshot's name in the mount (default: the file's own name)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be new, store nothing")
    examples(
        parser,
        ("kvtool chunk chat.bin", "store it, without a mount; while one runs, cp it into the mount"),
        ("kvtool chunk /old/chat.bin --name chat/old.bin", "under another name"),
        ("kvtool chunk *.bin --dry-run", "what of these files would be new; also beside a mount"),
    )


def run(call: Call) -> int:
    """Stores each file. With --dry-run also beside a running mount, else under the lock."""
    layout = layout_of(call.values)
    files: list[str] = call.args.files
    if call.args.name is not None and len(files) > 1:
        raise UsageError("--name goes with one file", hint="store the files one by one")
    tasks = []
    for file in files:
        name = os.path.basename(file) if call.args.name is None else call.args.name
        if not os.path.exists(file):
            raise UsageError(f"{file} does not exist", hint="name a file that does")
        if not os.path.isfile(file):
            raise UsageError(f"{file} is not a regular file", hint="name a file")
        opened = partial(_open, file)
        tasks.append(Task(name, stub_path(layout, name), os.path.getsize(file), opened))
    return run_tasks(call, tasks)


def _open(file: str) -> BufferedReader:
    return open(file, "rb")
