"""The single layers: files, environment and flags, each as one dict of key to `Given`."""

import difflib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kvtool.core.toml_text import TomlError, key_lines, parse_toml
from kvtool.errors import KvtoolError
from kvtool.settings.fields import FIELDS, env_name, is_secret, kind
from kvtool.settings.kinds import hidden
from kvtool.settings.sections import SECTIONS

LayerName = Literal["default", "file", "env", "flag", "store"]
FileState = Literal["read", "not found", "not usable"]


@dataclass(frozen=True)
class Given:
    """A raw value in one layer, and where in it.

    `where` is "/etc/kvtool/config.toml:3", "KVTOOL_MOUNT__CACHE", "--mount.cache", or "" of a default.
    """

    value: Any
    layer: LayerName
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
    """A file that was looked for."""

    path: Path
    state: FileState


Layer = dict[str, Given]


@dataclass(frozen=True)
class StoreLayer:
    """What the store fixes: store.toml, the values in it, and what is wrong with it if it is not usable."""

    file: ConfigFile
    values: Mapping[str, Given] = field(default_factory=dict)
    error: KvtoolError | OSError | None = None


@dataclass
class Sources:
    """Reads layers, and keeps what it met on the way."""

    files: list[ConfigFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def file(self, path: Path, *, required: bool = False) -> Layer:
        """One configuration file. `required`: it is that of `--config`, and its absence is a problem too."""
        flag = " (flag --config)" if required else ""
        try:
            # A path in it may be any bytes, as file names may.
            text = _read_regular(path).decode(errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError) as error:
            self.files.append(ConfigFile(path, "not found"))
            if required:
                self.problems.append(Problem(f"{path}: {error.strerror}{flag}"))
            return {}
        except OSError as error:
            self.files.append(ConfigFile(path, "not usable"))
            self.problems.append(Problem(f"{path}: {error.strerror}{flag}"))
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
                hint = "" if section in SECTIONS else did_you_mean(section, FIELDS)
                self.problems.append(Problem(f"{where}: {section} {what}{hint}"))
            elif section not in SECTIONS and not table:
                hint = did_you_mean(section, SECTIONS)
                self.problems.append(Problem(f"{where}: {section} is not a section{hint}"))
            else:
                for name, value in table.items():
                    key, where = f"{section}.{name}", f"{path}:{lines[section, name]}"
                    if key in FIELDS:
                        layer[key] = _given(key, value, "file", where)
                    else:
                        hint = did_you_mean(key, FIELDS)
                        self.problems.append(Problem(f"{where}: {key} is not a setting{hint}"))
        return layer

    def environment(self, environ: Mapping[str, str]) -> Layer:
        """KVTOOL_SECTION__NAME; other names in KVTOOL_ are warned about, as they may be meant for others."""
        names = {env_name(key): key for key in FIELDS}
        layer: Layer = {}
        for name in sorted(environ):
            if name in names:
                key = names[name]
                layer[key] = _given(key, _from_here(key, environ[name]), "env", name)
            elif name.upper().startswith("KVTOOL_"):
                self.warnings.append(f"{name} is not a setting{did_you_mean(name, names)}")
        return layer

    def flags(self, flags: Mapping[str, str]) -> Layer:
        """Flags, of key to text."""
        layer: Layer = {}
        for key, value in flags.items():
            if key in FIELDS:
                layer[key] = _given(key, _from_here(key, value), "flag", f"--{key}")
            else:
                hint = did_you_mean(key, FIELDS)
                self.problems.append(Problem(f"--{key} is not a setting{hint}"))
        return layer


def user_file(environ: Mapping[str, str]) -> Path:
    """XDG_CONFIG_HOME/kvtool/config.toml, or the same in ~/.config."""
    config_home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(config_home) if os.path.isabs(config_home) else Path(os.path.expanduser("~/.config"))
    return base / "kvtool" / "config.toml"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ " (did you mean mount.cache?)", or "" when no known name is near; capital letters do not matter."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, 1)
    return f" (did you mean {names[near[0]]}?)" if near else ""


def _read_regular(path: Path) -> bytes:
    """A file's bytes. Raises OSError, also for what is no file: to read a pipe would be to wait for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def _given(key: str, value: Any, layer: LayerName, where: str) -> Given:
    return Given(hidden(value) if is_secret(key) else value, layer, where)


def _from_here(key: str, text: str) -> str:
    """A relative path given here counts from the working directory; in a file it would be wrong."""
    if kind(key) == "path" and text and not text.startswith("~"):
        return os.path.join(os.getcwd(), text)
    return text
