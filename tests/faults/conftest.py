"""The shim, compiled once, stores that are prepared once, and recordings that are made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.faults.cuts import Recording, record
from tests.faults.runs import Prepared
from tests.faults.scenarios import Scenario
from tests.faults.shim import compile_shim


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim."""
    return compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The scenarios' stores."""
    return Prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def recording(library: Path, prepared: Prepared) -> Callable[[Scenario, str], Recording]:
    """What a scenario does with that durability."""

    @cache
    def recorded(scenario: Scenario, durability: str) -> Recording:
        return record(scenario, library, prepared, durability)

    return recorded
