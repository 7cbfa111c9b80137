"""Answers for people: columns, and colours where a terminal shows them."""

import os
import sys
from collections.abc import Collection, Sequence
from typing import TextIO

_CODES = {"bold": "1", "red": "1;31", "yellow": "33", "dim": "2"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]) -> str:
    """Lines with aligned columns, those named in `left` to the left. The cells are printable already."""
    cells = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        columns = [
            cell.ljust(width) if name in left else cell.rjust(width)
            for cell, width, name in zip(row, widths, header, strict=True)
        ]
        lines.append("  ".join(columns).rstrip())
    return "\n".join([paint(lines[0], "bold"), *lines[1:]])


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` in a style ("bold", "red", "yellow", "dim") if `stream`, by default standard output, shows it.

    Only a terminal does, and not with NO_COLOR (https://no-color.org) or TERM=dumb in the environment.
    """
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if shows_colours(stream or sys.stdout) else text


def shows_colours(stream: TextIO | None) -> bool:
    """Whether that stream is a terminal and colours are wanted."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream is not None and stream.isatty()
