"""TOML text with the line of every key, which tomllib does not keep.

A statement (a table header or an assignment with its value, which may span lines) is itself a TOML
document, and no shorter run of its lines is one. So a document is cut into statements by parsing ever
longer runs of lines, and the real parser decides everything: strings with brackets in them, comments,
inline tables.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from kvtool.core.text import unescaped

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_DEEPEST = 64


class TomlError(ValueError):
    """The text is not TOML. `line` counts from 1; `reason` is the parser's, without the place."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """The document in `text`. Raises TomlError, and nothing else, for any text that is none."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise TomlError("nested too deeply", 1) from None
    except ValueError as error:
        # tomllib.TOMLDecodeError, or a plain ValueError such as that of a number with too many digits.
        # What they quote from the text is escaped: it is so again where it is shown.
        match = _AT_LINE.fullmatch(str(error))
        if match is not None:
            raise TomlError(unescaped(match[1]), int(match[2])) from None
        reason = str(error).removesuffix(" (at end of document)")
        raise TomlError(unescaped(reason), text.count("\n") + 1) from None
    fault = _fault(document)
    if fault is not None:
        # Dotted keys nest only once put together, so that no single statement may be at fault.
        lines = (start for start, _, part in _statements(text) if _fault(part) is not None)
        raise TomlError(fault, next(lines, 1))
    return document


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1, where each key path of the document first appears, tables included.

    Shapes: `[mount]` on line 2 and `cache = 1` on line 3 give {("mount",): 2, ("mount", "cache"): 3}.
    Of several `[[list]]` tables the first that has a key gives its line. Raises TomlError.
    """
    parse_toml(text)
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for start, is_header, part in _statements(text):
        paths = _paths(part)
        if is_header:
            table = max(paths, key=len)
        else:
            paths = [table + path for path in paths]
        for path in paths:
            found.setdefault(path, start)
    return found


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    """Of each statement of a valid document: its first line, whether it is a table header, and it parsed."""
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            part = tomllib.loads(statement)
        except ValueError:
            continue  # a value that goes on in the next line
        yield start, statement.lstrip().startswith("["), part
        statement, start = "", number + 1


def _paths(value: dict[str, Any]) -> list[tuple[str, ...]]:
    """Every key path in `value`."""
    paths: list[tuple[str, ...]] = []
    for key, inner in value.items():
        paths.append((key,))
        if isinstance(inner, dict):
            paths += [(key, *path) for path in _paths(inner)]
    return paths


def _fault(value: object, depth: int = 0) -> str | None:
    """What tomllib takes and kvtool does not.

    TOML has integers of 64 bits; tomllib takes any, also those that Python refuses to print. The depth is
    bounded since whatever walks a document recurses.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "an integer of more than 64 bits"
    if not isinstance(value, dict | list):
        return None
    if depth == _DEEPEST:
        return "nested too deeply"
    inner = value.values() if isinstance(value, dict) else value
    return next((fault for each in inner if (fault := _fault(each, depth + 1)) is not None), None)
