"""Extended attributes in the mount: the stub's, of which kvtool's own are read-only but for labels.

The read-only ones are not listed, so that `cp -a` and `rsync -X` into the mount work. `PREFETCH` is none of
the stub's: it stands for a hint (see `kvtool.fs.prefetch`).
"""

import errno
import os

from kvtool.store import stubs

PREFETCH = stubs.PREFIX + b"prefetch"
_SHOWN = {stubs.SIZE, stubs.CREATED, stubs.USES, stubs.LAST_USED}


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _is_own(name: bytes) -> bool:
    return name.startswith(stubs.PREFIX) and not name.startswith(stubs.LABEL)


def get(path: bytes, name: bytes, size: int | None) -> bytes:
    """The value of an attribute; `size` is the live size of a file. Raises OSError (ENODATA)."""
    if not name.startswith(b"user."):
        raise _error(errno.EOPNOTSUPP)
    if _is_own(name):
        if name not in _SHOWN:
            raise _error(errno.ENODATA)
        if name == stubs.SIZE and size is not None:
            return b"%d" % size
        if name == stubs.USES and size is not None:
            return stubs.get(path, name) or b"0"
    return os.getxattr(path, name, follow_symlinks=False)


def set_(path: bytes, name: bytes, value: bytes) -> None:
    """Sets an attribute of the `user` namespace. Raises OSError (EPERM for kvtool's own)."""
    os.setxattr(path, _settable(name), value, follow_symlinks=False)


def remove(path: bytes, name: bytes) -> None:
    """Removes an attribute. Raises OSError (ENODATA, EPERM for kvtool's own)."""
    os.removexattr(path, _settable(name), follow_symlinks=False)


def list_(path: bytes) -> list[bytes]:
    """The names of the attributes that users may set."""
    names = (os.fsencode(name) for name in os.listxattr(path, follow_symlinks=False))
    return [name for name in names if name.startswith(b"user.") and not _is_own(name)]


def _settable(name: bytes) -> bytes:
    if not name.startswith(b"user."):
        raise _error(errno.EOPNOTSUPP)
    if _is_own(name):
        raise _error(errno.EPERM)
    return name
