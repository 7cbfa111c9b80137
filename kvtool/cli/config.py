"""`kvtool config`: the settings in force as TOML, where each comes from, and a file to start with."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from kvtool.cli.call import Call
from kvtool.core.text import printable
from kvtool.errors import KvtoolError, SettingsError, UsageError
from kvtool.settings.explain import changed, explain, explain_key, problems_of
from kvtool.settings.fields import FIELDS, read, toml_value
from kvtool.settings.kinds import REDACTED
from kvtool.settings.sources import did_you_mean, user_file
from kvtool.settings.tables import page, table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `kvtool config`."""
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="SETTING",
        help="show where each setting comes from, or all about this SETTING",
    )
    parser.add_argument("--changed", action="store_true", help="leave out what has its default")
    parser.add_argument(
        "--running",
        action="store_true",
        help="the settings of the mount that runs, not those of the next one",
    )
    parser.add_argument(
        "--init",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a commented settings file to start with (default: ~/.config/kvtool/config.toml);"
        " never over one that is there",
    )
    parser.add_argument(
        "--systemd",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a systemd unit that mounts with these settings, as root the system's"
        " (default: /etc/systemd/system/kvtool.service), else the user's; never over another; - prints it",
    )


def run(call: Call) -> int:
    """Print the settings. Exit code 2, with the table all the same, when `--explain` finds wrong ones."""
    args = call.args
    key: str | None = args.explain
    shows = args.running or args.changed or key is not None
    if args.init is not None and (shows or args.systemd is not None):
        raise UsageError("--init goes without --systemd, --explain, --changed and --running")
    if args.systemd is not None and shows:
        raise UsageError("--systemd goes without --explain, --changed and --running")
    if key and key not in FIELDS:
        hint = did_you_mean(key, FIELDS).strip(" ()") or "`kvtool config --explain` lists them"
        raise UsageError(f"'{key}' is not a setting", hint=hint)
    if args.init is not None:
        return _init(call)
    if args.systemd is not None:
        return _systemd(call)
    data = _running(call) if args.running else explain(call.resolved)
    if key:
        return _print_key(call, data, key)
    if args.changed:
        data = changed(data)
    if key is None:
        return _print(call, data)
    call.emit(data, table(data))
    return _code(call) if data["problems"] else 0


def _running(call: Call) -> dict[str, Any]:
    """The settings of the store's mount, as it explained them when it started."""
    from kvtool.store import control, format
    from kvtool.store.layout import Layout

    if "store.path" not in call.resolved.values:  # nothing else has to be right to look at what runs
        call.resolved.check()
    path = call.resolved.values["store.path"]
    # The socket is in the store; where the stubs are does not matter here.
    layout = Layout(path, path)
    try:
        answer = control.ask(layout, "settings")
    except control.NotRunning:
        format.read(layout.format)
        raise
    answer.pop("command")
    return answer


def _print(call: Call, data: dict[str, Any]) -> int:
    if not call.args.running:
        _ = call.settings  # raises when something is wrong
    values: dict[str, dict[str, Any]] = {}
    for row in data["settings"]:
        section, name = row["key"].split(".")
        values.setdefault(section, {})[name] = row["value"]
    call.emit(values, toml_text(data["settings"]))
    return 0


def toml_text(rows: list[dict[str, Any]]) -> str:
    """The rows of an Explanation as a settings file that gives the same settings, but for secrets."""
    document: dict[str, dict[str, Any]] = {}
    notes = ""
    for row in rows:
        key, value = row["key"], row["value"]
        section, name = key.split(".")
        if value == REDACTED:  # stars would be read back as the secret
            notes += f"# {key} is set and not shown ({row['layer']} {printable(row['where'])})\n"
        elif key in FIELDS:
            document.setdefault(section, {})[name] = toml_value(key, read(key, value))
        else:  # the mount that runs is of another version
            document.setdefault(section, {})[name] = value
    return notes + tomli_w.dumps(document).rstrip("\n")


def _print_key(call: Call, data: dict[str, Any], key: str) -> int:
    problems = [] if call.args.running else problems_of(call.resolved, key)
    try:
        found = explain_key(data, key, problems)
    except KeyError:
        raise KvtoolError(
            f"the mount that runs has no setting {key}", hint="it is of another version"
        ) from None
    call.emit(found, page(found))
    return SettingsError.exit_code if found["wrong"] else 0


def _code(call: Call) -> int:
    """The exit code of any other command with these settings."""
    try:
        call.resolved.check()
    except (KvtoolError, OSError) as error:
        return error.exit_code if isinstance(error, KvtoolError) else 1
    return 0


def _init(call: Call) -> int:
    import os

    from kvtool.cli.answers import Written
    from kvtool.settings.starter import starter, write_new

    _ = call.settings  # raises when something is wrong
    place = call.args.init
    path = Path(os.path.expanduser(place)).absolute() if place else user_file(os.environ)
    write_new(path, starter(call.resolved))
    where = "" if path == user_file(os.environ) else f"; have it read with --config {printable(str(path))}"
    call.emit(asdict(Written(path=str(path))), f"{printable(str(path))} written{where}")
    return 0


def _systemd(call: Call) -> int:
    import os

    from kvtool.cli import systemd
    from kvtool.cli.answers import Unit

    _ = call.settings  # raises when something is wrong
    system = os.geteuid() == 0
    place = call.args.systemd
    path = systemd.default_place(system=system)
    if place == "-":
        text = systemd.unit(call, path.name, system=system)
        call.emit(asdict(Unit(path="", text=text)), text.rstrip("\n"))
        return 0
    if place:
        path = Path(os.path.expanduser(place)).absolute()
    text = systemd.unit(call, path.name, system=system)
    said = "written" if systemd.install(path, text) else "is there already, and up to date"
    call.emit(asdict(Unit(path=str(path), text=text)), f"{printable(str(path))} {said}")
    control = "systemctl" if system else "systemctl --user"
    call.note(f"start it with: {control} daemon-reload && {control} enable --now {printable(path.name)}")
    return 0
