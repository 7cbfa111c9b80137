"""The single layers: files, environment and flags, each as one dict of key to `Given`."""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvtool.core.toml_text import TomlError, key_lines, parse_toml
from kvtool.settings.fields import FIELDS, SECTIONS, env_name, kind


@dataclass(frozen=True)
class Given:
    """A raw value in one layer: "default", "file", "env", "flag" or "store", and where in it.

    `where` is "/etc/kvtool/config.toml:3", "KVTOOL_MOUNT__CACHE", "--mount.cache", or "" of a default.
    """

    value: Any
    layer: str
    where: str

    @property
    def place(self) -> str:
        """Layer and where: "env KVTOOL_MOUNT__CACHE"."""
        return f"{self.layer} {self.where}".rstrip()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: with the keys it is about, if it is about keys that exist."""

    message: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConfigFile:
    """A file that was looked for; `state` is "read", "not found" or "not usable"."""

    path: Path
    state: str


Layer = dict[str, Given]


@dataclass
class Sources:
    """Reads layers, and keeps what it met on the way."""

    files: list[ConfigFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def file(self, path: Path, *, required: bool = False) -> Layer:
        """One configuration file. `required`: its absence is a problem too."""
        try:
            # A path in it may be any bytes, as file names may.
            text = path.read_bytes().decode(errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError) as error:
            self.files.append(ConfigFile(path, "not found"))
            if required:
                self.problems.append(Problem(f"{path}: {error.strerror} (flag --config)"))
            return {}
        except OSError as error:
            self.files.append(ConfigFile(path, "not usable"))
            self.problems.append(Problem(f"{path}: {error.strerror}"))
            return {}
        try:
            document, lines = parse_toml(text), key_lines(text)
        except TomlError as error:
            self.files.append(ConfigFile(path, "not usable"))
            self.problems.append(Problem(f"{path}:{error.line}: not TOML: {error.reason}"))
            return {}
        self.files.append(ConfigFile(path, "read"))
        return self._tables(document, path, lines)

    def _tables(self, document: dict[str, Any], path: Path, lines: Mapping[tuple[str, ...], int]) -> Layer:
        layer: Layer = {}
        for section, table in document.items():
            where = f"{path}:{lines[(section,)]}"
            if not isinstance(table, dict):
                what = "is a section, not a setting" if section in SECTIONS else "is not a setting"
                hint = "" if section in SECTIONS else _did_you_mean(section, FIELDS)
                self.problems.append(Problem(f"{where}: {_name(section)} {what}{hint}"))
            elif section not in SECTIONS and not table:
                hint = _did_you_mean(section, SECTIONS)
                self.problems.append(Problem(f"{where}: {_name(section)} is not a section{hint}"))
            else:
                for name, value in table.items():
                    key, where = f"{section}.{name}", f"{path}:{lines[section, name]}"
                    if key in FIELDS:
                        layer[key] = Given(value, "file", where)
                    else:
                        hint = _did_you_mean(key, FIELDS)
                        self.problems.append(Problem(f"{where}: {_name(key)} is not a setting{hint}"))
        return layer

    def environment(self, environ: Mapping[str, str]) -> Layer:
        """KVTOOL_SECTION__NAME; other names in KVTOOL_ are warned about, as they may be meant for others."""
        names = {env_name(key): key for key in FIELDS}
        layer: Layer = {}
        for name in sorted(environ):
            if name in names:
                key = names[name]
                layer[key] = Given(_from_here(key, environ[name]), "env", name)
            elif name.startswith("KVTOOL_"):
                self.warnings.append(f"{_name(name)} is not a setting{_did_you_mean(name, names)}")
        return layer

    def flags(self, flags: Mapping[str, str]) -> Layer:
        """Flags, of key to text."""
        layer: Layer = {}
        for key, value in flags.items():
            if key in FIELDS:
                layer[key] = Given(_from_here(key, value), "flag", f"--{key}")
            else:
                hint = _did_you_mean(key, FIELDS)
                self.problems.append(Problem(f"--{_name(key)} is not a setting{hint}"))
        return layer


def user_file(environ: Mapping[str, str]) -> Path:
    """XDG_CONFIG_HOME/kvtool/config.toml, or the same in ~/.config."""
    config_home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(config_home) if os.path.isabs(config_home) else Path(os.path.expanduser("~/.config"))
    return base / "kvtool" / "config.toml"


def _from_here(key: str, text: str) -> str:
    """A relative path given here counts from the working directory; in a file it would be wrong."""
    if kind(key) == "path" and text and not text.startswith("~"):
        return os.path.join(os.getcwd(), text)
    return text


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _name(name: str) -> str:
    return name if name.isprintable() else repr(name)
