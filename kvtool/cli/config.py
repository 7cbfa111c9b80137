"""`kvtool config`: the settings in force as TOML, or where each comes from."""

import argparse
import difflib
from typing import Any

import tomli_w

from kvtool.cli.call import Call
from kvtool.errors import SettingsError, UsageError
from kvtool.settings.explain import explain, explain_key, json_value, page, table
from kvtool.settings.fields import FIELDS, is_secret, toml_value


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `kvtool config`."""
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="KEY",
        help="show where each setting comes from, or all about the one setting KEY",
    )
    parser.add_argument("--changed", action="store_true", help="leave out what has its default")


def run(call: Call) -> int:
    """Print the settings. Exit code 2, with the table all the same, when `--explain` finds wrong ones."""
    if call.args.explain is None:
        return _print(call)
    if call.args.explain:
        return _print_key(call, call.args.explain)
    data = explain(call.resolved, changed=call.args.changed)
    call.emit(data, table(data))
    return SettingsError.exit_code if data["problems"] else 0


def _print(call: Call) -> int:
    values = call.settings.flat()
    if call.args.changed:
        values = {key: values[key] for key in values if call.resolved.origins[key].layer != "default"}
    data: dict[str, dict[str, Any]] = {}
    text: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, name = key.split(".")
        data.setdefault(section, {})[name] = json_value(key, value)
        if not is_secret(key):  # stars would be read back as the secret
            text.setdefault(section, {})[name] = toml_value(key, value)
    call.emit(data, tomli_w.dumps(text).rstrip("\n"))
    return 0


def _print_key(call: Call, key: str) -> int:
    if key not in FIELDS:
        near = difflib.get_close_matches(key, FIELDS, 1)
        hint = f"did you mean {near[0]}?" if near else "`kvtool config --explain` lists them"
        raise UsageError(f"{key!r} is not a setting", hint=hint)
    data = explain_key(call.resolved, key)
    call.emit(data, page(data))
    return SettingsError.exit_code if data["wrong"] else 0
