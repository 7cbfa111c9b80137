"""TOML text with the line of every key, which tomllib does not keep.

A statement (a table header or an assignment with its value, which may span lines) is itself a TOML document, and no shorter
run of its lines is one. So a document is cut into statements by parsing ever longer runs of lines, and
the real parser decides everything: strings with brackets in them, comments, inline tables.
"""

import re
import tomllib
from typing import Any

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)


class TomlError(ValueError):
    """The text is not TOML. `line` counts from 1; `reason` is the parser's, without the place."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """The document in `text`. Raises TomlError, and nothing else, for any text that is none."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError("nested too deeply", 1) from None
    except ValueError as error:
        # tomllib.TOMLDecodeError, or a plain ValueError such as that of a number with too many digits.
        match = _AT_LINE.fullmatch(str(error))
        if match is not None:
            raise TomlError(match[1], int(match[2])) from None
        reason = str(error).removesuffix(" (at end of document)")
        raise TomlError(reason, text.count("\n") + 1) from None


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1, where each key path of the document first appears, tables included.

    Shapes: `[mount]` on line 2 and `cache = 1` on line 3 give {("mount",): 2, ("mount", "cache"): 3}.
    Keys inside a list have no line of their own. Raises TomlError.
    """
    parse_toml(text)
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except ValueError:
            continue  # a value that goes on in the next line
        paths = _paths(parsed)
        if statement.lstrip().startswith("["):
            table = max(paths, key=len)
            paths = [table[:length] for length in range(1, len(table) + 1)]
        else:
            paths = [table + path for path in paths]
        for path in paths:
            found.setdefault(path, start)
        statement, start = "", number + 1
    return found


def _paths(value: dict[str, Any]) -> list[tuple[str, ...]]:
    """Every key path in `value`; the one table of a `[[list]]` header counts as a table."""
    paths: list[tuple[str, ...]] = []
    for key, inner in value.items():
        paths.append((key,))
        if isinstance(inner, dict):
            paths += [(key, *path) for path in _paths(inner)]
    return paths
