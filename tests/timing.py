"""What demo and benchmark share: a stopwatch, cold caches, medians, sizes and tables."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

MIB = 1 << 20


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that the call took, and what it returned."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def drop_caches() -> bool:
    """Empty the page cache, so that the next read comes from the disk. False when we may not."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as control:
            control.write("3\n")
    except OSError:
        return False
    return True


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range, as `0.52 (0.48-0.61)`."""
    low, middle, high = (f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low}-{high})"


def table(rows: Sequence[Sequence[str]]) -> str:
    """A markdown table with its columns aligned; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
