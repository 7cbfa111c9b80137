"""What a terminal sees: progress, colours, output that cannot be written, Ctrl-C; and what start-up loads."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvtool.cli import gc, storing
from kvtool.cli.progress import Bar
from kvtool.core.text import printable
from kvtool.core.units import format_size
from kvtool.errors import KvtoolError
from kvtool.store import child, control
from kvtool.store.layout import Layout
from kvtool.store.watch import Watch
from tests.cli import Cli
from tests.stores import flags_of, layout_in, listing, open_store, pack_paths, save
from tests.synth import random_bytes

DATA = random_bytes(1 << 20)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with two snapshots, of which one was deleted."""
    with open_store(tmp_path) as store:
        save(store, DATA[:20_000], "a\n")
        save(store, random_bytes(5000, 2), "gone")
    layout = layout_in(tmp_path)
    (layout.stubs / "gone").unlink()
    (tmp_path / "file").write_bytes(DATA)
    return layout


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same in a terminal that has colours."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return cli


class Terminal:
    """A terminal in the place of a standard stream; made by the test, before which pytest captures anew."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str) -> None:
        self._master, slave = os.openpty()
        self._stream = os.fdopen(slave, "w")
        patch.setattr(sys, name, self._stream)

    def read(self) -> str:
        """All that was written since the last time."""
        self._stream.write("\0")
        self._stream.flush()
        seen = b""
        while not seen.endswith(b"\0"):
            seen += os.read(self._master, 1 << 16)
        return seen[:-1].decode()


def commands(tmp_path: Path) -> list[list[str]]:
    return [
        ["chunk", str(tmp_path / "file"), "--dry-run"],
        ["chunk", str(tmp_path / "file"), "--name", "b"],
        ["cat", "b", "--output", str(tmp_path / "out")],
        ["cat", "b"],
        ["export", "b", "--to", str(tmp_path / "to")],
        ["import", str(tmp_path / "to" / "b.caibx")],
        ["verify"],
        ["fsck"],
        ["gc", "--dry-run"],
        ["gc"],
    ]


def test_long_work_shows_its_progress_on_a_terminal(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = Terminal(monkeypatch, "stderr")
    for arguments in commands(tmp_path):
        assert cli(*arguments).returncode == 0
        seen = errors.read()
        label = "b" if arguments[0] in {"chunk", "cat", "export", "import"} else arguments[0]
        if "--dry-run" in arguments and arguments[0] == "chunk":
            label = "file"
        assert seen.startswith(f"\r\x1b[K{label}"), arguments
        assert seen.endswith("\r\x1b[K"), arguments
        assert "\n" not in seen


def test_no_progress_where_nobody_wants_it(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = Terminal(monkeypatch, "stderr")
    for more in ("--json", "--quiet"):
        for arguments in commands(tmp_path):
            assert cli(*arguments, more).returncode == 0
            assert errors.read() == ""


def test_a_terminal_that_cannot_clear_a_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = Terminal(monkeypatch, "stderr")
    monkeypatch.setenv("TERM", "dumb")
    cli("verify")
    assert errors.read() == ""


def test_no_progress_without_a_terminal(cli: Cli, tmp_path: Path) -> None:
    for arguments in commands(tmp_path):
        assert cli(*arguments).stderr == ""


def test_the_progress_of_a_collection_in_a_mount_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [(0, 0), (3, 0), (3, 2), (3, 3)]
    told: list[tuple[str, int]] = []
    asked_all = threading.Event()

    def ask(_layout: object, command: str) -> dict[str, int]:
        assert command == "collection"
        if not stages:
            asked_all.set()
            raise KvtoolError("the mount has ended")
        to_write, written = stages.pop(0)
        return {"packs_to_write": to_write, "packs_written": written}

    monkeypatch.setattr(control, "ask", ask)
    monkeypatch.setattr(gc, "_PAUSE", 0)
    watch = Watch(lambda total: told.append(("begin", total)), lambda more: told.append(("done", more)))
    with gc._followed(Layout(Path("/none"), Path("/none")), watch):
        assert asked_all.wait(10)
    assert [each for each in told if each[1]] == [("begin", 3), ("done", 2), ("done", 1)]


def test_the_line_tells_share_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    Terminal(monkeypatch, "stderr")
    bar = Bar(sys.stderr, "verify", 3 << 30, format_size)
    assert bar.text(0.0) == "verify  0%"
    bar.done(1 << 30)
    assert bar.text(4.0) == "verify  33%  1 GiB of 3 GiB  256 MiB/s  8s left"
    bar.done(5 << 30)  # more than was said: a mount has saved meanwhile
    assert bar.text(6.0) == "verify  100%  6 GiB of 3 GiB  1 GiB/s  0s left"
    bar.begin(0)
    bar.done(7 << 20)
    assert bar.text(1.0) == "verify  7 MiB  7 MiB/s"


def test_colours_on_a_terminal_alone(cli: Cli, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = Terminal(monkeypatch, "stderr")
    cli("cat", "absent")
    assert errors.read().startswith("\x1b[1;31mkvtool: error:\x1b[0m there is no snapshot 'absent'")
    (layout.root / "note").touch()
    assert b"\x1b" not in cli("fsck").stdout
    output = Terminal(monkeypatch, "stdout")
    cli("fsck")
    assert "\x1b[2minfo\x1b[0m foreign" in output.read()
    cli("inspect")
    assert output.read().startswith("\x1b[1mNAME")
    errors.read()
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            cli("inspect")
            cli("fsck", "--quiet")
            cli("cat", "absent")
            assert "\x1b[" not in output.read()
            assert errors.read().startswith("kvtool: error: ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["verify", "--json"],
        ["fsck"],
        ["inspect"],
        ["cat", "a\n"],
        ["completion", "bash"],
        ["cat", "absent", "--json"],
        ["--help"],
    ],
)
def test_output_that_cannot_be_written(layout: Layout, arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "kvtool",
                *arguments,
                *(flags_of(layout) if arguments != ["--help"] else []),
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=dict(os.environ) | {"PYTHONUNBUFFERED": unbuffered},
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "kvtool: error: standard output: No space left on device;"
        " the output could not be written: send it elsewhere and run the command again\n"
    )


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_errors_that_cannot_be_written_go_nowhere(layout: Layout, closed: str) -> None:
    command = f'"$0" -m kvtool cat absent "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, *flags_of(layout)],
        stdout=subprocess.PIPE,
        check=False,
        # With a buffer the interpreter tries once more at its end.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, b"")


def test_control_c_leaves_no_half_work(
    cli: Cli, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def interrupted(*_: object, **__: object) -> Iterator[Watch]:
        def stop(_count: int) -> None:
            raise KeyboardInterrupt

        yield Watch(done=stop)

    output = tmp_path / "out"
    output.write_text("precious")
    before = listing(layout.packs, layout.stubs, layout.incoming)
    monkeypatch.setattr(storing, "progress", interrupted)
    monkeypatch.setattr("kvtool.cli.cat.progress", interrupted)
    for arguments in (["chunk", str(tmp_path / "file")], ["cat", "a\n", "--output", str(output)]):
        done = cli(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", "kvtool: error: interrupted\n")
        assert json.loads(cli(*arguments, "--json").stdout)["error"]["exit"] == 130
        assert listing(layout.packs, layout.stubs, layout.incoming) == before
    assert output.read_text() == "precious"
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]
    assert not list(tmp_path.glob("*.part"))
    monkeypatch.setattr("kvtool.cli.gc.progress", interrupted)
    assert cli("gc").returncode == 130
    assert len(pack_paths(layout)) == 1
    monkeypatch.undo()
    cli = Cli(tmp_path, cli._capture, monkeypatch, *flags_of(layout))
    assert cli("fsck").stdout.endswith(b": clean\n")
    assert cli("cat", "a\n").stdout == DATA[:20_000]


def test_a_file_is_written_under_the_longest_name_and_named_when_its_disk_is_full(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / ("n" * 255)
    assert cli("cat", "a\n", "--output", str(output)).returncode == 0
    assert output.read_bytes() == DATA[:20_000]

    def full(_source: object, _target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("kvtool.cli.cat.os.replace", full)
    done = cli("cat", "a\n", "--output", str(output))
    assert done.stderr.startswith(f"kvtool: error: {output}: No space left on device; ")
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("arguments", [["inspect"], ["label", "a\n"], ["--help"], ["inspect", "--help"]])
def test_start_up_loads_nothing_heavy(layout: Layout, arguments: list[str]) -> None:
    argv = ["kvtool", *arguments, *(flags_of(layout) if "--help" not in arguments else [])]
    script = (
        f"import sys; sys.argv = {argv!r}\n"
        "from kvtool.cli.main import entry\n"
        "try: entry()\n"
        "except SystemExit: pass\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    loaded = set(eval(done.stderr))  # noqa: S307
    heavy = {
        "pydantic_settings",
        "trio",
        "pyfuse3",
        "sqlite3",
        "fastcdc",
        "asyncio",
        "click",
        "xxhash",
        "rich",
    }
    assert not loaded & heavy
    assert arguments != ["--help"] or "pydantic" not in loaded


def test_a_log_record_is_one_line_whatever_the_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.Logger("own")  # noqa: LOG001  (in the place of the real root)
    monkeypatch.setattr(logging, "root", root)
    child.log_to_stderr()
    root.error("saving /%s failed: %s", "ne\nw \udcff", "no space")
    assert capsys.readouterr().err == "kvtool: ERROR saving /ne\\nw \\udcff failed: no space\n"


def test_no_two_texts_look_alike() -> None:
    texts = [
        "a",
        "\\",
        "\\\\",
        "\n",
        "\\n",
        "\udcff",
        "\\udcff",
        "ÿ",
        "\x85",
        "\\x85",
        "\u202e",
        "é",
        "\x1b[0m",
    ]
    shown = [printable(text) for text in texts]
    assert len(set(shown)) == len(texts)
    assert all(text.isprintable() and text.encode() for text in shown)


def test_a_working_directory_that_is_gone_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = cli("config", "--config", "x.toml")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "the working directory is gone" in done.stderr
