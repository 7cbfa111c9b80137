"""From settings and arguments to stores and snapshots."""

import os
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import UsageError
from kvtool.settings.model import Settings
from kvtool.store import stubs
from kvtool.store.layout import RESERVED, Layout

_NAME_MAX = 255


def layout_of(settings: Settings) -> Layout:
    """Where the store and its stubs are."""
    return Layout(settings.store.path, settings.store.stubs)


def sizes_of(settings: Settings) -> ChunkSizes:
    """The chunk sizes that a new store gets."""
    return ChunkSizes(settings.chunk.min_size, settings.chunk.avg_size, settings.chunk.max_size)


def stub_path(layout: Layout, name: str) -> bytes:
    """The stub of the snapshot `name`, a path relative to the mount. Raises UsageError for other paths."""
    parts = os.fsencode(name).split(b"/")
    if (
        any(part in {b"", b".", b".."} or len(part) > _NAME_MAX for part in parts)
        or parts[0] == RESERVED
        or b"\0" in os.fsencode(name)
    ):
        raise UsageError(
            f"{name!r} is not the name of a snapshot",
            hint="names are relative to the mount, as in chat/turn-1.bin",
        )
    return os.path.join(os.fsencode(layout.stubs), *parts)


def existing_stub(layout: Layout, name: str) -> bytes:
    """The stub of a snapshot that must be there. Raises UsageError."""
    path = stub_path(layout, name)
    if not os.path.lexists(path):
        raise UsageError(
            f"there is no snapshot {name!r} in {layout.stubs}", hint="`kvtool inspect` lists them"
        )
    if os.path.isdir(path):
        raise UsageError(f"{name!r} is a directory", hint="`kvtool inspect` lists the snapshots in it")
    return path


def shown_name(layout: Layout, path: bytes) -> str:
    """The name in the mount of the stub at `path`."""
    return stubs.name_of(layout, path)


def directory_argument(text: str) -> Path:
    """A path on the command line, absolute."""
    return Path(text).absolute()
