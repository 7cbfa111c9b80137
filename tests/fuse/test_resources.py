"""What a mount takes: threads and memory."""

import os
import subprocess
import sys
from collections.abc import Callable

from tests import processes
from tests.mounts import MountedStore
from tests.synth import random_bytes

LIMIT = 60.0


def test_the_worker_has_a_thread_for_the_log_once_many_chunks_are_saved(
    mounts: Callable[..., MountedStore],
) -> None:
    mount = mounts("--chunk.min_size", "1KiB", "--chunk.avg_size", "4KiB", "--chunk.max_size", "16KiB")

    def threads() -> int:
        return len(os.listdir(f"/proc/{mount.json('status')['worker_pid']}/task"))

    (mount.dir / "small").write_bytes(b"x")
    assert threads() == 1
    (mount.dir / "large").write_bytes(random_bytes(6 << 20, 41))
    assert mount.json("status")["chunks"] > 500
    assert threads() == 2


def test_memory_stays_bounded_with_restores_and_saves_at_once(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--mount.cache", "32 MiB", "--mount.write_queue", "16 MiB", "--mount.read_ahead", "16 MiB")
    size = 48 << 20
    for name in "abcd":
        (mount.dir / name).write_bytes(random_bytes(size, ord(name)))
    mount.remount()
    script = "import sys\nfor path in sys.argv[1:]: print(len(open(path, 'rb').read()))"
    write = "import sys, os\nopen(sys.argv[1], 'wb').write(os.urandom(1 << 20) * 48)"
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(mount.dir / name)], stdout=subprocess.PIPE)
        for name in "abcd"
    ]
    started += [subprocess.Popen([sys.executable, "-c", write, str(mount.dir / name)]) for name in "xy"]
    family, most = mount.processes, 0
    try:
        while any(process.poll() is None for process in started):
            most = max(most, processes.memory(family))
    finally:
        for process in started:
            process.wait(LIMIT)
    assert [process.returncode for process in started] == [0] * 6
    assert most < (32 + 16 + 200) << 20
