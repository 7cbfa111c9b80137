"""The settings themselves, a class a section: types, defaults, bounds, and what each is for.

A field's description is one line for the help; in `json_schema_extra`, "advice" says when to change it, and
"usual" what a default is that depends on something else.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from kvtool.core.score import DEFAULT
from kvtool.settings.kinds import (
    AbsolutePath,
    Address,
    Count,
    Duration,
    Expression,
    Size,
    Switch,
    Token,
)

KiB, MiB, GiB, TiB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


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
        default_factory=lambda: default_store_path(os.environ),
        description="directory of the store",
        json_schema_extra={
            "usual": "~/.local/share/kvtool",
            "advice": "Set it to a directory on the disk that is to hold the snapshots. Restores are as fast"
            " as that disk.",
        },
    )
    stubs: AbsolutePath = Field(
        default_factory=_default_stubs,
        description="directory of the stubs, one plain file a snapshot; stubs/ in the store if not set",
        json_schema_extra={
            "usual": "<store.path>/stubs",
            "advice": "Set it to have the stubs on another disk than the packs. Stubs and packs are of use"
            " only together: back up both.",
        },
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description="what a closed file survives: the death of the process, or a power cut too (slower)",
        json_schema_extra={
            "advice": 'Set it to "power" where a snapshot that was saved must still be there after a power'
            " cut; every save then waits for the disk. Neither ever yields wrong bytes.",
        },
    )
    gc_interval: Duration = Field(
        default=3600.0,
        ge=0,
        le=365 * 86400.0,
        description="time between two collections of unneeded chunks; 0 is never",
        json_schema_extra={
            "advice": "Shorten it where many snapshots are deleted and the disk is nearly full. Set it to 0"
            " to collect with `kvtool gc` alone, from a timer at night for example.",
        },
    )


class ChunkSection(Section):
    """How files are cut. Fixed when a store is created. The bounds are fastcdc's."""

    min_size: Size = Field(
        default=16 * KiB,
        ge=64,
        le=64 * MiB,
        description="smallest chunk",
        json_schema_extra={
            "advice": "Only before the store is made, and together with the other two: a quarter of"
            " chunk.avg_size is usual.",
        },
    )
    avg_size: Size = Field(
        default=64 * KiB,
        ge=256,
        le=256 * MiB,
        description="chunk size aimed at",
        json_schema_extra={
            "advice": "Only before the store is made. Smaller chunks find more that was saved before, and"
            " make stubs and catalog larger and restores slower.",
        },
    )
    max_size: Size = Field(
        default=256 * KiB,
        ge=1024,
        le=GiB,
        description="largest chunk",
        json_schema_extra={
            "advice": "Only before the store is made, and together with the other two: four times"
            " chunk.avg_size is usual.",
        },
    )


class MountSection(Section):
    """Memory and threads of a mount, and who may use it."""

    read_ahead: Size = Field(
        default=32 * MiB,
        ge=MiB,
        le=16 * GiB,
        description="bytes fetched ahead of a sequential reader",
        json_schema_extra={
            "advice": "Raise it on a disk that answers late and delivers fast (network, an array of hard"
            " disks); lower it together with mount.cache where memory is short.",
        },
    )
    workers: Count = Field(
        default=8,
        ge=1,
        le=64,
        description="threads that read chunks from the disk",
        json_schema_extra={
            "advice": "Raise it on storage that serves many requests at once; lower it where it does not.",
        },
    )
    cache: Size = Field(
        default=256 * MiB,
        ge=MiB,
        le=TiB,
        description="bytes fetched and not yet handed out, over all open files",
        json_schema_extra={
            "advice": "Raise it to mount.read_ahead times the number of snapshots that are restored at the"
            " same time; lower it where the page cache is short of memory: that is where they lie.",
        },
    )
    write_queue: Size = Field(
        default=64 * MiB,
        ge=8 * MiB,
        le=16 * GiB,
        description="memory for written data not yet stored",
        json_schema_extra={
            "advice": "Raise it where saves come in bursts and should return sooner; it is memory that a"
            " save fills.",
        },
    )
    kernel_read_ahead: Size = Field(
        default=2 * MiB,
        ge=0,
        le=GiB,
        description="the kernel's own read-ahead on the mount; set as root only",
        json_schema_extra={
            "advice": "Seldom: it is how much the kernel asks kvtool for at once. mount.read_ahead is what"
            " keeps the disk busy.",
        },
    )
    allow_other: Switch = Field(
        default=False,
        description="let other users in; needs user_allow_other in /etc/fuse.conf",
        json_schema_extra={
            "advice": "Set it to true where llama-server runs as another user than the mount. The files'"
            " permissions are checked in any case; as root /etc/fuse.conf does not matter.",
        },
    )


class HttpSection(Section):
    """The HTTP API, which needs the packages of the extra `http`."""

    listen: Address = Field(
        default="",
        description='where the HTTP API listens, as HOST:PORT; "" is nowhere',
        json_schema_extra={
            "advice": "Set it to 127.0.0.1:8700 to look at the store from this machine. Any other address is"
            " plain HTTP for whoever can read the network: put a proxy with TLS in front of it.",
        },
    )
    token: Token = Field(
        default=SecretStr(""),
        description="who has it may change things through the HTTP API, and read from other machines",
        json_schema_extra={
            "must_be": "16 to 256 letters, digits and characters of ._~+/=-",
            "advice": "Make one with `openssl rand -hex 24`, and keep it in the environment or in a file that"
            " others cannot read: flags are seen by all users of the machine. Without one, nothing can be"
            " deleted, labelled or collected through the API.",
        },
    )


class ScoreSection(Section):
    """Which snapshots are the best to delete. kvtool deletes none; others may go by it."""

    expression: Expression = Field(
        default=DEFAULT,
        description="how good a snapshot is to delete, the higher the better",
        json_schema_extra={
            "advice": "Change it where other snapshots should go first. It may speak of size, unique_bytes,"
            " shared_bytes, uses, age, idle (in seconds), tokens and labels['NAME'], with abs, log, max, min,"
            " number, sqrt, comparisons, and ... if ... else.",
        },
    )


class LogSection(Section):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="least severity that is logged; debug shows tracebacks too",
        json_schema_extra={
            "advice": "Set it to debug to find out why something fails, to warning for a quiet log.",
        },
    )


SECTIONS: dict[str, type[Section]] = {
    "store": StoreSection,
    "chunk": ChunkSection,
    "mount": MountSection,
    "http": HttpSection,
    "score": ScoreSection,
    "log": LogSection,
}
