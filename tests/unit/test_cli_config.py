"""`kvtool config` and what all subcommands share, as a user meets them: processes and exit codes."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvtool.store.format import StoreFormat, dump
from tests import schemas

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run kvtool with a home of its own. Keyword arguments: `env` to add; `code`, the exit code to expect."""

    def run(*argv: str | bytes, env: dict[str, str] | None = None, code: int = 0) -> Any:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("KVTOOL_", "XDG_"))
        }
        done = subprocess.run(
            [sys.executable, "-m", "kvtool", *argv],
            env={**clean, "HOME": str(tmp_path), **(env or {})},
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr or code == 1
        if "--json" in argv and done.stdout:
            schemas.check([os.fsdecode(word) for word in argv], json.loads(done.stdout))
        return done

    return run


def error_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"code", "message", "hint", "exit"}
    assert error["exit"] == done.returncode
    return error  # type: ignore[no-any-return]


def test_the_toml_fed_back_gives_the_same_settings(run: Run, tmp_path: Path) -> None:
    flags = [
        *("--store.path", '/srv/a "b"\n', "--store.gc_interval", "1h 0.25s", "--mount.cache", "268435457"),
        *("--mount.workers=3", "--mount.allow_other", "--log.level", "debug"),
    ]
    first = run("config", *flags).stdout
    assert tomllib.loads(first.decode())["mount"]["cache"] == "268435457 B"
    (tmp_path / "fed.toml").write_bytes(first)
    again = run("config", "--config", str(tmp_path / "fed.toml"))
    assert again.stdout == first
    values = json.loads(run("config", "--json", "--config", str(tmp_path / "fed.toml")).stdout)
    assert values["mount"] == {
        "read_ahead": 32 << 20,
        "workers": 3,
        "cache": 268435457,
        "write_queue": 64 << 20,
        "kernel_read_ahead": 2 << 20,
        "allow_other": True,
    }
    assert values["store"]["gc_interval"] == 3600.25


def test_changed_hides_defaults(run: Run) -> None:
    assert run("config", "--changed").stdout.strip() == b""
    done = run("config", "--changed", env={"KVTOOL_LOG__LEVEL": "error"})
    assert tomllib.loads(done.stdout.decode()) == {"log": {"level": "error"}}


def test_the_layers_in_a_real_process(run: Run, tmp_path: Path) -> None:
    config = tmp_path / ".config/kvtool/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[mount]\nworkers = 3\ncache = '512 MiB'\n")
    (tmp_path / "other.toml").write_text("mount.workers = 4\n")
    done = run(
        *(
            "config",
            "--explain",
            "--json",
            "--config",
            str(tmp_path / "other.toml"),
            "--mount.read_ahead",
            "1M",
        ),
        env={"KVTOOL_MOUNT__CACHE": "300M", "KVTOOL_LOG__LEVLE": "x"},
    )
    data = json.loads(done.stdout)
    rows = {row["key"]: (row["value"], row["layer"], row["where"]) for row in data["settings"]}
    assert rows["mount.workers"] == (4, "file", f"{tmp_path}/other.toml:1")
    assert rows["mount.cache"] == (300 << 20, "env", "KVTOOL_MOUNT__CACHE")
    assert rows["mount.read_ahead"] == (1 << 20, "flag", "--mount.read_ahead")
    assert data["warnings"] == ["KVTOOL_LOG__LEVLE is not a setting (did you mean KVTOOL_LOG__LEVEL?)"]
    assert [file["state"] for file in data["files"]][1:] == ["read", "read", "not found"]
    plain = run("config", env={"KVTOOL_LOG__LEVLE": "x"})
    assert plain.stderr.decode().startswith("warning: KVTOOL_LOG__LEVLE is not a setting (did you mean")
    assert plain.stderr.count(b"warning") == 1


