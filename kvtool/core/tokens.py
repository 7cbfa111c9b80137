"""The token list that a llama.cpp slot file begins with. All integers are little-endian.

================  ====================================================================================
offset            content
================  ====================================================================================
0                 u32 magic (`ggsq` of a slot, `ggsn` of a whole session), u32 version, u32 n
12                n words of payload; which of two forms, the first word tells
12 (-1 comes      i32 -1, u32 payload version 1, u32 n_tok, n_tok token ids (i32), then words about
first)            media: u32 n_media and what follows it (slot files from version 4 on)
12 (otherwise)    n token ids (i32)
================  ====================================================================================

Source: slot files of llama.cpp's server, release b11549; tests/e2e reads those of the real one. That earlier
versions have the second form alone is by report.
"""

import struct
import sys
from array import array
from dataclasses import dataclass, field

PREFIX_SIZE = 12
_PREFIX = struct.Struct("<III")
_SLOT, _SESSION = 0x67677371, 0x6767736E
_STRUCTURED = 4  # the first version whose payload may be more than tokens
_MARK, _PAYLOAD_VERSION, _FRAME = -1, 1, 3
_MAX_WORDS = 1 << 24  # far above any context; what says more is no token list


class NoTokens(ValueError):
    """The bytes are not the beginning of a llama.cpp slot or session file."""


@dataclass(frozen=True, slots=True)
class TokenList:
    """The head of a slot file: its format version, token ids, and the words about media as they come."""

    version: int
    tokens: "array[int]"
    media: "array[int]" = field(default_factory=lambda: array("i"))
    structured: bool = True
    session: bool = False


def header_size(prefix: bytes) -> int:
    """The bytes from the file's beginning that `decode` needs, by its first PREFIX_SIZE. Raises NoTokens."""
    if len(prefix) < PREFIX_SIZE:
        raise NoTokens("too short for a slot file")
    magic, _, words = _PREFIX.unpack_from(prefix)
    if magic not in {_SLOT, _SESSION}:
        raise NoTokens("not the magic of a slot file")
    if words > _MAX_WORDS:
        raise NoTokens(f"{words} words are no token list")
    return PREFIX_SIZE + 4 * int(words)


def encode(head: TokenList) -> bytes:
    """The bytes that `decode` takes apart."""
    payload = head.tokens
    if head.structured:
        payload = array("i", [_MARK, _PAYLOAD_VERSION, len(head.tokens)]) + head.tokens + head.media
    magic = _SESSION if head.session else _SLOT
    return _PREFIX.pack(magic, head.version, len(payload)) + _little(payload).tobytes()


def decode(data: bytes) -> TokenList:
    """The token list at the beginning of `data`, `header_size` bytes or more. Raises NoTokens."""
    end = header_size(data)
    if len(data) < end:
        raise NoTokens("cut short")
    magic, version, _ = _PREFIX.unpack_from(data)
    payload = _little(array("i", data[PREFIX_SIZE:end]))
    session = magic == _SESSION
    if session or version < _STRUCTURED or not payload or payload[0] != _MARK:
        return TokenList(version, payload, structured=False, session=session)
    if len(payload) < _FRAME or payload[1] != _PAYLOAD_VERSION:
        raise NoTokens("a payload of a version that is not known")
    count = payload[2]
    if not 0 <= count <= len(payload) - _FRAME:
        raise NoTokens(f"{count} tokens do not fit the payload")
    return TokenList(version, payload[_FRAME : _FRAME + count], payload[_FRAME + count :])


def _little(words: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        return words
    swapped = words[:]
    swapped.byteswap()
    return swapped
