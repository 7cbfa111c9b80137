"""From settings and arguments to stores and snapshots."""

import os
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import UsageError
from kvtool.settings.model import Settings
from kvtool.store import stubs
from kvtool.store.layout import Layout
from kvtool.store.names import stub_path as stub_path


def layout_of(settings: Settings) -> Layout:
    """Where the store and its stubs are."""
    return Layout(settings.store.path, settings.store.stubs)


def sizes_of(settings: Settings) -> ChunkSizes:
    """The chunk sizes that a new store gets."""
    return ChunkSizes(settings.chunk.min_size, settings.chunk.avg_size, settings.chunk.max_size)


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
