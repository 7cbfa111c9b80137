"""The JSON Schema of a settings file, for editors: what Taplo and Even Better TOML check and complete.

Draft 7 without references, which all of them read. `python -m tests.schemas` writes it to schemas/.
"""

from pathlib import Path
from typing import Any

from kvtool.settings.fields import FIELDS, bounds, choices, default_text, extra, kind, unit
from kvtool.settings.sections import SECTIONS

# What parse_size and parse_duration take; the bounds of text no pattern can tell, reading checks them.
SIZE_PATTERN = r"^ *[0-9]{1,30}(\.[0-9]{1,30})? *([Bb]|[KkMmGgTt]([Ii]?[Bb])?)? *$"
DURATION_PATTERN = r"^ *(?=[0-9])([0-9]+ *d)? *([0-9]+ *h)? *([0-9]+ *m)? *([0-9]+(\.[0-9]+)? *s?)? *$"
PATH_PATTERN = r"^(/|~)"


def settings_schema() -> dict[str, Any]:
    """The schema of the whole file."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kvtool settings",
        "description": "/etc/kvtool/config.toml, ~/.config/kvtool/config.toml, or the file of --config",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _section(name) for name in SECTIONS},
    }


def schema_file() -> Path:
    """Where the schema is: in the installed package, or in the repository that runs in place."""
    package = Path(__file__).parents[1]
    installed = package / "schemas" / "settings.json"
    return installed if installed.exists() else package.parent / "schemas" / "settings.json"


def _section(section: str) -> dict[str, Any]:
    keys = [key for key in FIELDS if key.startswith(section + ".")]
    return {
        "description": SECTIONS[section].__doc__,
        "type": "object",
        "additionalProperties": False,
        "properties": {key.removeprefix(section + "."): _field(key) for key in keys},
    }


def _field(key: str) -> dict[str, Any]:
    meaning = FIELDS[key].description or ""
    described = {"description": f"{meaning}.\n\n{extra(key, 'advice')}".strip()}
    if unit(key):
        described["description"] += f"\n\nA bare number is {unit(key)}."
    return {**described, **_default(key), **_type(key)}


def _default(key: str) -> dict[str, Any]:
    if kind(key) in ("bool", "count"):
        return {"default": FIELDS[key].default}
    text = default_text(key)
    # One that depends on another setting is no value that could be put in.
    return {} if kind(key) == "secret" or text.startswith("<") else {"default": text}


def _type(key: str) -> dict[str, Any]:
    limits = bounds(key)
    number = {"minimum": limits[0], "maximum": limits[1]} if limits else {}
    match kind(key):
        case "size":
            text = {"type": "string", "pattern": SIZE_PATTERN}
            return {"anyOf": [text, {"type": "integer", **number}]}
        case "duration":
            text = {"type": "string", "pattern": DURATION_PATTERN}
            return {"anyOf": [text, {"type": "number", **number}]}
        case "count":
            return {"type": "integer", **number}
        case "bool":
            return {"type": "boolean"}
        case "path":
            return {"type": "string", "pattern": PATH_PATTERN}
        case "address" | "expression":
            return {"type": "string"}
        case "choice":
            return {"type": "string", "enum": list(choices(key))}
        case _:
            return {"type": "string", "writeOnly": True}
