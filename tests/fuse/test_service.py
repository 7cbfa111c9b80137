"""A mount run by and for others: in other mount namespaces, as containers are, and by an ordinary user."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounts import MountedStore, temporary_folder

LIMIT = 60.0
# May read the interpreter wherever it lies, and is an ordinary user in all else.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
NOBODY += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
# Reads lines "PATH" and answers each with what is in that file, or why it cannot be read.
READER = """
import sys
for line in sys.stdin:
    try:
        print(open(line.rstrip("\\n")).read(), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder whose mounts reach other namespaces, as every folder's do where systemd runs."""
    with temporary_folder() as folder:
        subprocess.run(["mount", "--bind", folder, folder], check=True, timeout=LIMIT)
        try:
            subprocess.run(["mount", "--make-shared", folder], check=True, timeout=LIMIT)
            yield folder
        finally:
            subprocess.run(["umount", "--recursive", folder], check=True, timeout=LIMIT)


class Container:
    """A process in a mount namespace of its own, with `source` bound to `target` in this propagation."""

    def __init__(self, source: Path, target: Path, propagation: str) -> None:
        target.mkdir()
        script = f'mount --rbind "$1" "$2" && mount --make-{propagation} "$2" && exec "$3" -c "$4"'
        self._process = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--propagation=slave",
                "sh",
                "-c",
                script,
                "sh",
                source,
                target,
                sys.executable,
                READER,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._target = target

    def read(self, name: str) -> str:
        """What the process reads."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{self._target / name}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=LIMIT)


def test_a_restarted_mount_is_seen_through_its_parent_alone(parent: Path) -> None:
    with temporary_folder() as outside, MountedStore(parent) as mount:
        (mount.dir / "a").write_text("hello")
        slave = Container(parent, outside / "slave", "rslave")
        private = Container(parent, outside / "private", "rprivate")
        itself = Container(mount.dir, outside / "itself", "rslave")
        try:
            assert slave.read("mnt/a") == private.read("mnt/a") == itself.read("a") == "hello"
            for end in (mount.umount, mount.kill):
                end()
                mount.start()
                (mount.dir / "a").write_text("again")
                assert slave.read("mnt/a") == "again"
                for stale in (private.read("mnt/a"), itself.read("a")):
                    assert stale == "Transport endpoint is not connected"
        finally:
            for each in (slave, private, itself):
                each.end()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of user 65534 with a mountpoint."""
    with temporary_folder() as folder:
        (folder / "mnt").mkdir()
        for place in (folder, folder / "mnt"):
            os.chown(place, 65534, 65534)
        yield folder


def as_nobody(home: Path, script: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Runs a script where `kvtool` is the program, with a /dev/fuse that is open to all, as it mostly is."""
    device = 'mount -t tmpfs none "$HOME/dev" && mknod -m 666 "$HOME/dev/fuse" c 10 229'
    before = f'mkdir -p "$HOME/dev" && {device} && mount --bind "$HOME/dev/fuse" /dev/fuse && exec "$@"'
    kvtool = f'kvtool() {{ {sys.executable} -m kvtool "$@"; }}; set -e; cd "$HOME"; '
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        before,
        "sh",
        *NOBODY,
        "bash",
        "-c",
        kvtool + script,
        "bash",
        *flags,
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KVTOOL_", "XDG_"))}
    return subprocess.run(
        command,
        env=kept | {"HOME": str(home), "KVTOOL_STORE__PATH": str(home / "store")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


def test_an_ordinary_user_mounts_saves_reads_and_unmounts(home: Path) -> None:
    script = """
        kvtool mount mnt --background >/dev/null
        trap 'kvtool umount mnt >/dev/null' EXIT
        grep -c "$HOME/mnt .*user_id=65534" /proc/self/mountinfo
        echo hello > mnt/a && cat mnt/a && stat -c %U mnt/a
        kvtool umount mnt >/dev/null
        kvtool mount mnt --background >/dev/null
        cat mnt/a
    """
    done = as_nobody(home, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\nhello\nnobody\nhello\n", "")


def test_an_ordinary_user_who_may_not_let_others_in(home: Path) -> None:
    if "\nuser_allow_other" in Path("/etc/fuse.conf").read_text():
        pytest.skip("here everybody may")
    done = as_nobody(home, "kvtool mount mnt --mount.allow_other")
    assert done.returncode == 2
    assert (
        "mount.allow_other: /etc/fuse.conf does not have the line user_allow_other"
        in done.stderr.splitlines()[-1]
    )
    done = as_nobody(home, "kvtool mount mnt --mount.allow_other --background --json")
    assert "echo user_allow_other >> /etc/fuse.conf" in json.loads(done.stdout)["error"]["message"]
