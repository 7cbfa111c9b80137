"""Where every setting comes from, as data, for `kvtool config` and the control socket (`tables` shows it)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kvtool.settings.fields import (
    FIELDS,
    bounds,
    default_text,
    describe,
    env_name,
    extra,
    json_value,
    kind,
    show,
    unit,
)
from kvtool.settings.kinds import KindName
from kvtool.settings.layers import Origin, Resolved
from kvtool.settings.sources import FileState, Given, LayerName

Value = str | int | float | bool


@dataclass(kw_only=True)
class LayerValue:
    """What one layer says: bytes, seconds, text or a truth value, a wrong one as its text; and for people."""

    value: Value
    shown: str
    layer: LayerName
    where: str


@dataclass(kw_only=True)
class Row:
    """One setting: what counts, whether it is wrong, and what it overrides, highest first.

    `where` is a file with its line, a variable or a flag; "" of a default. Secrets are stars.
    """

    key: str
    value: Value
    shown: str
    layer: LayerName
    where: str
    overridden: list[LayerValue]
    wrong: bool


@dataclass(kw_only=True)
class File:
    """A file that was looked for."""

    path: str
    state: FileState


@dataclass(kw_only=True)
class Explanation:
    """All settings, and the files that were looked for, lowest first."""

    files: list[File]
    settings: list[Row]
    warnings: list[str]
    problems: list[str]


@dataclass(kw_only=True)
class Page(Row):
    """One setting in full. `bounds` are bytes or seconds; `problems` are those about this setting."""

    type: KindName
    must_be: str
    bounds: tuple[int | float, int | float] | None
    unit: str
    default: str
    meaning: str
    advice: str
    variable: str
    flag: str
    problems: list[str]


def explain(resolved: Resolved) -> dict[str, Any]:
    """An Explanation of all settings, as JSON-able data."""
    wrong = {key for problem in resolved.problems for key in problem.keys}
    return asdict(
        Explanation(
            files=[File(path=str(each.path), state=each.state) for each in resolved.files],
            settings=[_row(key, origin, key in wrong) for key, origin in resolved.origins.items()],
            warnings=list(resolved.warnings),
            problems=resolved.messages,
        )
    )


def changed(data: Mapping[str, Any]) -> dict[str, Any]:
    """An Explanation without what has its default; what is wrong stays."""
    return {
        **data,
        "settings": [row for row in data["settings"] if row["layer"] != "default" or row["wrong"]],
    }


def explain_key(data: Mapping[str, Any], key: str, problems: list[str]) -> dict[str, Any]:
    """The Page of `key`, one of FIELDS: its row in the Explanation `data`, and what is known about it.

    Raises KeyError when there is no such row.
    """
    rows = {row["key"]: row for row in data["settings"]}
    return asdict(
        Page(
            **rows[key],
            type=kind(key),
            must_be=describe(key),
            bounds=bounds(key),
            unit=unit(key),
            default=default_text(key),
            meaning=FIELDS[key].description or "",
            advice=extra(key, "advice"),
            variable=env_name(key),
            flag=f"--{key}",
            problems=problems,
        )
    )


def problems_of(resolved: Resolved, key: str) -> list[str]:
    """What is wrong with `key`, alone or with another."""
    return [problem.message for problem in resolved.problems if key in problem.keys]


def _layer_value(key: str, given: Given) -> LayerValue:
    return LayerValue(
        value=json_value(key, given.value),
        shown=show(key, given.value),
        layer=given.layer,
        where=given.where,
    )


def _row(key: str, origin: Origin, wrong: bool) -> Row:
    return Row(
        key=key,
        **vars(_layer_value(key, origin)),
        overridden=[_layer_value(key, given) for given in origin.overridden],
        wrong=wrong,
    )
