"""From settings and arguments to stores and snapshots."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvtool.core.chunker import ChunkSizes
from kvtool.store.layout import Layout
from kvtool.store.names import existing_stub as existing_stub
from kvtool.store.names import stub_path as stub_path


def layout_of(values: Mapping[str, Any]) -> Layout:
    """Where the store and its stubs are, by the settings."""
    return Layout(values["store.path"], values["store.stubs"])


def sizes_of(values: Mapping[str, Any]) -> ChunkSizes:
    """The chunk sizes that a new store gets."""
    return ChunkSizes(*(values[f"chunk.{name}_size"] for name in ("min", "avg", "max")))


def directory_name(text: str) -> str:
    """The type of an argument: any name but the empty one, as of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the directory's name is empty")
    return text


def directory_argument(text: str) -> Path:
    """A path on the command line, absolute."""
    return Path(text).absolute()
