"""A store for each test that wants one, and a command line for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests import three_snapshots
from tests.cli import Cli
from tests.readers import Disk
from tests.stores import flags_of, open_store


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with three snapshots, each with a pack of its own."""
    return three_snapshots.make(tmp_path)


@pytest.fixture
def cli(
    layout: Layout,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    """kvtool's command line for the store at `layout`, whichever the test's file makes."""
    return Cli(tmp_path, capsysbinary, monkeypatch, *flags_of(layout))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """What the readers of the test read from."""
    return Disk.in_place(monkeypatch)
