"""Labels: words that users put on a snapshot. They outlive its rewrites (see `stubs.inherit`)."""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass

from kvtool.errors import UsageError
from kvtool.store import stubs

_NO_ROOM = {errno.E2BIG, errno.ENOSPC, errno.EDQUOT, errno.ERANGE, errno.ENAMETOOLONG}


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one snapshot."""

    name: str
    labels: dict[str, str]


def change(path: bytes, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Sets labels of the stub at `path`, removes those that are to be None, and returns what there is then.

    The caller is the one writer, or reads them alone (no changes). Raises UsageError, OSError.
    """
    there = stubs.attributes(path).labels
    for key, value in changes.items():
        if not key or "\0" in key:
            raise UsageError("a label needs a name", hint="write it like project=demo")
        if not (_is_text(key) and _is_text(value or "")):
            raise UsageError(f"label '{key}': half of a character is no text")
        if value is None and key not in there:
            raise UsageError(
                f"there is no label '{key}'", hint="`kvtool label NAME` lists those of a snapshot"
            )
    for key, value in changes.items():
        name = stubs.LABEL + os.fsencode(key)
        if value is None:
            os.removexattr(path, name, follow_symlinks=False)
            continue
        try:
            os.setxattr(path, name, os.fsencode(value), follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            key_size, size = len(os.fsencode(key)), len(os.fsencode(value))
            raise UsageError(
                f"label '{key}' (a name of {key_size} bytes and a value of {size}) does not fit the stub:"
                f" {error.strerror}",
                hint="choose a shorter one; file systems keep some kilobytes with each file",
            ) from error
    return stubs.attributes(path).labels


def _is_text(text: str) -> bool:
    """Whether it can be stored: JSON can name halves of characters."""
    try:
        return bool(os.fsencode(text)) or not text
    except UnicodeEncodeError:
        return False
