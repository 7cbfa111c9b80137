"""What tests of export and import save, and how they ask casync and kvtool."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kvtool.core.chunker import ChunkSizes
from tests.cli import Done
from tests.synth import random_bytes

SIZES = ChunkSizes(1024, 4096, 16384)  # casync takes none below
DATA = random_bytes(400_000)
FILES = {"a": DATA[:200_000], "chat/b": DATA[:120_000] + DATA[300_000:], "empty": b"", "odd \udcff": DATA[:1]}


def casync(*arguments: str | Path, check: bool = True) -> int:
    if not shutil.which("casync"):
        pytest.skip("casync is not installed")
    command = ["casync", *map(str, arguments)]
    return subprocess.run(command, check=check, timeout=60, capture_output=True).returncode


def chunk_files(folder: Path) -> list[Path]:
    return sorted((folder / "default.castr").glob("*/*"))


def refused(done: Done, code: int, *words: str) -> None:
    """The command failed with this code, in one line that has these words and a next step."""
    assert (done.returncode, done.stdout) == (code, b""), done
    assert done.stderr.count("\n") == 1
    for word in (*words, "; "):
        assert word in done.stderr
