"""A store for each test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtool.store.layout import Layout
from kvtool.store.store import Store
from tests import three_snapshots
from tests.stores import open_store


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with three snapshots, each with a pack of its own."""
    return three_snapshots.make(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened
