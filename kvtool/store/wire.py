"""What processes of kvtool say to each other: frames over a stream socket.

A frame is u32 header length, u32 body length (little-endian), a JSON object, and the raw body.

To the ingest worker of a mount:

- `begin {stream, resume?: [id in hex, bytes]}` - a save begins, after the chunk `resume` taken back
- `data {stream, slot, length}` - that many bytes of the shared memory's slot are the next ones
- `finish {stream, digest}` - seal it; XXH3-128 in hex of all bytes that were sent
- `drop {stream}` - give it up
- `suspect {id, length}` - a reader found that chunk damaged: if it is, the next save stores it anew
- `condemn {copies: [[pack in hex, id in hex, offset, bytes]]}` - those copies too, answered
- `note {}` - a collection begins: note the chunks used from now on
- `adopt {pack: id in hex}` - chunks move to that new pack, for a short while; to be asked again while `more`
- `delete {keys: [pack key]}` - delete packs without a noted chunk, for a short while; the rest is `left`
- `forget {}` - the collection is over

From the worker:

- `free {slot}` - the slot may be filled again
- `saved {stream, new_chunks, new_bytes}`, body: the chunks' lengths (u64 each), then their ids
- `failed {stream, errno, message}` - the save is lost; what still comes of it is ignored
- `note {newest: pack key}`, `adopt {bytes, more}`, `delete {packs, bytes, left}`, `forget {}`,
  `condemned {marked}`: each with the `seconds` it took, or with `{errno, message}`

To a hasher (see `hashers`): `look {pack: path}`, body: entries as in a pack's footer. It answers with
`looked {bytes, faults: [[number of the entry, kind, reason, errno]]}`.

To a digester (see `digests`): `digest {at}`, body: the lengths (u64 each) of pieces of the shared memory that
follow one another from there. It answers with their SHA-256, 32 bytes each, without a frame.
"""

import json
import socket
import struct
from typing import Any

PREFIX = struct.Struct("<II")


def encode(op: str, body: bytes = b"", /, **fields: Any) -> bytes:
    """One frame."""
    header = json.dumps({"op": op, **fields}, separators=(",", ":")).encode()
    return PREFIX.pack(len(header), len(body)) + header + body


def decode(header: bytes) -> dict[str, Any]:
    """The object in a frame's header."""
    message: dict[str, Any] = json.loads(header)
    return message


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """The next frame's object and body; None when the other end is closed, or what it sent is cut short."""
    prefix = connection.recv(PREFIX.size, socket.MSG_WAITALL)
    if len(prefix) < PREFIX.size:
        return None
    header_size, body_size = PREFIX.unpack(prefix)
    content = connection.recv(header_size + body_size, socket.MSG_WAITALL)
    if len(content) < header_size + body_size:
        return None
    return decode(content[:header_size]), content[header_size:]
