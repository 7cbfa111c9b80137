"""What was saved over time: few samples, however long the mount runs."""

from typing import Any, cast

import trio
import trio.testing

from kvtool.fs.history import History, Sample


def test_samples_are_thinned_and_the_first_stays() -> None:
    history = History(cast(Any, None))
    for number in range(5000):
        history.add(Sample(float(number), number, number, number))
        assert len(history.samples) <= 500
        assert history.samples[-1].time == number or number % 2
    times = [sample.time for sample in history.samples]
    assert times[0] == 0
    assert times == sorted(times)
    assert len(times) > 200
    assert history.interval > 60


def test_one_is_taken_at_the_start_and_then_regularly() -> None:
    class Counted(History):
        async def sample(self) -> Sample:
            return Sample(trio.current_time(), 0, 0, 0)

    async def main() -> list[float]:
        history = Counted(cast(Any, None))
        began = trio.current_time()
        with trio.move_on_after(150):
            await history.run()
        return [sample.time - began for sample in history.samples]

    clock = trio.testing.MockClock(autojump_threshold=0)
    assert [round(each) for each in trio.run(main, clock=clock)] == [0, 60, 120]
