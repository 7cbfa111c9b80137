"""`kvtool config --systemd`: the unit that runs the mount, of the system or of a user."""

import os
import sys
from importlib.resources import files
from pathlib import Path

from kvtool.cli.call import Call
from kvtool.errors import UsageError
from kvtool.settings.fields import FIELDS, is_secret, toml_value

_SYSTEM_FOLDER = Path("/etc/systemd/system")
_NAME = "kvtool.service"


def default_place(*, system: bool) -> Path:
    """Where the unit goes: systemd.unit(5) calls these the folders of the administrator and of the user."""
    if system:
        return _SYSTEM_FOLDER / _NAME
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(config) / "systemd" / "user" / _NAME


def unit(call: Call, name: str, *, system: bool) -> str:
    """The text of a unit of that name, for valid settings.

    Its command has what flags and the environment set, and the file of --config; the other files are read
    whenever it starts. A system's unit has its store in /var/lib unless the settings name a place. Raises
    UsageError for a secret that would stand there for all to read.
    """
    origins, values = call.resolved.origins, call.values
    flags = (
        [f"--config {_quoted(os.path.abspath(os.path.expanduser(call.args.config)))}"]
        if call.args.config
        else []
    )
    store = _quoted(str(values["store.path"]))
    for key in FIELDS:
        if origins[key].layer not in ("flag", "env"):
            continue
        if is_secret(key):
            raise UsageError(
                f"{key} would stand in the unit for everybody to read",
                hint="put it into the settings file, which can be private, and call this without it",
            )
        flags.append(f"--{key} {_quoted(_text(toml_value(key, values[key])))}")
    if system and origins["store.path"].layer == "default":
        flags.append("--store.path %S/%N")
        store = "%S/%N"
    text = files("kvtool.cli").joinpath("units", "system.service" if system else "user.service").read_text()
    for placeholder, value in {
        "@NAME@": _escaped(name.removesuffix(".service")),
        "@KVTOOL@": f"{_quoted(sys.executable)} -m kvtool",
        "@FLAGS@": "".join(f" {flag}" for flag in flags),
        "@STORE@": store,
    }.items():
        text = text.replace(placeholder, value)
    return text


def install(path: Path, text: str) -> bool:
    """Writes the unit; False when it is there already. Raises UsageError when another text is, OSError."""
    if not path.name.endswith(".service"):
        raise UsageError(f"{path} is no name of a service", hint="let it end with .service")
    try:
        there = path.read_bytes()
    except FileNotFoundError:
        from kvtool.settings.starter import write_new

        write_new(path, text)
        return True
    if there == text.encode(errors="surrogateescape"):
        return False
    raise UsageError(
        f"{path} is there already with another text and is left as it is",
        hint="`kvtool config --systemd -` prints the new one; move the old one away to have it written",
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(word: str) -> str:
    """A word of a command line in a unit, systemd.service(5); with the prefix `:` dollars mean nothing."""
    word = _escaped(word)
    if not word or any(character in word for character in " \t'\";"):
        return '"' + word.replace('"', '\\"') + '"'
    return word


def _escaped(word: str) -> str:
    """With the characters taken that mean something wherever systemd looks for specifiers."""
    return word.replace("\\", "\\\\").replace("\n", "\\n").replace("%", "%%")
