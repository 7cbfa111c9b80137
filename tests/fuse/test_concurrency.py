"""Many processes at once on a real mount, collections running meanwhile: in the end every file is whole."""

import subprocess
import sys
from collections.abc import Callable

from tests.fuse.hammer import is_whole
from tests.mounts import MountedStore
from tests.property.check import check_collected, check_store
from tests.property.draws import CHUNK_FLAGS

PROCESSES, OPERATIONS = 6, 100


def test_many_processes_save_restore_rename_and_unlink_the_same_names(
    mounts: Callable[..., MountedStore],
) -> None:
    mount = mounts(*CHUNK_FLAGS, limit=200)
    command = [sys.executable, "-m", "tests.fuse.hammer", str(mount.dir)]
    running = [
        subprocess.Popen([*command, str(n), str(OPERATIONS)], stderr=subprocess.PIPE, text=True)
        for n in range(PROCESSES)
    ]
    while any(process.poll() is None for process in running):
        mount.kvtool("gc")
    errors = [process.communicate()[1] for process in running]
    assert not any(errors), "\n".join(errors)
    files = {path.name: path.read_bytes() for path in mount.dir.iterdir()}
    assert files
    assert [name for name, data in files.items() if not is_whole(data)] == []
    before = check_store(mount.store, mount.stubs)
    assert before == {name.encode(): data for name, data in files.items()}
    mount.kvtool("gc")
    check_collected(mount.store, mount.stubs, before)
    mount.remount()
    assert {path.name: path.read_bytes() for path in mount.dir.iterdir()} == files
