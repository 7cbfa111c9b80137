"""Deterministic snapshots in llama.cpp's slot-file layout, made without llama.cpp.

The bytes of a token's K and V rows are a function of (layer, all tokens up to it), as in a real cache:
computing a prefix again gives the same bytes, another conversation with the same beginning shares its rows,
and since the file is layer-major every turn inserts rows inside every layer's block. A recurrent state
depends on all tokens at once.

    first = Conversation(PLAIN, seed=1).turn(3000)
    first.snapshot().data                      # bytes of the slot file
    first.turn(600).snapshot()                 # the next turn
    first.branch(2000, seed=2).turn(1000)      # another conversation with 2,000 tokens in common

200-300 MB/s; rows already made are reused by later turns and by branches.
"""

import hashlib
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvtool.core import tokens
from kvtool.core.tokens import TokenList

_SCKP = 0x504B4353
_F16 = 1


@dataclass(frozen=True)
class Shape:
    """What a model's cache looks like. Sizes in bytes; `row` is one layer's K (or V) of one token."""

    layers: int
    row: int
    state: int = 0
    transposed_v: bool = False

    @property
    def per_token(self) -> int:
        """Bytes of keys and values that one token adds."""
        return 2 * self.layers * self.row

    def without_flash_attention(self) -> "Shape":
        """The same cache as `-fa off` stores it: V transposed, so written in thousands of short rows."""
        return replace(self, transposed_v=True)


PLAIN = Shape(layers=16, row=1024)
HYBRID = Shape(layers=2, row=4096, state=13 * 1024 * 1024)


@dataclass(frozen=True)
class Snapshot:
    """One slot file: `pieces` as the server hands them to `fwrite`, `appendix` as it hands them to
    `writev`.
    """

    pieces: list[bytes]
    appendix: list[list[bytes]]

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces)) + sum(len(part) for call in self.appendix for part in call)

    @property
    def state_end(self) -> int:
        """Where the appendix begins."""
        return sum(map(len, self.pieces))

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces) + b"".join(part for call in self.appendix for part in call)


class Conversation:
    """A growing list of tokens with the rows they leave in the cache."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        self.seed = seed
        self.tokens: list[int] = []
        self._digests: list[bytes] = []
        self._rows: list[bytes] = []
        self._checkpoints: list[int] = []

    def turn(self, tokens: int = 600) -> "Conversation":
        """Add one turn of so many tokens, and with a recurrent state the two checkpoints it leaves."""
        start = len(self.tokens)
        for at in range(start, start + tokens):
            self._add(35 + int.from_bytes(_digest(b"token", self.seed, at)[:2], "little") % 95)
        if self.shape.state and tokens:
            self._checkpoints += [start + tokens // 2, start + tokens - 1]
        return self

    def branch(self, at: int, seed: int) -> "Conversation":
        """Another conversation whose first `at` tokens are this one's; its checkpoints are all its own."""
        other = Conversation(self.shape, seed)
        other.tokens, other._digests, other._rows = self.tokens[:at], self._digests[:at], self._rows[:at]
        return other

    def snapshot(self) -> Snapshot:
        """The slot file as it would be saved now."""
        return Snapshot(list(self._pieces()), list(self._appendix()) if self.shape.state else [])

    def _add(self, token: int) -> None:
        before = self._digests[-1] if self._digests else b""
        digest = _digest(before, token)
        self.tokens.append(token)
        self._digests.append(digest)
        self._rows.append(hashlib.shake_128(digest).digest(self.shape.per_token))

    def _pieces(self) -> Iterator[bytes]:
        shape, n = self.shape, len(self.tokens)
        head = tokens.encode(TokenList(4, array("i", self.tokens), array("i", [0])))
        yield head[: tokens.PREFIX_SIZE]
        yield head[tokens.PREFIX_SIZE :]
        yield struct.pack("<II", 1, n)
        yield b"".join(struct.pack("<iIi", position, 1, 0) for position in range(n))
        yield struct.pack("<IIII", int(shape.transposed_v), shape.layers, 0, 0)
        for layer in range(2 * shape.layers):
            at = layer * shape.row
            block = b"".join([row[at : at + shape.row] for row in self._rows])
            if shape.transposed_v and layer >= shape.layers:
                yield struct.pack("<iII", _F16, 2, shape.row // 2)
                halves = memoryview(block).cast("H")
                for column in range(shape.row // 2):
                    yield halves[column :: shape.row // 2].tobytes()
            else:
                yield struct.pack("<iQ", _F16, shape.row)
                yield block
        if shape.state:
            yield struct.pack("<IiIi", 1, n - 1, 1, 0)
            yield self._state(n)

    def _appendix(self) -> Iterator[list[bytes]]:
        """Checkpoints in the order they were made, then where the appendix begins (for the reader's tail
        read).
        """
        head = struct.pack("<III", _SCKP, 1, len(self._checkpoints))
        for position in self._checkpoints:
            yield [head + struct.pack("<QQQ", position, 0, self.shape.state), self._state(position)]
            head = struct.pack("<III", 0, 0, position)
        yield [struct.pack("<QII", len(self._checkpoints), _SCKP, 1)]

    def _state(self, position: int) -> bytes:
        """The recurrent state after so many tokens: nothing of it survives the next one."""
        before = self._digests[position - 1] if position else b""
        return hashlib.shake_128(b"state" + before).digest(self.shape.state)


def random_bytes(size: int, seed: int = 0) -> bytes:
    """Incompressible bytes without repetition, the same for the same seed."""
    part = 1 << 20
    whole = b"".join(
        hashlib.shake_128(_digest(b"part", seed, at)).digest(part) for at in range((size + part - 1) // part)
    )
    return whole[:size]


def _digest(*words: bytes | int) -> bytes:
    joined = b"".join(w if isinstance(w, bytes) else w.to_bytes(8, "little") for w in words)
    return hashlib.blake2b(joined, digest_size=16).digest()
