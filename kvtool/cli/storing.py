"""Storing bytes as snapshots without a mount: what `chunk` and `import` have in common."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kvtool.cli.answers import Chunked, Stored
from kvtool.cli.call import Call
from kvtool.cli.paths import layout_of, sizes_of
from kvtool.cli.progress import progress
from kvtool.core.text import counted, printable
from kvtool.core.units import format_size
from kvtool.errors import UsageError

if TYPE_CHECKING:
    from kvtool.store.ingest import Saved, Source


@dataclass(frozen=True, slots=True)
class Task:
    """Bytes to store: about `size` of them from what `open` gives, as the snapshot `name`, stub `path`.

    `seal_every`: see `store.ingest.ingest_file`.
    """

    name: str
    path: bytes
    size: int
    open: "Callable[[], AbstractContextManager[Source]]"
    seal_every: int | None = None


def run_tasks(call: Call, tasks: list[Task]) -> int:
    """Stores each. With --dry-run also beside a running mount, else under the lock."""
    for name, times in Counter(task.name for task in tasks).items():
        if times > 1:
            raise UsageError(
                f"more than one of these files would be stored as '{name}'",
                hint="store them one by one, with --name",
            )
    rows = _dry_run(call, tasks) if call.args.dry_run else _store(call, tasks)
    word = "would be new" if call.args.dry_run else "new"
    text = "\n".join(
        f"{printable(row.name)}: {format_size(row.size)} in {counted(row.chunks, 'chunk')},"
        f" {format_size(row.new_bytes)} in {counted(row.new_chunks, 'chunk')} {word}"
        for row in rows
    )
    call.emit(asdict(Stored(snapshots=rows, dry_run=call.args.dry_run)), text)
    return 0


def _dry_run(call: Call, tasks: list[Task]) -> list[Chunked]:
    from kvtool.store.ingest import ingest_file
    from kvtool.store.store import Store

    store = Store.open(layout_of(call.values), writable=False)
    rows = []
    for task in tasks:
        with task.open() as source, progress(call, task.name, task.size) as watch:
            saved = ingest_file(store, source, dry_run=True, done=watch.done)
        rows.append(_row(task.name, saved))
    return rows


def _store(call: Call, tasks: list[Task]) -> list[Chunked]:
    from kvtool.core.index import Index
    from kvtool.store import recover, stubs
    from kvtool.store.ingest import ingest_file
    from kvtool.store.names import check_new

    layout = layout_of(call.values)
    sync = call.values["store.durability"] == "power"
    rows = []
    with recover.writer(layout, sync=sync, create=sizes_of(call.values)) as (store, _, _):
        for task in tasks:  # told before the first byte is stored
            check_new(layout, task.name)
        for task in tasks:
            os.makedirs(os.path.dirname(task.path), exist_ok=True)
            with task.open() as source, progress(call, task.name, task.size) as watch:
                saved = ingest_file(store, source, done=watch.done, seal_every=task.seal_every)
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
