"""What was measured, the limits it is held against, and both as markdown, JSON and a plot."""

import json
import os
import platform
import statistics
import subprocess
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
    machine: str = ""

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

    def count(self, case: str, name: str) -> int:
        """How many values there are so far."""
        return len(self.values.get(case, {}).get(name, ()))

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

    def markdown(self, heading: str = "##") -> str:
        """The tables, the limits and the notes; `heading` is what marks the title of each."""
        parts = [f"{self.machine}. Medians, with the range in brackets."]
        for case, named in self.values.items():
            if self.cpu_belongs_to(case) is None:
                parts.append(f"{heading} {case}\n\n{table(self._rows(case, named))}")
        if self.limits:
            rows = [limit.row() for limit in self.limits]
            parts.append(f"{heading} Limits\n\n{table([['what', 'measured', 'limit', ''], *rows])}")
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"

    def cpu_belongs_to(self, case: str) -> str | None:
        """The case whose CPU times this one holds, None if it holds something else."""
        return next((other for other in self.values if cpu_of(other) == case), None)

    def _rows(self, case: str, named: dict[str, list[float]]) -> list[list[str]]:
        unit, cpu = self.units[case], self.values.get(cpu_of(case), {})
        rows = [["what", unit, *(["CPU s/GB"] if cpu else []), "runs"]]
        for name, values in named.items():
            spent = [spread(cpu[name]) if name in cpu else ""] if cpu else []
            rows.append([name, spread(values, 3 if max(values) < 0.1 else 2), *spent, str(len(values))])
        return rows

    def write(self, folder: Path) -> None:
        """Leave latest.md, latest.json and latest.svg in a folder."""
        from tests.bench.plot import svg

        folder.mkdir(exist_ok=True)
        limits = [asdict(limit) | {"holds": limit.holds} for limit in self.limits]
        whole: dict[str, Any] = {
            "machine": self.machine,
            "cases": {case: {"unit": self.units[case], "values": v} for case, v in self.values.items()},
            "limits": limits,
            "notes": self.notes,
        }
        (folder / "latest.md").write_text(f"# Benchmark\n\n{self.markdown()}")
        (folder / "latest.json").write_text(json.dumps(whole, indent=1) + "\n")
        (folder / "latest.svg").write_text(svg(self))

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """What `write` left there."""
        whole = json.loads((folder / "latest.json").read_text())
        limits = [Limit(**{key: row[key] for key in row if key != "holds"}) for row in whole["limits"]]
        return cls(
            values={case: entry["values"] for case, entry in whole["cases"].items()},
            units={case: entry["unit"] for case, entry in whole["cases"].items()},
            limits=limits,
            notes=whole["notes"],
            machine=whole["machine"],
        )


def cpu_of(case: str) -> str:
    """The case under which the CPU time of another one is noted."""
    return f"CPU time of all processes: {case[0].lower()}{case[1:]}"


def machine(folder: Path) -> str:
    """What was measured on, and the file system that holds `folder`."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    system = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    kind = {"ext2/ext3": "ext4"}.get(system, system)  # stat(1) does not tell them apart
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, {kind}, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )
