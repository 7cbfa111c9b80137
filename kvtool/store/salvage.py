"""What can be saved of a damaged pack: the chunks whose SHA-256 is right, copied to a new pack."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kvtool.core.pack import Entry
from kvtool.store.layout import Layout
from kvtool.store.packs import PackWriter


class Salvaged(NamedTuple):
    """A new sealed pack: its id, its file's bytes, and its chunks."""

    pack_id: bytes
    size: int
    entries: list[Entry]


def verified(path: Path, claims: Iterable[Entry]) -> Iterator[tuple[bytes, bytes]]:
    """(id, data) of each chunk that is where one of `claims` says, in the order of the pack, each once.

    What cannot be read is left out. Raises PermissionError, when it is only we who may not read the pack.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise
    except OSError:
        return
    try:
        size = os.fstat(fd).st_size
        done = set()
        for claim in sorted(claims, key=lambda claim: claim.offset):
            if claim.id in done or claim.offset < 0 or not 0 < claim.length <= size - claim.offset:
                continue
            try:
                data = os.pread(fd, claim.length, claim.offset)
            except OSError:
                continue
            if hashlib.sha256(data).digest() == claim.id:
                done.add(claim.id)
                yield claim.id, data
    finally:
        os.close(fd)


def salvage(layout: Layout, path: Path, claims: Iterable[Entry]) -> Salvaged | None:
    """Copies what is right of the pack at `path`, durably; None when that is nothing.

    Raises OSError, such as ENOSPC; nothing is left behind then.
    """
    writer = None
    try:
        for chunk_id, data in verified(path, claims):
            writer = writer or PackWriter(layout)
            writer.append([(chunk_id, memoryview(data))])
        if writer is None:
            return None
        return Salvaged(writer.id, writer.seal(sync=True), writer.entries)
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
