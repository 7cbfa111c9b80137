"""Bad input to `kvtool mount`: one line with what to do, the right exit code, and nothing changed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli import Cli
from tests.mounts import MountedStore, connection_of, temporary_folder
from tests.stores import layout_in, listing, open_store, save

LIMIT = 60.0
KVTOOL = [sys.executable, "-m", "kvtool"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with an empty mountpoint, a store with a snapshot, and its stub tree."""
    with temporary_folder() as folder:
        (folder / "mnt").mkdir()
        with open_store(folder) as store:
            save(store, b"hello", "a")
        yield folder


def flags(root: Path, store: str = "store", stubs: str = "stubs") -> list[str]:
    return ["--store.path", str(root / store), "--store.stubs", str(root / stubs)]


def run(command: Sequence[str], root: Path) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVTOOL_")}
    environment = kept | {"XDG_CONFIG_HOME": str(root / "config")}
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


class Refused:
    """Commands that must fail with one line that says what to do, and change nothing; in JSON too."""

    def __init__(self, root: Path, cli: Cli) -> None:
        self.root = root
        self._cli = cli

    def __call__(self, arguments: Sequence[str], code: int, words: str, before: Sequence[str] = ()) -> None:
        """With `before` in a process that this command starts, else in this one, which is quicker."""
        seen = listing(self.root)
        returned, out, err = self._run(arguments, before)
        assert (returned, out, err.count("\n")) == (code, "", 1), err
        assert err.startswith("kvtool: error: ")
        assert words in err
        assert ";" in err, "it does not say what to do"
        returned, out, err = self._run([*arguments, "--json"], before)
        error = json.loads(out)["error"]
        assert (returned, error["exit"], err) == (code, code, "")
        assert words in f"{error['message']}; {error['hint']}"
        assert error["hint"]
        assert listing(self.root) == seen
        assert str(self.root) not in Path("/proc/self/mountinfo").read_text()

    def _run(self, arguments: Sequence[str], before: Sequence[str]) -> tuple[int, str, str]:
        if before:
            done = run([*before, *KVTOOL, *arguments], self.root)
            return done.returncode, done.stdout, done.stderr
        ended = self._cli(*arguments)
        return ended.returncode, ended.stdout.decode(), ended.stderr


@pytest.fixture
def refused(
    root: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(root, Cli(root, capsysbinary, monkeypatch))


def link(root: Path, target: str) -> str:
    (root / "link").symlink_to(target)
    return "link"


@pytest.mark.parametrize("how", [(), ("--background",)])
def test_a_name_in_an_error_is_escaped_once(root: Path, refused: Refused, how: tuple[str, ...]) -> None:
    arguments = ["mount", str(root / "a\nb"), *how, *flags(root)]
    _, _, err = refused._run(arguments, ())
    assert f"{root}/a\\nb" in err
    _, out, _ = refused._run([*arguments, "--json"], ())
    assert f"{root}/a\nb" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda root: "absent", "does not exist; make it"),
        (lambda root: "store/store.toml", "is not a directory"),
        (lambda root: ".", "overlap"),
        (lambda root: "store", "overlap"),
        (lambda root: "store/packs", "overlap"),
        (lambda root: "stubs", "overlap"),
        (lambda root: link(root, "store/incoming"), "overlap"),
        (lambda root: link(root, "stubs/.kvtool"), "overlap"),
        (lambda root: "full", "is not empty"),
    ],
)
def test_a_mountpoint_that_cannot_be_one(
    root: Path, refused: Refused, place: Callable[[Path], str], words: str
) -> None:
    (root / "full").mkdir()
    (root / "full" / "x").touch()
    refused(["mount", str(root / place(root)), *flags(root)], 2, words)


def test_a_new_store_inside_the_mountpoint_by_a_link(root: Path, refused: Refused) -> None:
    (root / "link").symlink_to("mnt")
    refused(["mount", str(root / "mnt"), *flags(root, "link/new", "link/new/stubs")], 2, "overlap")


def test_a_store_of_a_newer_format(root: Path, refused: Refused) -> None:
    path = root / "store" / "store.toml"
    path.write_text(path.read_text().replace("version = 1", "version = 2"))
    refused(["mount", str(root / "mnt"), *flags(root)], 10, "format 2")


def test_a_store_toml_that_is_damaged(root: Path, refused: Refused) -> None:
    (root / "store" / "store.toml").write_text("version = \0")
    refused(["mount", str(root / "mnt"), *flags(root)], 10, "not TOML")


def test_a_stub_tree_that_is_not_there(root: Path, refused: Refused) -> None:
    refused(["mount", str(root / "mnt"), *flags(root, stubs="unmounted")], 10, "is not there")


def test_the_stub_tree_of_another_store(root: Path, refused: Refused) -> None:
    (root / "other").mkdir()
    with open_store(root / "other"):
        pass
    refused(["mount", str(root / "mnt"), *flags(root, "other/store")], 10, "belongs to store")
    refused(["mount", str(root / "mnt"), *flags(root, "new/store")], 2, "belongs to another store")


