"""Who is told how far a long piece of work is."""

from collections.abc import Callable
from dataclasses import dataclass


def _nobody(_count: int) -> None:
    return


@dataclass(frozen=True, slots=True)
class Watch:
    """`begin` is told how much there is to do, each time that it begins anew; `done` of each part done."""

    begin: Callable[[int], object] = _nobody
    done: Callable[[int], object] = _nobody


NOBODY = Watch()
