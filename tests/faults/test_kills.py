"""A kill before, or halfway through, any step: what was acknowledged is whole, what was not is old or new."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.kills import Kill, kill
from tests.faults.runs import Prepared
from tests.faults.scenarios import SCENARIOS, Scenario

KILLS = 1  # for each scenario; `python -m tests.faults.sweep` tries all


def spread(scenario: Scenario) -> list[Kill]:
    """Steps that are evenly spread over the scenario."""
    return [Kill(1 + (2 * i + 1) * scenario.steps // (2 * KILLS)) for i in range(KILLS)]


@pytest.mark.parametrize(
    ("scenario", "how"),
    [pytest.param(one, how, id=f"{one.name}-{how}") for one in SCENARIOS.values() for how in spread(one)],
)
def test_a_kill_at_a_step(
    library: Path, prepared: Prepared, scenario: Scenario, how: Kill, expect_log: Callable[[str], None]
) -> None:
    if scenario.is_repair:
        expect_log(
            "packs that the catalog knows are gone or damaged|moved to .*/quarantine|rebuilding it from"
        )
    assert kill(scenario, how, library, prepared), "there are not so many steps"


@pytest.mark.parametrize("name", ["save", "chunk"])
def test_a_kill_halfway_through_a_write(library: Path, prepared: Prepared, name: str) -> None:
    assert kill(SCENARIOS[name], Kill(8, halfway=True), library, prepared)


def test_a_mount_after_a_kill(library: Path, prepared: Prepared) -> None:
    assert kill(SCENARIOS["collect"], Kill(20), library, prepared, in_mount=True)
