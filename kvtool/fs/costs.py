"""What each snapshot costs, as extended attributes that are computed when asked for.

A process of its own recounts all snapshots, as that would hold the interpreter lock here; its table is good
until a commit, a rename or a deletion.
"""

import errno
import json
import os
import time
from typing import Any

import trio

from kvtool.core.score import Score
from kvtool.core.usage import Usage
from kvtool.errors import KvtoolError
from kvtool.fs.environment import Environment
from kvtool.store import child, stubs
from kvtool.store.snapshots import facts

UNIQUE = stubs.PREFIX + b"unique_bytes"
SHARED = stubs.PREFIX + b"shared_bytes"
SCORE = stubs.PREFIX + b"score"
COMPUTED = {UNIQUE, SHARED, SCORE}


class Costs:
    """The table of all snapshots: bytes, and tokens where the score speaks of them."""

    def __init__(self, env: Environment, score: Score) -> None:
        self._env = env
        self._score = score
        self._turn = trio.Lock()
        self._table: dict[str, list[int]] = {}
        self._counted_at = -1  # the number of changes that the table knows of

    async def xattr(self, number: int, name: bytes) -> bytes:
        """The value of one of COMPUTED for an inode. Raises OSError (ENODATA for what is no snapshot)."""
        layout, inodes = self._env.store.layout, self._env.inodes
        inode = inodes[number]
        if inode.detached is not None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        async with self._turn:
            if self._counted_at != self._env.changes:
                changes = self._env.changes
                self._table = await self._count()
                self._counted_at = changes
        path = inodes.path(inode)  # it may have been renamed meanwhile
        row = self._table.get(stubs.name_of(layout, path))
        if row is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        unique, shared, tokens = row
        if name == SCORE:
            modified = os.lstat(path).st_mtime
            known = facts(stubs.attributes(path), modified, Usage(unique, shared), tokens, time.time())
            return f"{self._score.of(known):g}".encode()
        return b"%d" % (unique if name == UNIQUE else shared)

    async def _count(self) -> dict[str, list[int]]:
        layout = self._env.store.layout
        arguments = ["--store", str(layout.root), "--stubs", str(layout.stubs)]
        if self._score.needs_tokens:
            arguments.append("--tokens")
        process = child.start("kvtool.store.census", arguments, talks=True)
        try:
            # The thread is left behind when nobody waits any more: it ends with the process.
            out, _ = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
        finally:
            process.kill()
        if process.wait():
            raise KvtoolError(f"counting the snapshots failed: {child.failure_in(out)}")
        table: dict[str, Any] = json.loads(out)
        return table
