"""A store for each test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtool.store.store import Store
from tests.stores import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened
