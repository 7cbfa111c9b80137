"""The settings one by one: names, types, bounds, defaults, meanings, and how a value is read and shown.

A key is "section.name" everywhere: in TOML as table and key, `KVTOOL_SECTION__NAME` in the environment,
`--section.name` on the command line. Help needs this module only; `model` imports pydantic-settings, which
takes longer than all else.
"""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from kvtool.core.units import exact_size, format_duration, format_size, parse_duration, parse_size
from kvtool.errors import UsageError

KiB, MiB, GiB, TiB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

REDACTED = "********"


class Kind:
    """Marks a field's type with how its values are written: "size", "duration", "path" or "count"."""

    def __init__(self, name: str) -> None:
        self.name = name


# pydantic takes a ValueError as "not valid"; a TypeError or ours would go through it.


def _read_size(raw: object) -> object:
    if isinstance(raw, str):
        try:
            return parse_size(raw)
        except UsageError as error:
            raise ValueError(error.message) from None
    return _read_count(raw)


def _read_duration(raw: object) -> object:
    if isinstance(raw, str):
        try:
            return parse_duration(raw)
        except UsageError as error:
            raise ValueError(error.message) from None
    if isinstance(raw, bool):
        raise ValueError("not a duration")  # noqa: TRY004
    return raw


def _read_count(raw: object) -> object:
    if isinstance(raw, bool | float):
        raise ValueError("not a whole number")  # noqa: TRY004
    return raw


def _read_path(raw: object) -> object:
    if not isinstance(raw, str | Path) or "\0" in str(raw):
        raise ValueError("not a path")
    path = Path(os.path.expanduser(raw))
    if not path.is_absolute():
        raise ValueError("a relative path")
    return path


Size = Annotated[int, BeforeValidator(_read_size), Kind("size")]
Duration = Annotated[float, BeforeValidator(_read_duration), Kind("duration")]
AbsolutePath = Annotated[Path, BeforeValidator(_read_path), Kind("path")]
Count = Annotated[int, BeforeValidator(_read_count), Kind("count")]


def default_store_path(environ: Mapping[str, str]) -> Path:
    """XDG_DATA_HOME/kvtool, or ~/.local/share/kvtool. XDG has it that a relative path does not count."""
    data_home = environ.get("XDG_DATA_HOME", "")
    base = data_home if os.path.isabs(data_home) else os.path.expanduser("~/.local/share")
    return Path(base) / "kvtool"


def _default_stubs(section: dict[str, Any]) -> Path:
    path: Path = section["path"]
    return path / "stubs"


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class StoreSection(Section):
    """Where chunks and stubs lie, and how they are kept."""

    path: AbsolutePath = Field(
        default_factory=lambda: default_store_path(os.environ), description="directory of the store"
    )
    stubs: AbsolutePath = Field(
        default_factory=_default_stubs,
        description="directory of the stubs, one plain file a snapshot; <store.path>/stubs if not set",
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description="what a closed file survives: the death of the process, or a power cut too (slower)",
    )
    gc_interval: Duration = Field(
        default=3600.0,
        ge=0,
        le=365 * 86400.0,
        description="time between two collections of unneeded chunks; 0 is never",
    )


class ChunkSection(Section):
    """How files are cut. Fixed when a store is created. The bounds are fastcdc's."""

    min_size: Size = Field(default=16 * KiB, ge=64, le=64 * MiB, description="smallest chunk")
    avg_size: Size = Field(default=64 * KiB, ge=256, le=256 * MiB, description="chunk size aimed at")
    max_size: Size = Field(default=256 * KiB, ge=1024, le=GiB, description="largest chunk")


