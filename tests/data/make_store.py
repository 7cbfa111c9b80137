"""`python -m tests.data.make_store`: a small store of today's format as test data, beside what it must hold.

Refuses to replace one that is there: what an old version wrote cannot be made again.
"""

import hashlib
import json
import os
import sys
import tarfile
from pathlib import Path

from kvtool.store.format import VERSION
from tests.data import FOLDER, XATTR
from tests.mounts import MountedStore, temporary_folder
from tests.stores import flip
from tests.synth import random_bytes

_CHUNKS = ("--chunk.min_size", "1024", "--chunk.avg_size", "4096", "--chunk.max_size", "16384")
_LEFT_OUT = {"control.sock", "mount.log"}


def fill(mount: MountedStore) -> None:
    """Snapshots that share, in folders, with labels, uses and appends, and what a deletion leaves."""
    folder = mount.dir
    first = random_bytes(60_000, seed=1)
    (folder / "first.bin").write_bytes(first)
    (folder / "next-turn.bin.tmp").write_bytes(first[:20_000] + random_bytes(9_000, seed=2) + first[20_000:])
    (folder / "next-turn.bin.tmp").rename(folder / "next-turn.bin")
    (folder / "chats" / "old ones").mkdir(parents=True)
    (folder / "chats" / "old ones" / "été.bin").write_bytes(random_bytes(11_000, seed=3))
    (folder / "empty").touch()
    (folder / "short.txt").write_bytes(b"less than a chunk\n")
    (folder / "log.bin").write_bytes(random_bytes(7_000, seed=4))
    with (folder / "log.bin").open("ab") as file:
        file.write(random_bytes(8_000, seed=5))
    os.setxattr(folder / "first.bin", "user.kvtool.label.project", b"demo")
    os.setxattr(folder / "chats" / "old ones" / "été.bin", "user.kvtool.label.keep", b"yes")
    os.chmod(folder / "short.txt", 0o640)
    (folder / "deleted.bin").write_bytes(random_bytes(6_000, seed=6))
    (folder / "deleted.bin").unlink()
    mount.remount()
    (folder / "next-turn.bin").read_bytes()


def contents(folder: Path) -> dict[str, dict[str, object]]:
    """What every file of the mount holds."""
    return {
        str(path.relative_to(folder)): {
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "labels": {
                name.removeprefix("user.kvtool.label."): os.getxattr(path, name).decode()
                for name in os.listxattr(path)
            },
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def pack_up(root: Path, archive_path: Path) -> None:
    """Store and stub tree in one archive, with extended attributes."""
    with tarfile.open(archive_path, "x:xz", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted([root / "store", root / "stubs", *root.glob("st*/**/*")]):
            if path.name in _LEFT_OUT:
                continue
            member = archive.gettarinfo(path, str(path.relative_to(root)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            names = os.listxattr(path, follow_symlinks=False)
            member.pax_headers = {XATTR + name: os.getxattr(path, name).decode() for name in names}
            if path.is_file():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)


def main() -> int:
    archive = FOLDER / f"store-{VERSION}.tar.xz"
    if archive.exists():
        print(f"{archive} is there already", file=sys.stderr)
        return 1
    with temporary_folder() as root, MountedStore(root, "--store.gc_interval", "0", *_CHUNKS) as mount:
        fill(mount)
        held = contents(mount.dir)
        mount.umount()
        # A pack whose header was damaged and mended: the old one lies in quarantine/.
        smallest = min(mount.store.rglob("*.pack"), key=lambda path: path.stat().st_size)
        flip(smallest, 2)
        mount.kvtool("fsck", "--repair")
        pack_up(root, archive)
    archive.with_suffix("").with_suffix(".json").write_text(
        json.dumps(held, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )
    print(f"{archive}: {archive.stat().st_size} bytes, {len(held)} snapshots")
    return 0


if __name__ == "__main__":
    sys.exit(main())
