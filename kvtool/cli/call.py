"""What a subcommand gets: its arguments, the settings, and the ways to answer."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtool.core.text import printable as printable
from kvtool.errors import KvtoolError, NoStore, OutputFailed, reason

if TYPE_CHECKING:
    from kvtool.settings.layers import Resolved
    from kvtool.settings.model import Settings
    from kvtool.settings.sources import StoreLayer

_NOT_WRITTEN = "the output could not be written: send it elsewhere and run the command again"


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
        return self._checked.settings

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The same by key, without pydantic-settings, whose import takes as long as all else.

        Raises what `settings` raises.
        """
        return self._checked.values

    @cached_property
    def values_without_store(self) -> Mapping[str, Any]:
        """The same for a command that also works when the store's own layer is damaged.

        Raises SettingsError with every problem.
        """
        return _checked(self._layered(None)).values

    @cached_property
    def _checked(self) -> "Resolved":
        return _checked(self.resolved)

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
        except Exception:  # whatever is reported, it must not be hidden by this
            return self.flags.get("log.level") == "debug"

    @property
    def quiet(self) -> bool:
        """Whether nothing but the answer and errors is to be shown."""
        return self.json or bool(self.args.quiet)

    def emit(self, data: dict[str, Any], text: str) -> None:
        """The answer, on standard output: `data` with --json, else `text`. Raises OutputFailed."""
        with writing_output():
            print(to_json(data) if self.json else text, flush=True)

    def note(self, text: str) -> None:
        """A word for people, on standard error; nothing with --json or --quiet."""
        if not self.quiet:
            say(text)


def say(text: str) -> None:
    """A line on standard error, if there is one that can be written: there is nowhere else to say it."""
    if sys.stderr is not None:
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            # What is left in the buffer would fail again when the interpreter ends, with its own exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@contextmanager
def writing_output() -> Iterator[None]:
    """Tells an error of standard output from one of the files that a command reads or writes.

    Raises OutputFailed; BrokenPipeError is let through: whoever reads has enough.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(f"standard output: {reason(error)}", hint=_NOT_WRITTEN) from error


def to_json(data: dict[str, Any]) -> str:
    """`data` on one line, or indented for a terminal; undecodable bytes of names as escapes."""
    return json.dumps(data, indent=2 if sys.stdout is not None and sys.stdout.isatty() else None)


def _checked(resolved: "Resolved") -> "Resolved":
    for warning in resolved.warnings:
        say(f"warning: {printable(warning)}")
    if resolved.problems:
        _ = resolved.settings  # raises, with all of them in words
    return resolved


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
