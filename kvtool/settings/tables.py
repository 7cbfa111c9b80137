"""What `kvtool config --explain` prints, made from the data of `explain`, ours or that of a running mount."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kvtool.core.text import printable
from kvtool.settings.fields import short_path

_HEADER = ("SETTING", "VALUE", "FROM", "WHERE", "INSTEAD OF")
_WIDTH = 100


def table(data: Mapping[str, Any]) -> str:
    """An Explanation: files, one row a setting, then warnings and problems. ! marks a wrong row."""
    paths = [_place(file["path"]) for file in data["files"]]
    width = max(map(len, paths), default=0)
    text = ["Files, lowest first:"]
    text += [f"  {path:<{width}}  {file['state']}" for path, file in zip(paths, data["files"], strict=True)]
    rows = [_HEADER] + [_cells(row) for row in data["settings"]]
    text += ["", *_columns(rows, [False] + [row["wrong"] for row in data["settings"]])]
    messages = [f"warning: {printable(each)}" for each in data["warnings"]]
    messages += [f"error: {printable(each)}" for each in data["problems"]]
    return "\n".join([*text, *([""] if messages else []), *messages])


def page(data: Mapping[str, Any]) -> str:
    """A Page: what the setting is, and its whole chain, the value that counts first."""
    chain = [
        (printable(each["shown"]), each["layer"], _place(each["where"]))
        for each in (data, *data["overridden"])
    ]
    facts = {
        "meaning": data["meaning"],
        "change it": data["advice"],
        "type": data["must_be"] + (f", a bare number is {data['unit']}" if data["unit"] else ""),
        "default": data["default"],
        "environment": data["variable"],
        "flag": f"{data['flag']} VALUE",
    }
    text = [
        data["key"],
        *(_fact(name, fact) for name, fact in facts.items()),
        "",
        *_columns([("VALUE", "FROM", "WHERE"), *chain], [False, data["wrong"]] + [False] * (len(chain) - 1)),
    ]
    problems = [f"error: {printable(each)}" for each in data["problems"]]
    return "\n".join([*text, *([""] if problems else []), *problems])


def _fact(name: str, fact: str) -> str:
    return textwrap.fill(fact, _WIDTH, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    # What was overridden by an equal value explains nothing.
    other = next((each for each in row["overridden"] if each["shown"] != row["shown"]), None)
    instead = f"{other['layer']} {printable(other['shown'])}" if other else ""
    return row["key"], printable(row["shown"]), row["layer"], _place(row["where"]), instead


def _place(where: str) -> str:
    return printable(short_path(where))


def _columns(rows: Sequence[tuple[str, ...]], wrong: Sequence[bool]) -> list[str]:
    """Rows with aligned columns; when any is wrong, all make room for a mark in front."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    marks = ["! " if each else "  " if any(wrong) else "" for each in wrong]
    return [
        mark + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for mark, row in zip(marks, rows, strict=True)
    ]