class MountSection(Section):
    """Memory and threads of a mount, and who may use it."""

    read_ahead: Size = Field(
        default=32 * MiB, ge=MiB, le=16 * GiB, description="bytes fetched ahead of a sequential reader"
    )
    workers: Count = Field(default=8, ge=1, le=64, description="threads that fetch and check chunks")
    cache: Size = Field(
        default=256 * MiB, ge=MiB, le=TiB, description="memory for fetched data, over all open files"
    )
    write_queue: Size = Field(
        default=64 * MiB,
        ge=8 * MiB,
        le=16 * GiB,
        description="memory for written data not yet stored",
    )
    kernel_read_ahead: Size = Field(
        default=MiB, ge=0, le=GiB, description="the kernel's own read-ahead on the mount; set as root only"
    )
    allow_other: bool = Field(
        default=False, description="let other users in; needs user_allow_other in /etc/fuse.conf"
    )


class LogSection(Section):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severity that is logged; debug shows tracebacks too"
    )


SECTIONS: dict[str, type[Section]] = {
    "store": StoreSection,
    "chunk": ChunkSection,
    "mount": MountSection,
    "log": LogSection,
}

FIELDS: dict[str, FieldInfo] = {
    f"{section}.{name}": field
    for section, model in SECTIONS.items()
    for name, field in model.model_fields.items()
}


def env_name(key: str) -> str:
    """KVTOOL_MOUNT__READ_AHEAD of "mount.read_ahead"."""
    return "KVTOOL_" + key.replace(".", "__").upper()


def kind(key: str) -> str:
    """ "size", "duration", "path", "count", "bool" or "choice"."""
    field = FIELDS[key]
    for marker in field.metadata:
        if isinstance(marker, Kind):
            return marker.name
    return "bool" if field.annotation is bool else "choice"


def is_secret(key: str) -> bool:
    """Whether the field is marked `json_schema_extra={"secret": True}`: its value is never shown."""
    extra = FIELDS[key].json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("secret"))


def bounds(key: str) -> tuple[int | float, int | float] | None:
    """Least and largest value, in bytes or seconds for sizes and durations; None for what is no number."""
    metadata = FIELDS[key].metadata
    least = [marker.ge for marker in metadata if hasattr(marker, "ge")]
    largest = [marker.le for marker in metadata if hasattr(marker, "le")]
    return (least[0], largest[0]) if least and largest else None


def choices(key: str) -> tuple[str, ...]:
    """The words among which a value is chosen; empty for what is no choice."""
    return ("true", "false") if kind(key) == "bool" else get_args(FIELDS[key].annotation)


def describe(key: str) -> str:
    """What a value has to be: "a size from 1 MiB to 16 GiB"."""
    what = {
        "size": "a size",
        "duration": "a duration",
        "path": "an absolute path, or one that begins with ~/",
        "count": "a whole number",
        "bool": "true or false",
        "choice": "one of " + ", ".join(choices(key)),
    }[kind(key)]
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
    except ValidationError:
        shown = REDACTED if is_secret(key) else repr(raw)
        raise ValueError(f"{shown} is not {describe(key)}") from None


def show(key: str, value: Any) -> str:
    """A value for people, raw or read: "64 MiB", "1h", "~/kv"; a wrong one as written; a secret hidden."""
    if is_secret(key):
        return REDACTED
    try:
        value = _adapter(key).validate_python(value)
    except ValidationError:
        return str(value)
    match kind(key):
        case "size":
            return format_size(value)
        case "duration":
            return format_duration(value)
        case "bool":
            return "true" if value else "false"
        case _:
            return short_path(str(value))


def short_path(text: str) -> str:
    """`text` with the home directory as ~."""
    home = os.path.expanduser("~")
    return "~" + text[len(home) :] if home != "/" and (text + "/").startswith(home + "/") else text


def toml_value(key: str, value: Any) -> str | int | bool:
    """A value of the model as it is written to TOML: exact, and read back as the same value."""
    match kind(key):
        case "size":
            return exact_size(value)
        case "duration":
            return format_duration(value)
        case "path":
            return str(value)
        case _:
            return value  # type: ignore[no-any-return]
