"""Power cuts: nothing acknowledged is lost with durability "power", nothing wrong is read with "process"."""

from collections.abc import Callable

import pytest

from kvtool.store import durable
from tests.faults.cuts import Recording
from tests.faults.disk import Outcome
from tests.faults.scenarios import DAY, SCENARIOS, Scenario
from tests.stores import layout_in

ExpectLog = Callable[[str], None]
Recorder = Callable[[Scenario, str], Recording]
MENDED = "packs that the catalog knows are gone or damaged|moved to .*/quarantine|damaged and forgotten"
OFFLINE = [scenario for scenario in SCENARIOS.values() if not scenario.is_mounted]
# The lots are always the same; `python -m tests.faults.sweep` draws more.
MOMENTS = {DAY: 14} | dict.fromkeys(OFFLINE, 6)


def check(recording: Recording, *outcomes: Outcome) -> None:
    for number, moment in enumerate(recording.moments(MOMENTS.get(recording.scenario, 10))):
        recording.check(moment, outcomes[number % len(outcomes)], seed=1)


@pytest.mark.parametrize("scenario", MOMENTS, ids=lambda scenario: scenario.name)
def test_what_was_acknowledged_with_durability_power_is_there(
    recording: Recorder, scenario: Scenario, expect_log: ExpectLog
) -> None:
    expect_log("packs that the catalog knows are gone")  # collected, and the catalog is older
    recorded = recording(scenario, "power")
    check(recorded, Outcome.LOST, Outcome.CHANCE, Outcome.STUBS_LOST, Outcome.CHANCE, Outcome.STORE_LOST)


@pytest.mark.parametrize("scenario", [DAY, SCENARIOS["mend"]], ids=lambda scenario: scenario.name)
def test_no_wrong_byte_with_durability_process(
    recording: Recorder, scenario: Scenario, expect_log: ExpectLog
) -> None:
    expect_log(MENDED)
    recorded = recording(scenario, "process")
    check(recorded, Outcome.PAGE_LOST, Outcome.CHANCE, Outcome.LOST, Outcome.CHANCE)


@pytest.mark.parametrize("scenario", [DAY, SCENARIOS["create"]], ids=lambda scenario: scenario.name)
def test_a_cut_that_loses_nothing_is_as_a_kill(recording: Recorder, scenario: Scenario) -> None:
    check(recording(scenario, "process"), Outcome.THERE)


def test_the_first_holder_of_a_lock_is_not_forgotten(recording: Recorder) -> None:
    recorded = recording(SCENARIOS["create"], "power")
    half_done = next(i for i, event in enumerate(recorded.events) if "/.kvtool/new-" in event.path)
    recorded.check(half_done + 1, Outcome.STORE_LOST)


def test_a_store_whose_making_was_cut_short_is_gone_on_with(recording: Recorder) -> None:
    recorded = recording(SCENARIOS["create"], "power")
    first = next(i for i, event in enumerate(recorded.events) if event.path.endswith("/packs"))
    for seed in range(10):
        recorded.check(first + 1, Outcome.CHANCE, seed)


def test_what_was_lost_with_durability_process_can_be_saved_again(
    recording: Recorder, expect_log: ExpectLog
) -> None:
    expect_log(MENDED)
    check(recording(DAY, "process"), Outcome.PAGE_LOST)


def test_a_collection_loses_nothing_that_was_safe_before(recording: Recorder, expect_log: ExpectLog) -> None:
    expect_log(MENDED)
    check(recording(SCENARIOS["collect"], "process"), Outcome.STUBS_LOST)


def test_what_a_collection_noted_as_written_out_holds_after_a_cut(recording: Recorder) -> None:
    recorded = recording(SCENARIOS["collect"], "process")
    with recorded.after_cut(len(recorded.events), Outcome.THERE) as root:
        assert durable.synced_up_to(layout_in(root))