@pytest.mark.parametrize(("store", "stubs"), [("full", "stubs2"), ("new", "full")])
def test_a_new_store_where_something_else_lies(root: Path, refused: Refused, store: str, stubs: str) -> None:
    (root / "full").mkdir()
    (root / "full" / "precious").touch()
    refused(["mount", str(root / "mnt"), *flags(root, store, stubs)], 2, "is not empty")


@pytest.mark.parametrize("store", ["mine", "mine/deeper"])
def test_a_store_path_that_is_a_file(root: Path, refused: Refused, store: str) -> None:
    (root / "mine").touch()
    refused(["mount", str(root / "mnt"), *flags(root, store)], 1, "Not a directory")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--mount.cache", "lots"], "mount.cache"),
        (["--mount.workers", "0"], "mount.workers"),
        (["--chunk.max_size", "1 KiB", "--store.path", "/tmp/absent"], "chunk.avg_size"),
        (["--store.path", "relative"], "store.path"),
        (["--store.durability", "eternal"], "store.durability"),
        (["--mount.nonsense", "1"], "mount.nonsense"),
        (["--config", "/nonexistent.toml"], "/nonexistent.toml"),
    ],
)
def test_a_wrong_setting(root: Path, refused: Refused, wrong: list[str], words: str) -> None:
    refused(["mount", str(root / "mnt"), *flags(root), *wrong], 2, words)


def test_no_mountpoint(root: Path, refused: Refused) -> None:
    refused(["mount", *flags(root)], 2, "MOUNTPOINT")


def test_without_a_fuse_device(root: Path, refused: Refused) -> None:
    script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"
    before = ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh"]
    refused(["mount", str(root / "mnt"), *flags(root)], 1, "/dev/fuse does not exist", before)


def test_with_a_fuse_device_that_is_none(root: Path, refused: Refused) -> None:
    before = ["unshare", "-m", "sh", "-c", 'mount --bind /dev/null /dev/fuse && exec "$@"', "sh"]
    new = flags(root, "new", "new/stubs")
    refused(["mount", str(root / "mnt"), *new], 1, "/dev/fuse is not the FUSE device", before)


@pytest.fixture
def nobody(root: Path) -> Path:
    """The same, where user 65534 may look; skipped where that user cannot run this interpreter."""
    if run([*NOBODY, *KVTOOL, "--version"], root).returncode:
        pytest.skip("user 65534 cannot run this interpreter")
    root.chmod(0o755)
    return root


def test_without_permission_for_fuse(nobody: Path, refused: Refused) -> None:
    if os.stat("/dev/fuse").st_mode & 0o006:
        pytest.skip("/dev/fuse is open to all")
    (nobody / "his").mkdir()
    os.chown(nobody / "his", 65534, 65534)
    refused(
        ["mount", str(nobody / "mnt"), *flags(nobody, "his/store", "his/stubs")],
        1,
        "no permission for /dev/fuse",
        NOBODY,
    )


@pytest.mark.parametrize("command", [["mount", "MNT"], ["inspect"], ["gc"], ["cat", "a"], ["status"]])
def test_a_store_that_another_user_may_not_read(nobody: Path, refused: Refused, command: list[str]) -> None:
    (nobody / "store").chmod(0o700)
    arguments = [str(nobody / "mnt") if word == "MNT" else word for word in command]
    refused([*arguments, *flags(nobody)], 1, "Permission denied", NOBODY)


def test_a_place_for_a_store_that_may_not_be_written(nobody: Path, refused: Refused) -> None:
    refused(["chunk", "/etc/hostname", *flags(nobody, "new", "new/stubs")], 1, "Permission denied", NOBODY)


def test_beside_a_mount(
    mount: MountedStore, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(mount.root, capsysbinary, monkeypatch, *mount.settings)
    other = mount.root / "other"
    other.mkdir()

    def fails(code: int, words: str, place: Path, *more: str) -> None:
        done = cli("mount", str(place), *more)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
        assert words in done.stderr
        done = cli("mount", str(place), *more, "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, done.stderr, error["exit"]) == (code, "", code)
        assert words in f"{error['message']}; {error['hint']}"

    connection = mount.connection
    fails(11, f"is in use by process {mount.pid}", other)
    fails(11, f"is in use by process {mount.pid}", other, "--background")
    fails(2, "is already at", mount.dir)
    (mount.root / "link").symlink_to("mnt")
    fails(2, "is already at", mount.root / "link")
    for command in (["chunk", "/etc/hostname"], ["chunk", "/etc/hostname", "--name", "x"]):
        done = cli(*command)
        assert done.returncode == 11
        assert f"in use by process {mount.pid}" in done.stderr
    assert mount.connection == connection
    assert connection_of(other) is None
    assert list(other.iterdir()) == []
    (mount.dir / "a").write_bytes(b"still serves")


def test_a_mount_inside_a_mount(mounts: Callable[..., MountedStore]) -> None:
    outer = mounts()
    (outer.dir / "inner").mkdir()
    with temporary_folder() as root:
        done = run([*KVTOOL, "umount", str(outer.dir / "inner"), *flags(root)], root)
        assert done.returncode == 2
        assert "no kvtool mount is at" in done.stderr
        layout = layout_in(root)
        assert not layout.root.exists()
