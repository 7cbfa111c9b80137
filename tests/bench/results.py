"""What was measured, the limits it is held against, and both as markdown and JSON."""

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.peers import Peer
from tests.timing import spread, table


@dataclass(frozen=True)
class Plan:
    """How much to measure: runs of each case, bytes of each file, and beside whom."""

    runs: int
    size: int
    peers: list[type[Peer]]


@dataclass
class Limit:
    """One thing that must hold. Never a reason to fail: a noisy machine proves nothing."""

    what: str
    measured: float
    bound: float
    at_least: bool
    unit: str = "x"

    @property
    def holds(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def row(self) -> list[str]:
        side = "at least" if self.at_least else "at most"
        verdict = "ok" if self.holds else "under" if self.at_least else "over"
        return [self.what, f"{self.measured:.2f} {self.unit}", f"{side} {self.bound:g} {self.unit}", verdict]


@dataclass
class Results:
    """All values by case and name, in the order they came."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, case: str, name: str, value: float, unit: str = "s") -> None:
        self.values.setdefault(case, {}).setdefault(name, []).append(value)
        self.units[case] = unit

    def note(self, text: str) -> None:
        """A remark for the end of the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def median(self, case: str, name: str) -> float | None:
        values = self.values.get(case, {}).get(name)
        return statistics.median(values) if values else None

    def ratio(
        self, what: str, over: tuple[str, str], under: tuple[str, str], bound: float, *, at_least: bool
    ) -> None:
        """Hold the ratio of two medians against a limit; nothing when either was not measured."""
        above, below = self.median(*over), self.median(*under)
        if above is not None and below:
            self.limits.append(Limit(what, above / below, bound, at_least))

    def hold(self, what: str, measured: float | None, bound: float, unit: str) -> None:
        """Hold a value against an upper limit; nothing when it was not measured."""
        if measured is not None:
            self.limits.append(Limit(what, measured, bound, at_least=False, unit=unit))

    def markdown(self) -> str:
        parts = [f"# Benchmark\n\n{machine()}. Medians, with the range in brackets."]
        for case, named in self.values.items():
            heading = ["what", self.units[case], "runs"]
            rows = [[name, spread(values), str(len(values))] for name, values in named.items()]
            parts.append(f"## {case}\n\n{table([heading, *rows])}")
        if self.limits:
            rows = [limit.row() for limit in self.limits]
            parts.append(f"## Limits\n\n{table([['what', 'measured', 'limit', ''], *rows])}")
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """Leave latest.md and latest.json in a folder."""
        folder.mkdir(exist_ok=True)
        limits = [asdict(limit) | {"holds": limit.holds} for limit in self.limits]
        whole: dict[str, Any] = {
            "machine": machine(),
            "cases": {case: {"unit": self.units[case], "values": v} for case, v in self.values.items()},
            "limits": limits,
            "notes": self.notes,
        }
        (folder / "latest.md").write_text(self.markdown())
        (folder / "latest.json").write_text(json.dumps(whole, indent=1) + "\n")


def machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
