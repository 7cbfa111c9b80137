"""What a subcommand gets: its arguments, the settings, and the ways to answer."""

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtool.errors import KvtoolError, NoStore
from kvtool.errors import printable as printable

if TYPE_CHECKING:
    from kvtool.settings.layers import Resolved
    from kvtool.settings.model import Settings
    from kvtool.settings.sources import StoreLayer


@dataclass(frozen=True)
class Call:
    """One call of a subcommand. `flags` is key to text of the `--section.key` flags that were given."""

    args: argparse.Namespace
    flags: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> bool:
        """Whether `--json` was given."""
        return bool(self.args.json)

    @cached_property
    def resolved(self) -> "Resolved":
        """All layers with their origins; also when settings are wrong: see its `problems`.

        The store's own layer is found with the others' store.path.
        """
        resolved = self._layered(None)
        path = resolved.values.get("store.path")
        return resolved if path is None else self._layered(_store_layer(path / "store.toml"))

    @cached_property
    def settings(self) -> "Settings":
        """The valid settings; warnings about them go to standard error, once.

        Raises SettingsError with every problem, StoreFormatError for a store.toml that is not usable,
        OSError for one that cannot be read.
        """
        return _valid(self.resolved)

    @cached_property
    def settings_without_store(self) -> "Settings":
        """The valid settings for a command that also works when the store's own layer is damaged.

        Raises SettingsError with every problem.
        """
        return _valid(self._layered(None))

    def _layered(self, store: "StoreLayer | None") -> "Resolved":
        from kvtool.settings.layers import resolve

        config: str | None = self.args.config
        return resolve(
            self.flags,
            environ=os.environ,
            config_file=Path(os.path.expanduser(config)).absolute() if config is not None else None,
            store=store,
        )

    @property
    def debug(self) -> bool:
        """Whether log.level is debug, as far as can be told: for reporting errors, so it raises none."""
        try:
            return bool(self.resolved.values.get("log.level") == "debug")
        except (KvtoolError, OSError):
            return self.flags.get("log.level") == "debug"

    def emit(self, data: dict[str, Any], text: str) -> None:
        """The answer, on standard output: `data` with --json, else `text`."""
        print(to_json(data) if self.json else text)

    def note(self, text: str) -> None:
        """Progress for people, on standard error; nothing with --json."""
        if not self.json:
            print(text, file=sys.stderr)


def to_json(data: dict[str, Any]) -> str:
    """`data` on one line, or indented for a terminal; undecodable bytes of names as escapes."""
    return json.dumps(data, indent=2 if sys.stdout is not None and sys.stdout.isatty() else None)


def _valid(resolved: "Resolved") -> "Settings":
    for warning in resolved.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return resolved.settings


def _store_layer(path: Path) -> "StoreLayer":
    from kvtool.settings.sources import ConfigFile, Given, StoreLayer
    from kvtool.store import format as store_format

    try:
        text = store_format.read_text(path)
        fmt = store_format.parse(text, str(path))
    except NoStore:
        return StoreLayer(ConfigFile(path, "not found"))
    except (KvtoolError, OSError) as error:
        return StoreLayer(ConfigFile(path, "not usable"), error=error)
    values = {
        key: Given(getattr(fmt, key.removeprefix("chunk.")), "store", f"{path}:{line}")
        for key, line in store_format.lines(text).items()
    }
    return StoreLayer(ConfigFile(path, "read"), values)
