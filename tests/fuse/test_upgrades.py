"""A mount serves a store that the first format's version left, and takes over its chunks."""

import hashlib
import os

from tests import data
from tests.mounts import MountedStore, temporary_folder


def test_a_mount_serves_a_store_of_the_first_format() -> None:
    with temporary_folder() as folder:
        data.unpack(1, folder)
        with MountedStore(folder, "--store.gc_interval", "0") as mount:
            for name, held in data.manifest(1).items():
                path = mount.dir / name
                assert hashlib.sha256(path.read_bytes()).hexdigest() == held["sha256"], name
                for label, value in held["labels"].items():
                    assert os.getxattr(path, f"user.kvtool.label.{label}") == value.encode()
            before = mount.pack_bytes
            (mount.dir / "again.bin").write_bytes((mount.dir / "next-turn.bin").read_bytes())
            assert mount.pack_bytes == before
            mount.kvtool("gc")
            assert mount.pack_bytes < before
            mount.umount()
            mount.kvtool("verify")
            mount.kvtool("fsck")
