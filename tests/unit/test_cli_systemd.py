"""`kvtool config --systemd`: units that start what they say, and hide the mount from nobody."""

import configparser
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtool.cli.main import parse
from tests.cli import Cli

# None gives the unit mounts of its own, which nobody else would see: systemd.exec(5) at PrivateMounts=.
HARMLESS = {
    "CapabilityBoundingSet",
    "DeviceAllow",
    "DevicePolicy",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "NoNewPrivileges",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "SystemCallArchitectures",
    "SystemCallErrorNumber",
    "SystemCallFilter",
    "UMask",
}
RUNNING = {
    *("Type", "ExecStartPre", "ExecStart", "ExecStop", "KillMode", "WatchdogSec", "StateDirectory"),
    *("Restart", "RestartSec", "RestartPreventExitStatus", "TimeoutStartSec", "TimeoutStopSec"),
    *("StateDirectoryMode", "RuntimeDirectory", "RuntimeDirectoryPreserve"),
}


@pytest.fixture
def cli(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(tmp_path, capsysbinary, monkeypatch)


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Has what follows run as a user, or as root."""
    return lambda is_user: monkeypatch.setattr(os, "geteuid", lambda: 1000 if is_user else 0)


def service(text: str) -> dict[str, str]:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(text)
    return dict(unit["Service"])


def words(line: str) -> list[str]:
    """A command line as systemd takes it apart, with the folders of the system."""
    line = (
        line.lstrip("-:")
        .replace("%t", "/run")
        .replace("%S", "/var/lib")
        .replace("%N", "kvtool")
        .replace("%%", "%")
    )
    return shlex.split(line)


@pytest.mark.parametrize("user", [False, True])
def test_the_unit_starts_and_stops_what_the_parser_takes(
    cli: Cli, as_user: Callable[[bool], None], user: bool
) -> None:
    as_user(user)
    flags = ["--mount.cache", "128 MiB", "--mount.allow_other", "--score.expression", "age * 100 % 7"]
    section = service(cli("config", "--systemd", "-", *flags).stdout.decode())
    assert (section["Type"], section["Restart"], section["WatchdogSec"]) == ("notify", "on-failure", "2min")
    assert section["ExecStart"].startswith(":")
    assert section["ExecStop"].startswith("-:")
    name, call = parse(words(section["ExecStart"])[3:])
    assert (name, call.args.mountpoint, call.args.background) == ("mount", "/run/kvtool/mnt", False)
    assert call.resolved.values["mount.cache"] == 128 << 20
    assert call.resolved.values["mount.allow_other"] is True
    assert call.resolved.values["score.expression"] == "age * 100 % 7"
    assert call.flags.get("store.path") == (None if user else "/var/lib/kvtool")
    name, call = parse(words(section["ExecStop"])[3:])
    assert (name, call.args.mountpoint) == ("umount", "/run/kvtool/mnt")


def test_the_units_have_no_mounts_of_their_own(cli: Cli, as_user: Callable[[bool], None]) -> None:
    as_user(False)
    section = service(cli("config", "--systemd", "-").stdout.decode())
    assert set(section) - RUNNING == HARMLESS
    assert "@mount" in section["SystemCallFilter"].split()
    assert "CAP_SYS_ADMIN" in section["CapabilityBoundingSet"].split()
    as_user(True)
    assert set(service(cli("config", "--systemd", "-").stdout.decode())) - RUNNING == {"UMask"}


def test_what_systemd_says_of_the_unit(cli: Cli, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    odd = tmp_path / 'a b%n"$x'
    path = tmp_path / "kvtool.service"
    assert cli("config", "--systemd", str(path), "--store.path", str(odd)).returncode == 0
    done = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False, timeout=60
    )
    # Elsewhere it may speak of units of the machine's own.
    assert [line for line in done.stderr.splitlines() if "kvtool" in line] == []
    assert words(service(path.read_text())["ExecStart"])[-1] == str(odd)


def test_a_store_that_a_file_names_is_left_to_the_file(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config" / "kvtool" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[store]\npath = '{tmp_path}/kv'\n")
    text = cli("config", "--systemd", "-").stdout.decode()
    assert "--store.path" not in text
    assert f"RequiresMountsFor={tmp_path}/kv\n" in text
    more = tmp_path / "more.toml"
    more.write_text("[mount]\nworkers = 3\n")
    text = cli("config", "--systemd", "-", "--config", str(more)).stdout.decode()
    assert words(service(text)["ExecStart"])[5:] == ["--config", str(more)]


def test_a_unit_is_never_written_over_another(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "kvtool-b.service"
    done = cli("config", "--systemd", str(path))
    assert (done.returncode, done.stdout.decode()) == (0, f"{path} written\n")
    assert "enable --now kvtool-b.service" in done.stderr
    assert "# The file's name without .service names the folders: kvtool-b serves in" in path.read_text()
    done = cli("config", "--systemd", str(path))
    assert (done.returncode, done.stdout.decode()) == (0, f"{path} is there already, and up to date\n")
    done = cli("config", "--systemd", str(path), "--mount.workers", "3")
    assert done.returncode == 2
    assert f"{path} is there already with another text and is left as it is" in done.stderr
    assert "workers" not in path.read_text()
    assert cli.json("config", "--systemd", str(path)) == {"path": str(path), "text": path.read_text()}
    assert cli.json("config", "--systemd", "-")["path"] == ""


def test_what_cannot_be_a_unit(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("config", "--systemd", str(tmp_path / "kvtool"))
    assert done.returncode == 2
    assert "let it end with .service" in done.stderr
    done = cli("config", "--systemd", "-", "--init")
    assert done.returncode == 2
    assert cli("config", "--systemd", "-", "--changed").returncode == 2
    monkeypatch.setenv("KVTOOL_HTTP__TOKEN", "x" * 32)
    done = cli("config", "--systemd", "-")
    assert done.returncode == 2
    assert "http.token would stand in the unit for everybody to read" in done.stderr
    assert "xxxx" not in done.stderr + done.stdout.decode()


def test_the_place_of_a_users_unit(cli: Cli, as_user: Callable[[bool], None], tmp_path: Path) -> None:
    as_user(True)
    done = cli("config", "--systemd")
    path = tmp_path / "config" / "systemd" / "user" / "kvtool.service"
    assert done.stdout.decode() == f"{path} written\n"
    assert "systemctl --user enable --now kvtool.service" in done.stderr
