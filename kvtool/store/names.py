"""From the name of a snapshot, a path relative to the mount, to its stub."""

import os

from kvtool.errors import NoSnapshot, UsageError
from kvtool.store.layout import RESERVED, Layout

NAME_MAX = 255


def stub_path(layout: Layout, name: str) -> bytes:
    """The stub of the snapshot `name`. Raises UsageError for what is no path relative to the mount."""
    parts = os.fsencode(name).split(b"/")
    if (
        any(part in {b"", b".", b".."} or len(part) > NAME_MAX for part in parts)
        or parts[0] == RESERVED
        or b"\0" in os.fsencode(name)
    ):
        raise UsageError(
            f"'{name}' is not the name of a snapshot",
            hint="names are relative to the mount, as in chat/turn-1.bin",
        )
    return os.path.join(os.fsencode(layout.stubs), *parts)


def existing_stub(layout: Layout, name: str) -> bytes:
    """The stub of a snapshot that must be there, in folders of the stub tree itself and not behind a link.

    Raises NoSnapshot, UsageError.
    """
    path = stub_path(layout, name)
    folder = path
    while (folder := os.path.dirname(folder)) != os.fsencode(layout.stubs):
        if os.path.islink(folder):
            raise no_snapshot(layout, name)
    if not os.path.lexists(path):
        raise no_snapshot(layout, name)
    if os.path.isdir(path) and not os.path.islink(path):
        raise NoSnapshot(f"'{name}' is a directory", hint="`kvtool inspect` lists the snapshots in it")
    return path


def check_new(layout: Layout, name: str) -> None:
    """Raises UsageError when no snapshot of that name can be stored: where a folder is, below another
    snapshot, or behind a link, which may lead out of the stub tree.
    """
    path = stub_path(layout, name)
    hint = "choose another --name"
    if os.path.isdir(path):
        raise UsageError(f"'{name}' is a directory in {layout.stubs}", hint=hint)
    folder = path
    while (folder := os.path.dirname(folder)) != os.fsencode(layout.stubs):
        if os.path.lexists(folder) and (os.path.islink(folder) or not os.path.isdir(folder)):
            raise UsageError(f"'{name}': {os.fsdecode(folder)} is no directory", hint=hint)


def no_snapshot(layout: Layout, name: str) -> NoSnapshot:
    """The error that says so."""
    return NoSnapshot(f"there is no snapshot '{name}' in {layout.stubs}", hint="`kvtool inspect` lists them")
