"""What the sequences are made of: contents, places in a file, names and picks among what exists.

A pick is drawn without knowing the state and resolved against the model when its rule runs, so that
shrinking a sequence leaves its other steps meaningful.
"""

import errno
import os
import random
from dataclasses import dataclass
from functools import lru_cache

from hypothesis import strategies as st

from tests.property.model import Model
from tests.property.tree import Directory, File, join

# Small chunks, so that a file of some 100 KiB has many of them: minimum, average, maximum. `kvtool` runs
# with these.
CHUNK_SIZES = (1 << 10, 4 << 10, 16 << 10)
CHUNK_FLAGS = [
    f"--chunk.{key}_size={size}" for key, size in zip(["min", "avg", "max"], CHUNK_SIZES, strict=True)
]
FILE_MAX = 4 << 20
_STREAM = 8 << 20


@lru_cache(maxsize=16)
def _stream(seed: int) -> bytes:
    return random.Random(seed).randbytes(_STREAM) if seed else bytes(_STREAM)


@dataclass(frozen=True)
class Blob:
    """`length` bytes of a fixed stream: equal seeds repeat earlier data, perhaps shifted; seed 0 is zeros."""

    seed: int
    start: int
    length: int

    def bytes(self) -> bytes:
        return _stream(self.seed)[self.start : self.start + self.length]


@dataclass(frozen=True)
class Place:
    """An offset or a size, relative to a file's size: `sixteenths` of it and `delta` bytes."""

    sixteenths: int
    delta: int

    def within(self, size: int) -> int:
        return min(max(0, size * self.sixteenths // 16 + self.delta), FILE_MAX)


_EDGES = [*CHUNK_SIZES, 64 << 10, 256 << 10]
_near = st.builds(lambda edge, delta: edge + delta, st.sampled_from(_EDGES), st.integers(-1, 1))
_deltas = st.one_of(
    st.just(0), st.integers(-3, 3), st.integers(-20_000, 20_000), _near, _near.map(lambda n: -n)
)

lengths = st.one_of(
    st.integers(1, 100),
    _near,
    st.integers(1, 8 * CHUNK_SIZES[2]),
    st.integers(0, 30).flatmap(lambda n: st.integers(1, 3 << 20) if n == 30 else st.integers(0, 3)),
)
blobs = st.builds(Blob, st.sampled_from([1, 1, 2, 3, 0]), st.sampled_from([0, 0, 1, 5000, 100_000]), lengths)
patches = st.builds(
    Blob, st.sampled_from([1, 2, 3, 0]), st.sampled_from([0, 1]), st.integers(1, 3000) | lengths
)
places = st.builds(Place, st.sampled_from([0, 16, 16, 4, 8, 13]), _deltas)
indexes = st.integers(0, 40)
modes = st.sampled_from([0o644, 0o600, 0o755, 0o000, 0o777, 0o444])
_moments = st.integers(0, 1_500_000_000 * 10**9)
times = st.one_of(st.none(), st.tuples(_moments, _moments))

OPEN_ACCESS = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
usual_flags = st.sampled_from(
    [
        os.O_RDONLY,
        os.O_RDWR,
        os.O_RDWR,
        os.O_RDWR | os.O_CREAT,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        os.O_WRONLY | os.O_APPEND,
    ]
)
open_flags = usual_flags | st.builds(
    lambda access, extra: access | sum(extra),
    st.sampled_from(OPEN_ACCESS),
    st.sets(st.sampled_from([os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_EXCL])),
)

XATTR_KEYS = [b"user.a", b"user.b", b"trusted.c", b"user." + b"k" * 250, b"user." + b"k" * 251, b"nospace"]
LABEL_KEYS = [b"user.kvtool.label.model", b"user.kvtool.label.\xff"]
OWN_KEYS = [b"user.kvtool.size", b"user.kvtool.created", b"user.kvtool.uses", b"user.kvtool.other"]
xattr_values = st.one_of(st.binary(max_size=20), st.just(b"v" * 200))
xattr_flags = st.sampled_from([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])

_odd_names = [
    b"\xff\xfe",
    b" ",
    b"...",
    b"-rf",
    b"new\nline",
    "ü".encode(),
    b"n" * 255,
    b"n" * 256,
    b".kvtool2",
]
names = st.one_of(
    st.sampled_from([b"a", b"b", b"slot.bin", b"slot.bin.tmp"]),
    st.sampled_from(_odd_names),
    st.binary(min_size=1, max_size=12).map(
        lambda name: name.replace(b"/", b"_").replace(b"\0", b"_").replace(b".", b"_")
    ),
)


@dataclass(frozen=True)
class Pick:
    """A path: `how` among "file", "dir" (existing), "new" (a name in an existing directory), "below_file",
    "lost" (in a directory that is not there) and "long" (about as long as a path may be); `index` chooses
    among what exists.
    """

    how: str
    index: int
    name: bytes

    def path(self, model: Model) -> bytes:
        tree = sorted(model.walk())
        files = [path for path, node in tree if isinstance(node, File)]
        directories = [path for path, node in tree if isinstance(node, Directory)]
        how = self.how
        if how == "new" and len(tree) > 30:
            how = "file"
        if how == "long":
            return b"x/" * 2040 + b"y" * (13 + self.index % 6)
        if how in ("file", "below_file") and files:
            return files[self.index % len(files)] + (b"/" + self.name if how == "below_file" else b"")
        if how == "dir" and len(directories) > 1:
            return directories[1 + self.index % (len(directories) - 1)]
        return join(directories[self.index % len(directories)], b"lost/" * (how == "lost") + self.name)


def picks(*hows: str) -> st.SearchStrategy[Pick]:
    """Mostly of the kinds named, now and then of the failing ones."""
    rare = st.sampled_from(["file", "dir", "new", "below_file", "lost", "long"])
    return st.builds(Pick, st.one_of(*[st.just(how) for how in hows] * 4, rare), indexes, names)


def brief(value: object) -> str:
    """`value` for a message: long bytes as their length and both ends, a number that is an errno by name."""
    if isinstance(value, bytes) and len(value) > 300:
        return f"<{len(value)} bytes {value[:6].hex()}..{value[-6:].hex()}>"
    if isinstance(value, OSError):
        return errno.errorcode.get(value.errno or 0, str(value))
    return repr(value)
