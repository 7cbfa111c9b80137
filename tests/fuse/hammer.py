"""`python -m tests.fuse.hammer DIRECTORY WORKER OPERATIONS`: one of many processes that use one directory
at once.

Every content carries its length and its digest, so anybody can tell whether a file is whole. Each file has
one writer for all its life, as two would mix their bytes in a plain directory too.
"""

import hashlib
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

REPLACED = [f"replaced-{i}" for i in range(4)]  # only ever by rename of a finished file: whole at any time
MOVED = [f"moved-{i}" for i in range(4)]  # what may still be being written: whole in the end
PIECE = 10_000


def content(chance: random.Random) -> bytes:
    """A new content: length, bytes that often share parts with others, SHA-256 of both."""
    seed, length = chance.randrange(4), chance.choice([0, 1, 5_000, 40_000, 300_000])
    body = random.Random(seed).randbytes(length) + chance.randbytes(chance.randrange(9_000))
    head = len(body).to_bytes(8, "little")
    return head + body + hashlib.sha256(head + body).digest()


def is_whole(data: bytes) -> bool:
    """Whether `data` is a whole content."""
    return len(data) >= 40 and data[-32:] == hashlib.sha256(data[:-32]).digest()


class Worker:
    """What one process does, in an order that its number decides."""

    def __init__(self, directory: Path, number: int) -> None:
        self.directory = directory
        self.chance = random.Random(number)
        self.own = directory / f"own-{number}"

    def replace(self) -> None:
        """Write aside and rename over."""
        aside = self.own.with_suffix(".tmp")
        aside.write_bytes(content(self.chance))
        aside.rename(self.directory / self.chance.choice(REPLACED))

    def save(self) -> None:
        """Write in place, in pieces; others may move or remove the file meanwhile."""
        self.own.unlink(missing_ok=True)  # what others hold open or have moved is theirs
        with suppress(FileExistsError), self.own.open("xb", buffering=0) as file:
            data = memoryview(content(self.chance))
            while data:
                data = data[file.write(data[:PIECE]) :]

    def append(self) -> None:
        """As save, and reopen between the pieces; the file must not move, so nobody else knows its name."""
        path = self.directory / f"{self.own.name}.log"
        path.unlink(missing_ok=True)
        data = content(self.chance)
        for start in range(0, len(data), PIECE * 4):
            with path.open("ab") as file:
                file.write(data[start : start + PIECE * 4])

    def restore(self) -> None:
        """What is replaced by rename alone is whole whenever it is read."""
        path = self.directory / self.chance.choice(REPLACED)
        assert is_whole(path.read_bytes()), f"{path} is not whole"

    def look(self) -> None:
        """Read what may be unfinished, and list the directory."""
        (self.directory / self.chance.choice(MOVED)).read_bytes()
        os.listdir(self.directory)

    def move(self) -> None:
        """Rename somebody's file, finished or not."""
        source = self.directory / self.chance.choice([*MOVED, *(f"own-{i}" for i in range(6))])
        source.rename(self.directory / self.chance.choice(MOVED))

    def remove(self) -> None:
        """Unlink what anybody may use."""
        (self.directory / self.chance.choice([*REPLACED, *MOVED])).unlink()

    def run(self, operations: int) -> None:
        rules: list[Callable[[], None]] = [self.replace, self.save, self.append, self.look, self.move]
        rules += [self.replace, self.restore, self.restore, self.remove]
        for _ in range(operations):
            with suppress(FileNotFoundError):
                self.chance.choice(rules)()


if __name__ == "__main__":
    Worker(Path(sys.argv[1]), int(sys.argv[2])).run(int(sys.argv[3]))
