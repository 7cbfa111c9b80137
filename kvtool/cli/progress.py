"""Progress for people: on standard error, when it is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvtool.cli.call import Call


@contextmanager
def progress(call: Call, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for `total` bytes, with rate and time left; what it yields is told of each number of bytes done.

    Nothing is shown with --json or when standard error is no terminal.
    """
    if call.json or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as RateColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    console = Console(stderr=True)
    with Progress(*columns, RateColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(label.encode("utf-8", "backslashreplace").decode(), total=total)
        yield lambda count: bar.advance(task, count)
