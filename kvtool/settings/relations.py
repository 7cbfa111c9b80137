"""What has to hold between two settings."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from kvtool.core.address import is_loopback, parse


@dataclass(frozen=True)
class Relation:
    """Two keys whose values, read, must satisfy `holds`; `otherwise` stands between them if they do not."""

    first: str
    second: str
    holds: Callable[[Any, Any], bool]
    otherwise: str

    def broken(self, values: Mapping[str, Any]) -> bool:
        """Not where one of the values is missing: that one is itself wrong."""
        both = self.first in values and self.second in values
        return both and not self.holds(values[self.first], values[self.second])


def _at_most(first: str, second: str) -> Relation:
    return Relation(first, second, lambda a, b: a <= b, "is larger than")


def _stubs_apart(stubs: Path, store: Path) -> bool:
    # A stub tree that holds the store would show it in the mount, and one inside packs/ would be swept.
    # Other spellings of the same place count too: links, `..`, and the two slashes that POSIX keeps.
    stubs, store = (Path("/" + os.path.realpath(each).lstrip("/")) for each in (stubs, store))
    if stubs == store or stubs in store.parents:
        return False
    return not any(
        stubs.is_relative_to(store / name) for name in ("packs", "incoming", "staging", "quarantine")
    )


def _not_open_to_all(listen: str, token: SecretStr) -> bool:
    return not listen or is_loopback(parse(listen)[0]) or bool(token.get_secret_value())


RELATIONS = (
    _at_most("chunk.min_size", "chunk.avg_size"),
    _at_most("chunk.avg_size", "chunk.max_size"),
    _at_most("chunk.max_size", "mount.read_ahead"),
    _at_most("chunk.max_size", "mount.write_queue"),
    _at_most("mount.read_ahead", "mount.cache"),
    Relation("http.listen", "http.token", _not_open_to_all, "is reached from other machines, and needs"),
    Relation("store.stubs", "store.path", _stubs_apart, "holds, or lies among the files of,"),
)
