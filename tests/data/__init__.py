"""Stores made by earlier versions, as archives, and how to unpack one.

`store-N.tar.xz` is a store of format N with its stub tree; `store-N.json` says what each snapshot must hold.
Extended attributes are in the archive as GNU tar keeps them (`SCHILY.xattr.NAME`). Made by `python -m
tests.data.make_store`; an archive is never made anew, since what an old version wrote is the point.
"""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

from kvtool.store.layout import Layout

FOLDER = Path(__file__).parent
XATTR = "SCHILY.xattr."


def manifest(version: int) -> dict[str, dict[str, Any]]:
    """What each snapshot of that store must hold, by name: `size`, `sha256`, and its `labels`."""
    snapshots: dict[str, dict[str, Any]] = json.loads((FOLDER / f"store-{version}.json").read_text())
    return snapshots


def unpack(version: int, root: Path) -> Layout:
    """The store of that format, below `root`."""
    with tarfile.open(FOLDER / f"store-{version}.tar.xz") as archive:
        for member in archive:
            path = root / member.name
            if content := archive.extractfile(member):
                path.write_bytes(content.read())
            else:
                path.mkdir(parents=True)
            path.chmod(member.mode)
            for key, value in member.pax_headers.items():
                if key.startswith(XATTR):
                    os.setxattr(path, key.removeprefix(XATTR), value.encode())
    return Layout(root / "store", root / "stubs")
