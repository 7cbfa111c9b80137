"""The error tree. Each class carries the exit code of the command line and the errno of the mount.

A message says what is wrong and names the thing; the hint says what to do next. Both have names and values
as they are, line breaks too: where they are shown they are escaped (`printable`), and nowhere before.
Exit codes: 1 failed, 2 usage or settings, 3 damage found, 10 no store, 11 locked, 130 interrupted.
"""

import errno as _errno
import os


class KvtoolError(Exception):
    """Anything kvtool reports to a user: one line, an exit code, an errno, and the next step."""

    exit_code: int = 1
    errno: int = _errno.EIO
    code: str = "failed"

    def __init__(self, message: str, *, hint: str | None = None, errno: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if errno is not None:
            self.errno = errno

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(KvtoolError):
    """The command line, a path on it, or a name is not usable."""

    exit_code = 2
    errno = _errno.EINVAL
    code = "usage"


class SettingsError(UsageError):
    """One or more settings are wrong: `problems` says of each what, and where it comes from.

    `lines` are those of the message; that cannot be cut into them, as names in it may have line breaks.
    """

    code = "settings"

    def __init__(self, *problems: str, hint: str | None = None) -> None:
        several = [f"{len(problems)} settings are wrong:", *(f"  {each}" for each in problems)]
        self.lines = several if len(problems) > 1 else list(problems)
        super().__init__("\n".join(self.lines), hint=hint)


class OutputFailed(KvtoolError):
    """Standard output cannot be written. What the command was to do may be done."""

    code = "output"


class NoStore(KvtoolError):
    """There is no store at the place named, or the stub tree is not this store's."""

    exit_code = 10
    errno = _errno.ENOENT
    code = "no_store"


class NoSnapshot(UsageError):
    """There is no snapshot of that name."""

    errno = _errno.ENOENT
    code = "no_snapshot"


class StoreFormatError(KvtoolError):
    """The store is of a format that this version does not read."""

    exit_code = 10
    code = "store_format"


class StoreTooNew(StoreFormatError):
    """The store is of a later format: this version can judge nothing of it."""


class StoreLocked(KvtoolError):
    """Another process holds the store's lock."""

    exit_code = 11
    errno = _errno.EBUSY
    code = "locked"


class Damage(KvtoolError):
    """Stored bytes are absent or wrong. Never answered with other bytes."""

    exit_code = 3
    code = "damage"


class IndexDamaged(Damage):
    """A stub's content is not a chunk index."""

    code = "index_damaged"


class Unfinished(NoSnapshot, IndexDamaged):
    """A snapshot's first save has not ended: nobody can read it yet, and nothing is damaged."""


class PackDamaged(Damage):
    """A pack's header, footer or trailer is wrong; `part` says which: header, name, trailer, footer, or
    entries, when the footer is as it was sealed and makes no sense.
    """

    code = "pack_damaged"

    def __init__(self, message: str, part: str) -> None:
        super().__init__(message)
        self.part = part


class CatalogDamaged(Damage):
    """The catalog is no SQLite database, or a damaged one; it can be rebuilt from the packs."""

    code = "catalog_damaged"


class ChunkMissing(Damage):
    """A snapshot needs a chunk that no pack holds."""

    code = "chunk_missing"


class ChunkCorrupt(Damage):
    """A chunk is present and its bytes are wrong: its id, and its length in bytes."""

    code = "chunk_corrupt"

    def __init__(
        self,
        chunk_id: bytes,
        length: int,
        where: str,
        hint: str = "delete the snapshot, or save it again",
    ) -> None:
        super().__init__(f"chunk {chunk_id.hex()} in {where} is damaged", hint=hint)
        self.chunk_id = chunk_id
        self.length = length


def reason(error: OSError) -> str:
    """What the system says is wrong, in one line: the file, if it is about one, and why."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    text = error.strerror or str(error)
    return f"{name}: {text}" if name else text
