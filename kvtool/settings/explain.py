"""Where every setting comes from, for `kvtool config --explain`: as data, and as text made from the data."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvtool.settings.fields import (
    FIELDS,
    REDACTED,
    bounds,
    describe,
    env_name,
    is_secret,
    kind,
    read,
    short_path,
    show,
)
from kvtool.settings.layers import Origin, Resolved
from kvtool.settings.sources import Given

_HEADER = ("SETTING", "VALUE", "FROM", "WHERE", "INSTEAD OF")


def explain(resolved: Resolved, *, changed: bool = False) -> dict[str, Any]:
    """All settings, JSON-able: {"files": [...], "settings": [...], "warnings": [...], "problems": [...]}.

    A file is {"path", "state"}. A setting is {"key", "value" (as `json_value` has it), "shown" (for people),
    "layer", "where", "overridden": [{"value", "shown", "layer", "where"}, ...] highest first, "wrong": bool}.
    `changed` leaves defaults out, but not one that is wrong.
    """
    wrong = _wrong(resolved)
    return {
        "files": [{"path": str(file.path), "state": file.state} for file in resolved.files],
        "settings": [
            _row(key, origin, key in wrong)
            for key, origin in resolved.origins.items()
            if not changed or origin.layer != "default" or key in wrong
        ],
        "warnings": list(resolved.warnings),
        "problems": [problem.message for problem in resolved.problems],
    }


def explain_key(resolved: Resolved, key: str) -> dict[str, Any]:
    """One setting (a key of FIELDS): its row as in `explain`, and type, bounds, meaning, flag and variable.

    "bounds" is [least, largest] in bytes or seconds, or null. "problems" are those about this key.
    """
    limits = bounds(key)
    return {
        **_row(key, resolved.origins[key], key in _wrong(resolved)),
        "type": kind(key),
        "must_be": describe(key),
        "bounds": list(limits) if limits else None,
        "meaning": FIELDS[key].description,
        "variable": env_name(key),
        "flag": f"--{key}",
        "problems": [problem.message for problem in resolved.problems if key in problem.keys],
    }


def table(data: Mapping[str, Any]) -> str:
    """The text of `explain`: files, one row a setting, then warnings and problems. ! marks a wrong row."""
    paths = [short_path(file["path"]) for file in data["files"]]
    width = max(map(len, paths), default=0)
    text = ["Files, lowest first:"]
    text += [f"  {path:<{width}}  {file['state']}" for path, file in zip(paths, data["files"], strict=True)]
    rows = [_HEADER] + [_cells(row) for row in data["settings"]]
    text += ["", *_columns(rows, [False] + [row["wrong"] for row in data["settings"]])]
    messages = [f"warning: {each}" for each in data["warnings"]]
    messages += [f"error: {each}" for each in data["problems"]]
    return "\n".join([*text, *([""] if messages else []), *messages])


def page(data: Mapping[str, Any]) -> str:
    """The text of `explain_key`: what the setting is, and its whole chain, the value that counts first."""
    chain = [
        (each["shown"], each["layer"], short_path(each["where"])) for each in (data, *data["overridden"])
    ]
    text = [
        data["key"],
        f"  meaning      {data['meaning']}",
        f"  type         {data['must_be']}",
        f"  environment  {data['variable']}",
        f"  flag         {data['flag']} VALUE",
        "",
        *_columns([("VALUE", "FROM", "WHERE"), *chain], [False, data["wrong"]] + [False] * (len(chain) - 1)),
    ]
    problems = [f"error: {each}" for each in data["problems"]]
    return "\n".join([*text, *([""] if problems else []), *problems])


def _wrong(resolved: Resolved) -> set[str]:
    return {key for problem in resolved.problems for key in problem.keys}


def json_value(key: str, raw: object) -> str | int | float | bool:
    """A value as data: bytes, seconds, text, true or false; a wrong one as text; a secret hidden."""
    if is_secret(key):
        return REDACTED
    try:
        value = read(key, raw)
    except ValueError:
        return str(raw)
    return value if isinstance(value, bool | int | float) else str(value)


def _given(key: str, given: Given) -> dict[str, Any]:
    return {
        "value": json_value(key, given.value),
        "shown": show(key, given.value),
        "layer": given.layer,
        "where": given.where,
    }


def _row(key: str, origin: Origin, wrong: bool) -> dict[str, Any]:
    overridden = [_given(key, given) for given in origin.overridden]
    return {"key": key, **_given(key, origin), "overridden": overridden, "wrong": wrong}


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    # What was overridden by an equal value explains nothing.
    other = next((each for each in row["overridden"] if each["shown"] != row["shown"]), None)
    instead = f"{other['layer']} {other['shown']}" if other else ""
    return row["key"], row["shown"], row["layer"], short_path(row["where"]), instead


def _columns(rows: Sequence[tuple[str, ...]], wrong: Sequence[bool]) -> list[str]:
    """Rows with aligned columns; when any is wrong, all make room for a mark in front."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    marks = ["! " if each else "  " if any(wrong) else "" for each in wrong]
    return [
        mark + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for mark, row in zip(marks, rows, strict=True)
    ]
