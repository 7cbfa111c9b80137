"""`python -m kvtool.store.census`: the bytes of every snapshot, for a mount that must not count itself.

Prints one JSON object: names with [unique bytes, shared bytes, tokens]; tokens are 0 unless asked for.
"""

import json
import os
import sys
from pathlib import Path

from kvtool.core.usage import usage
from kvtool.store import child, stubs
from kvtool.store.heads import token_counts
from kvtool.store.layout import Layout
from kvtool.store.snapshots import read_indexes


def census(layout: Layout, *, tokens: bool) -> dict[str, list[int]]:
    """The table. Raises KvtoolError, OSError."""
    found = read_indexes(layout).of
    counts = token_counts(layout, found, {}) if tokens else dict.fromkeys(found, 0)
    return {
        stubs.name_of(layout, path): [used.unique, used.shared, counts[path]]
        for path, used in usage(found).items()
    }


def main() -> None:
    """The process's start."""
    parser = child.parser("census")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--stubs", type=Path, required=True)
    parser.add_argument("--tokens", action="store_true")
    args = child.begin(parser)
    os.nice(10)
    with child.failure_told():
        json.dump(census(Layout(args.store, args.stubs), tokens=args.tokens), sys.stdout)


if __name__ == "__main__":
    main()