def test_the_store_outranks_the_rest(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "kv"
    store.mkdir()
    fmt = StoreFormat(store_id="a" * 32, min_size=4096, avg_size=16384, max_size=65536)
    (store / "store.toml").write_text(dump(fmt))
    place = ("--store.path", str(store))
    page = json.loads(run("config", "--explain", "chunk.avg_size", "--json", *place).stdout)
    assert (page["value"], page["layer"], page["where"]) == (16384, "store", f"{store}/store.toml:8")
    done = run("config", *place, "--chunk.avg_size", "64 KiB", code=2)
    assert b"64 KiB (flag --chunk.avg_size) is not what the store has, 16 KiB (store " in done.stderr
    assert run("config", *place, "--chunk.avg_size", "16 KiB").stdout
    (store / "store.toml").write_text("version = 2\n")
    error = error_of(run("config", "--json", *place, code=10))
    assert (error["code"], error["hint"]) == ("store_format", "upgrade kvtool")


def test_wrong_settings_are_a_line_each_and_exit_2(run: Run, tmp_path: Path) -> None:
    done = run("config", "--mount.workers", "0", env={"KVTOOL_LOG__LEVEL": "loud"}, code=2)
    assert done.stdout == b""
    first, workers, level, hint = done.stderr.decode().splitlines()
    assert first == "kvtool: error: 2 settings are wrong:"
    assert "(flag --mount.workers)" in workers
    assert "(env KVTOOL_LOG__LEVEL)" in level
    assert "config --explain" in hint
    one = run("config", "--config", str(tmp_path / "absent"), code=2)
    assert len(one.stderr.splitlines()) == 1
    assert error_of(run("config", "--json", "--mount.workers", "0", code=2))["code"] == "settings"


def test_explain_shows_a_wrong_value_in_its_row(run: Run) -> None:
    done = run("config", "--explain", "--mount.workers", "0", code=2)
    assert b"\n! mount.workers " in done.stdout
    assert b"\nerror: mount.workers: '0'" in done.stdout
    assert run("config", "--explain", "mount.workers", "--mount.workers", "0", code=2).stdout
    assert run("config", "--explain", "mount.cache", "--mount.workers", "0").stdout


def test_explain_of_an_unknown_key(run: Run) -> None:
    done = run("config", "--explain", "mount.worker", code=2)
    assert done.stderr == b"kvtool: error: 'mount.worker' is not a setting; did you mean mount.workers?\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the command is missing"),
        (["confg"], "'confg' is not a command; did you mean config?"),
        (["--x", "config"], "arguments stand after the command: kvtool config ..."),
        (["config", "--explian"], "unrecognized arguments: --explian"),
        (["config", "--mount.workers"], "argument --mount.workers: expected one argument"),
        (["config", "a\nb\x1b"], "unrecognized arguments: a\\nb\\x1b"),
    ],
)
def test_usage_errors(run: Run, argv: list[str], message: str) -> None:
    done = run(*argv, code=2)
    assert done.stdout == b""
    assert done.stderr.decode().startswith(f"kvtool: error: {message}")
    assert len(done.stderr.splitlines()) == 1
    if argv[:1] == ["config"]:
        assert error_of(run("config", "--json", *argv[1:], code=2))["code"] == "usage"


def test_a_bool_flag_takes_true_false_or_nothing(run: Run) -> None:
    for flags, value in (
        (["--mount.allow_other"], True),
        (["--mount.allow_other", "--changed"], True),
        (["--mount.allow_other", "false"], False),
        (["--mount.allow_other=true"], True),
    ):
        row = json.loads(run("config", "--explain", "mount.allow_other", "--json", *flags).stdout)
        assert (row["value"], row["layer"]) == (value, "flag")
    # The next argument is not its value.
    assert b"unrecognized arguments: /mnt" in run("config", "--mount.allow_other", "/mnt", code=2).stderr


