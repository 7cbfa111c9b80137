"""The settings by key: names, types, bounds, meanings, and how a value is read and shown.

A key is "section.name" everywhere: in TOML as table and key, `KVTOOL_SECTION__NAME` in the environment,
`--section.name` on the command line. Help needs this module only; `model` imports pydantic-settings, which
takes longer than all else.
"""

import functools
import os
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from kvtool.core.units import exact_size, format_duration, format_size
from kvtool.settings.kinds import REDACTED, Kind, KindName
from kvtool.settings.sections import SECTIONS

FIELDS: dict[str, FieldInfo] = {
    f"{section}.{name}": field
    for section, model in SECTIONS.items()
    for name, field in model.model_fields.items()
}


def env_name(key: str) -> str:
    """KVTOOL_MOUNT__READ_AHEAD of "mount.read_ahead"."""
    return "KVTOOL_" + key.replace(".", "__").upper()


def kind(key: str) -> KindName:
    """How its values are written."""
    for marker in FIELDS[key].metadata:
        if isinstance(marker, Kind):
            return marker.name
    return "choice"


def is_secret(key: str) -> bool:
    """Whether the field's type is SecretText: its value is never shown."""
    return kind(key) == "secret"


def extra(key: str, name: str) -> str:
    """What the field says under `name` in json_schema_extra ("advice", "usual", "must_be"); else ""."""
    given = FIELDS[key].json_schema_extra
    return str(given.get(name, "")) if isinstance(given, dict) else ""


def unit(key: str) -> str:
    """What a bare number means: "bytes", "seconds", or ""."""
    return {"size": "bytes", "duration": "seconds"}.get(kind(key), "")


def default_text(key: str) -> str:
    """The default for people, the same on every machine: "64 MiB", "<store.path>/stubs"."""
    field = FIELDS[key]
    return extra(key, "usual") if field.default_factory else show(key, field.default)


def bounds(key: str) -> tuple[int | float, int | float] | None:
    """Least and largest value, in bytes or seconds for sizes and durations; None for what is no number."""
    metadata = FIELDS[key].metadata
    least = [marker.ge for marker in metadata if hasattr(marker, "ge")]
    largest = [marker.le for marker in metadata if hasattr(marker, "le")]
    return (least[0], largest[0]) if least and largest else None


def choices(key: str) -> tuple[str, ...]:
    """The words among which a value is chosen; empty for what is no choice."""
    match kind(key):
        case "bool":
            return ("true", "false")
        case "choice":
            return get_args(FIELDS[key].annotation)
        case _:
            return ()


def describe(key: str) -> str:
    """What a value has to be: "a size from 1 MiB to 16 GiB"."""
    what = {
        "size": "a size",
        "duration": "a duration",
        "path": "an absolute path, or one that begins with ~/",
        "count": "a whole number",
        "bool": "true or false",
        "secret": "a text",
        "address": 'HOST:PORT, or "" for none',
        "expression": "an expression",
        "choice": "one of " + ", ".join(choices(key)),
    }[kind(key)]
    what = extra(key, "must_be") or what
    limits = bounds(key)
    return f"{what} from {show(key, limits[0])} to {show(key, limits[1])}" if limits else what


@functools.cache
def _adapter(key: str) -> TypeAdapter[Any]:
    field = FIELDS[key]
    # Not `field` itself: TypeAdapter warns about a default that depends on another field.
    annotated: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return TypeAdapter(annotated)


def read(key: str, raw: object) -> Any:
    """The value that `raw` (text, or what TOML gave) stands for, within the bounds.

    Raises ValueError; its text says what is wrong, and does not show a secret.
    """
    try:
        return _adapter(key).validate_python(raw)
    except ValidationError as error:
        if kind(key) == "expression" and isinstance(raw, str):
            raise ValueError(str(error.errors()[0]["ctx"]["error"])) from None  # it names the place
        shown = f"'{raw}'" if isinstance(raw, str | Path) else repr(raw)
        if is_secret(key):
            shown = REDACTED
        raise ValueError(f"{shown} is not {describe(key)}") from None


def show(key: str, value: Any) -> str:
    """A value for people, raw or read: "64 MiB", "1h", "~/kv"; a wrong one as written; a secret hidden."""
    try:
        value = _adapter(key).validate_python(value)
    except ValidationError:
        return REDACTED if is_secret(key) else str(value)
    match kind(key):
        case "size":
            return format_size(value)
        case "duration":
            return format_duration(value)
        case "bool":
            return "true" if value else "false"
        case "secret":
            return _stars(value)
        case _:
            return short_path(str(value))


def _stars(secret: SecretStr) -> str:
    return REDACTED if secret.get_secret_value() else ""  # that none is set is no secret


def short_path(text: str) -> str:
    """`text` with the home directory as ~."""
    home = os.path.expanduser("~")
    return "~" + text[len(home) :] if home != "/" and (text + "/").startswith(home + "/") else text


def json_value(key: str, raw: object) -> str | int | float | bool:
    """A value as data: bytes, seconds, text, true or false; a wrong one as text; a secret hidden."""
    if is_secret(key):
        return show(key, raw)
    try:
        value = read(key, raw)
    except ValueError:
        return str(raw)
    return value if isinstance(value, bool | int | float) else str(value)


def toml_value(key: str, value: Any) -> str | int | bool:
    """A value as it is written to TOML: exact, and read back as the same value; a secret hidden."""
    match kind(key):
        case "size":
            return exact_size(value)
        case "duration":
            return format_duration(value)
        case "path":
            return str(value)
        case "secret":
            return _stars(value)
        case _:
            return value  # type: ignore[no-any-return]
