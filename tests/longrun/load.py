"""What a long run does: clients with files of their own in a mount, and what each file must hold.

A client draws its steps from its own seed, so whatever the others do at the same time, it does the same.
"""

import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.llamaio import read_like_llama, save_like_proxy
from tests.synth import Conversation, Shape, random_bytes

SHAPES = [Shape(layers=4, row=512), Shape(layers=2, row=512, state=512 * 1024)]
MOST_FILES = 12  # of one client
MOST_TOKENS = 2500  # of one conversation: about 10 MB, and 5 MB
LARGE = 32 << 20
_PIECE = 1 << 20


class WrongBytes(Exception):
    """A file holds something else than what was saved."""


@dataclass(frozen=True)
class Kept:
    """What a file must hold: its bytes, their SHA-256, and where llama-server's appendix begins."""

    size: int
    digest: bytes
    state_end: int | None = None

    @classmethod
    def of(cls, data: bytes, state_end: int | None = None) -> "Kept":
        return cls(len(data), hashlib.sha256(data).digest(), state_end)


class Client:
    """One program that uses a folder of the mount. `counts` has how often it did what."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.chance = random.Random(number)
        self.number = number
        self.files: dict[str, Kept] = {}
        self.counts: Counter[str] = Counter()
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.turn, 6),
            (self.restore, 6),
            (self.rename, 2),
            (self.delete, 3),
            (self.append, 2),
            (self.patch, 1),
            (self.label, 1),
            (self.read_part, 2),
        ]
        self._talk: Conversation | None = None
        folder.mkdir(exist_ok=True)

    def step(self) -> None:
        """One step, drawn by lot. Raises WrongBytes, OSError."""
        step = self.chance.choices([step for step, _ in self.steps], [weight for _, weight in self.steps])[0]
        self.do(step)

    def each(self) -> None:
        """Every kind of step once."""
        self.do(self.turn)
        for step, _ in self.steps:
            self.do(step)

    def large(self) -> None:
        """A file larger than the queue is saved, restored and deleted: every buffer has been in use then."""
        data, path = random_bytes(LARGE, self.number), self.folder / "large.bin"
        path.write_bytes(data)
        self.files[path.name] = Kept.of(data)
        self._compare(path.name, path.read_bytes())
        os.unlink(path)
        del self.files[path.name]

    def do(self, step: Callable[[], None]) -> None:
        if not self.files:
            step = self.turn
        if len(self.files) > MOST_FILES:
            step = self.delete
        step()
        self.counts[step.__name__] += 1

    def turn(self) -> None:
        """The conversation goes on, or another begins or branches off; saved under a new or an old name."""
        talk = self._talk
        if talk is None or len(talk.tokens) > MOST_TOKENS or self.chance.random() < 0.1:
            talk = Conversation(self.chance.choice(SHAPES), seed=self.chance.randrange(1 << 30))
            talk.turn(self.chance.randrange(200, 1500))
        elif self.chance.random() < 0.2:
            talk = talk.branch(self.chance.randrange(len(talk.tokens)), seed=self.chance.randrange(1 << 30))
        self._talk = talk.turn(self.chance.randrange(1, 400))
        snapshot = talk.snapshot()
        name = self._some() if self.files and self.chance.random() < 0.5 else self._free()
        save_like_proxy(str(self.folder), name, snapshot)
        self.files[name] = Kept.of(snapshot.data, snapshot.state_end)

    def restore(self) -> None:
        """As llama-server restores."""
        name = self._some()
        self._compare(name, bytes(read_like_llama(str(self.folder / name), self.files[name].state_end)))

    def read_part(self) -> None:
        """Somewhere in a file, and then all of it in small reads."""
        name = self._some()
        with open(self.folder / name, "rb", buffering=0) as file:
            file.seek(self.chance.randrange(self.files[name].size))
            file.read(100_000)
            file.seek(0)
            pieces = []
            while piece := file.read(_PIECE // 8):
                pieces.append(piece)
        self._compare(name, b"".join(pieces))

    def rename(self) -> None:
        """To a new name, or over another file."""
        name = self._some()
        target = self._some() if self.chance.random() < 0.5 else self._free()
        os.rename(self.folder / name, self.folder / target)
        self.files[target] = self.files.pop(name)

    def delete(self) -> None:
        name = self._some()
        os.unlink(self.folder / name)
        del self.files[name]

    def append(self) -> None:
        self._change("ab", lambda data: len(data))

    def patch(self) -> None:
        """A write in the middle, which makes a plain copy."""
        self._change("r+b", lambda data: self.chance.randrange(len(data)))

    def label(self) -> None:
        path, value = self.folder / self._some(), b"%d" % self.chance.randrange(100)
        os.setxattr(path, "user.kvtool.label.run", value)
        if os.getxattr(path, "user.kvtool.label.run") != value:
            raise WrongBytes(f"{path}: the label is not what was set")

    def compare_all(self) -> None:
        """Every name that there is, and every byte. Raises WrongBytes."""
        found = sorted(os.listdir(self.folder))
        if found != sorted(self.files):
            raise WrongBytes(f"{self.folder} holds {found}, not {sorted(self.files)}")
        for name in found:
            self._compare(name, (self.folder / name).read_bytes())

    def _change(self, mode: str, place: Callable[[bytes], int]) -> None:
        name = self._some()
        path = self.folder / name
        data = path.read_bytes()
        self._compare(name, data)
        at, new = place(data), self.chance.randbytes(self.chance.randrange(1, 60_000))
        with open(path, mode, buffering=0) as file:
            file.seek(at)
            file.write(new)
        self.files[name] = Kept.of(data[:at] + new + data[at + len(new) :])

    def _compare(self, name: str, data: bytes) -> None:
        if Kept.of(data, self.files[name].state_end) != self.files[name]:
            raise WrongBytes(f"{self.folder / name}: {len(data)} bytes, which are not those that were saved")

    def _some(self) -> str:
        return self.chance.choice(sorted(self.files))

    def _free(self) -> str:
        return next(name for i in range(MOST_FILES + 2) if (name := f"s{i}.bin") not in self.files)
