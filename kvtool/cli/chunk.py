"""kvtool chunk: store files as snapshots, without a mount."""

import argparse
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kvtool.cli.answers import Chunked, Stored
from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of, sizes_of, stub_path
from kvtool.cli.progress import progress
from kvtool.core.text import counted, printable
from kvtool.core.units import format_size
from kvtool.errors import UsageError

if TYPE_CHECKING:
    from kvtool.store.ingest import Saved


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


@dataclass(frozen=True, slots=True)
class _Task:
    file: str
    name: str
    path: bytes


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
        tasks.append(_Task(file, name, stub_path(layout, name)))
    rows = _dry_run(call, tasks) if call.args.dry_run else _store(call, tasks)
    word = "would be new" if call.args.dry_run else "new"
    text = "\n".join(
        f"{printable(row.name)}: {format_size(row.size)} in {counted(row.chunks, 'chunk')},"
        f" {format_size(row.new_bytes)} in {counted(row.new_chunks, 'chunk')} {word}"
        for row in rows
    )
    call.emit(asdict(Stored(snapshots=rows, dry_run=call.args.dry_run)), text)
    return 0


def _dry_run(call: Call, tasks: list[_Task]) -> list[Chunked]:
    from kvtool.store.ingest import ingest_file
    from kvtool.store.store import Store

    store = Store.open(layout_of(call.values), writable=False)
    rows = []
    for task in tasks:
        with open(task.file, "rb") as file, progress(call, task.name, os.path.getsize(task.file)) as watch:
            saved = ingest_file(store, file, dry_run=True, done=watch.done)
        rows.append(_row(task.name, saved))
    return rows


def _store(call: Call, tasks: list[_Task]) -> list[Chunked]:
    from kvtool.core.index import Index
    from kvtool.store import recover, stubs
    from kvtool.store.ingest import ingest_file

    layout = layout_of(call.values)
    sync = call.values["store.durability"] == "power"
    rows = []
    with recover.writer(layout, sync=sync, create=sizes_of(call.values)) as (store, _, _):
        for task in tasks:
            if os.path.isdir(task.path):
                raise UsageError(
                    f"'{task.name}' is a directory in {layout.stubs}", hint="choose another --name"
                )
            os.makedirs(os.path.dirname(task.path), exist_ok=True)
            with (
                open(task.file, "rb") as file,
                progress(call, task.name, os.path.getsize(task.file)) as watch,
            ):
                saved = ingest_file(store, file, done=watch.done)
            index = Index(store.sizes).extended(saved.lengths, saved.ids)
            stubs.replace(stubs.prepare(layout, index, sync=sync), task.path)
            if sync:
                stubs.sync_name(layout, task.path)
            rows.append(_row(task.name, saved))
    return rows


def _row(name: str, saved: "Saved") -> Chunked:
    return Chunked(
        name=name,
        size=sum(saved.lengths),
        chunks=len(saved.lengths),
        new_chunks=saved.new_chunks,
        new_bytes=saved.new_bytes,
    )
