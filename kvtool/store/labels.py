"""Labels of snapshots: which names and values there can be, and setting them on a stub."""

import os
from collections.abc import Mapping

from kvtool.errors import UsageError
from kvtool.store import stubs

NAME_MAX = 255 - len(stubs.LABEL)  # bytes; the kernel's bound on an attribute's name
VALUE_MAX = 1024  # bytes; all attributes of a file share one block on ext4


def check(labels: Mapping[str, str | None]) -> None:
    """Raises UsageError for a name or a value that cannot be one; None stands for removal."""
    for name, value in labels.items():
        encoded = os.fsencode(name)
        if not 0 < len(encoded) <= NAME_MAX or not name.isprintable():
            raise UsageError(f"{name!r} cannot be a label: 1 to {NAME_MAX} bytes of visible characters can")
        if value is not None and (len(os.fsencode(value)) > VALUE_MAX or "\0" in value):
            raise UsageError(f"the value of label {name} cannot be stored: at most {VALUE_MAX} bytes, no NUL")


def change(path: bytes, labels: Mapping[str, str | None]) -> None:
    """Sets, or with None removes, labels of the stub at `path`; others stay. Raises UsageError, OSError."""
    check(labels)
    have = stubs.get_all(path)
    for name, value in labels.items():
        attribute = stubs.LABEL + os.fsencode(name)
        if value is not None:
            os.setxattr(path, attribute, os.fsencode(value), follow_symlinks=False)
        elif attribute in have:
            os.removexattr(path, attribute, follow_symlinks=False)