def test_help_imports_no_other_subcommand_and_nothing_heavy(run: Run) -> None:
    text = run("--help").stdout.decode()
    assert all(
        f"  {name} " in text
        for name in ("mount", "umount", "status", "inspect", "cat", "chunk", "gc", "config")
    )
    text = run("config", "--help").stdout.decode()
    assert "KVTOOL_MOUNT__READ_AHEAD" in text
    assert "--store.durability process|power" in text
    heavy = {"rich", "trio", "pyfuse3", "sqlite3", "fastcdc", "asyncio"}
    for argv in (["--help"], ["config", "--help"]):
        code = (
            f"import sys; sys.argv = ['kvtool', *{argv}]\n"
            "from kvtool.cli.main import entry\n"
            "try: entry()\n"
            "except SystemExit: pass\n"
            "print(sorted(sys.modules), file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        loaded = set(eval(done.stderr))  # noqa: S307
        assert not loaded & heavy
        assert ("kvtool.cli.config" in loaded) == (argv[0] == "config")
        assert not loaded & {
            f"kvtool.cli.{name}" for name in ("mount", "umount", "status", "inspect", "cat", "gc")
        }


def test_version(run: Run) -> None:
    assert run("--version").stdout.startswith(b"kvtool 0.")


@pytest.mark.parametrize("env", [{}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_any_bytes_in_a_name_are_printed(run: Run, env: dict[str, str]) -> None:
    done = run("config", "--store.path", b"/srv/\xff", env=env)
    assert b'path = "/srv/\xff"\n' in done.stdout
    assert json.loads(run("config", "--json", "--store.path", b"/srv/\xff", env=env).stdout)["store"]
    run("config", "--explain", b"\xff", env=env, code=2)
    run("config", "--log.level", "é\udcff".encode(errors="surrogateescape"), env=env, code=2)
    run("config", "--explain", "--store.path", "/srv/é", env=env)


@pytest.mark.parametrize("argv", [["config"], ["--help"], ["config", "--json", "--x"]])
def test_a_closed_pipe_is_no_traceback(argv: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "kvtool", *argv], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert done.stderr == b""
    # With PYTHONUNBUFFERED it is argparse that meets the error of the help, and it keeps silent.
    assert done.returncode == 1 or argv == ["--help"]


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        ("KeyboardInterrupt()", 130, "interrupted"),
        ("OSError(2, 'No such file', b'/a/\\xff')", 1, "/a/\\udcff: No such file"),
        ("OSError('odd')", 1, "odd"),
        (
            "ValueError('x\\ny')",
            1,
            "internal error: ValueError: x\\ny; run it again with `--log.level debug`",
        ),
        ("StoreLocked('/srv/kv is locked', hint='unmount it')", 11, "/srv/kv is locked; unmount it"),
    ],
)
def test_what_a_subcommand_raises(raised: str, code: int, message: str) -> None:
    script = (
        "import sys; from kvtool.errors import *; from kvtool.cli import config, main\n"
        f"def run(call): raise {raised}\n"
        "config.run = run; sys.exit(main.entry())"
    )

    def call(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, "config", *flags], capture_output=True, text=True, check=False
        )

    plain = call()
    assert (plain.returncode, plain.stdout) == (code, "")
    assert plain.stderr.startswith(f"kvtool: error: {message}")
    assert len(plain.stderr.splitlines()) == 1
    assert json.loads(call("--json").stdout)["error"]["exit"] == code
    assert ("Traceback" in call("--log.level", "debug").stderr) == ("internal" in message)


def test_control_c_is_130() -> None:
    script = (
        "import os, signal, sys; from kvtool.cli import config, main\n"
        "config.run = lambda call: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(main.entry())"
    )
    done = subprocess.run([sys.executable, "-c", script, "config"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"kvtool: error: interrupted\n")


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("kvtool.cli.main", -signal.SIGINT, b""),
        ("pydantic", -signal.SIGINT, b""),
        ("kvtool.store.control", 130, b"kvtool: error: interrupted\n"),  # by then the command runs
    ],
)
def test_control_c_while_modules_are_imported_is_no_traceback(module: str, code: int, said: bytes) -> None:
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        name == {module!r} and os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from kvtool.__main__ import main\n"
        "sys.exit(main())"
    )
    command = [sys.executable, "-c", script, "status"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", said)
