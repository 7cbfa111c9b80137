"""The layers of settings, merged with the origin of every value.

Lowest to highest: defaults, /etc/kvtool/config.toml, the user's file, the file of `--config`, the
environment, flags, and the store's own format. pydantic-settings merges layers too, but forgets
where a value came from. Nothing in `resolve` raises for a wrong setting: all problems are reported at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtool.errors import KvtoolError, SettingsError, reason
from kvtool.settings.fields import FIELDS, read, show
from kvtool.settings.relations import RELATIONS
from kvtool.settings.sections import SECTIONS, default_store_path
from kvtool.settings.sources import ConfigFile, Given, Layer, Problem, Sources, StoreLayer, user_file

if TYPE_CHECKING:
    from kvtool.settings.model import Settings

ETC_FILE = Path("/etc/kvtool/config.toml")


@dataclass(frozen=True)
class Origin(Given):
    """The value that counts, and those it overrides, highest first."""

    overridden: tuple[Given, ...] = ()


@dataclass(frozen=True)
class Resolved:
    """All layers merged. `values` lacks the keys whose value is wrong; `origins` has every key.

    `files` are those that were looked for, lowest first; `store_error` is why the store's own is not usable.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, Origin]
    files: tuple[ConfigFile, ...]
    warnings: tuple[str, ...]
    problems: tuple[Problem, ...]
    store_error: KvtoolError | OSError | None = None

    @property
    def messages(self) -> list[str]:
        """Everything that is wrong."""
        lines = [problem.message for problem in self.problems]
        if self.store_error is not None:
            error = self.store_error
            lines.append(reason(error) if isinstance(error, OSError) else str(error))
        return lines

    def check(self) -> None:
        """Raises SettingsError with everything that is wrong; the store's own error if that is all."""
        if self.problems:
            raise SettingsError(
                *self.messages,
                hint="`kvtool config --explain` shows where each value comes from",
            )
        if self.store_error is not None:
            raise self.store_error

    @cached_property
    def settings(self) -> "Settings":
        """The valid model. Raises as `check` does."""
        self.check()
        from kvtool.settings.model import Settings

        sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        for key, value in self.values.items():
            section, name = key.split(".")
            sections[section][name] = value
        return Settings.model_validate(sections)


def resolve(
    flags: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    config_file: Path | None = None,
    store: StoreLayer | None = None,
    etc_file: Path = ETC_FILE,
) -> Resolved:
    """Merge all layers.

    `flags` is key to text. `config_file`, the argument of `--config`, has to exist; the other two files need
    not. What the `store` fixes outranks all, and a value set elsewhere that differs from it is a problem.
    """
    sources = Sources()
    layers = [
        sources.file(etc_file),
        sources.file(user_file(environ)),
        sources.file(config_file, required=True) if config_file is not None else {},
        sources.environment(environ),
        sources.flags(flags),
        dict(store.values) if store else {},
    ]
    files = [*sources.files, *([store.file] if store else [])]
    origins = _merge([_defaults(layers, environ), *layers])
    values = _check(origins, sources.problems)
    return Resolved(
        values,
        origins,
        tuple(files),
        tuple(sources.warnings),
        tuple(sources.problems),
        store.error if store else None,
    )


def _defaults(layers: list[Layer], environ: Mapping[str, str]) -> Layer:
    values = {key: info.default for key, info in FIELDS.items()}
    values["store.path"] = path = default_store_path(environ)
    for layer in layers:
        if "store.path" in layer:
            try:
                path = read("store.path", layer["store.path"].value)
            except ValueError:
                continue  # reported with its own key
    values["store.stubs"] = path / "stubs"
    return {key: Given(value, "default", "") for key, value in values.items()}


def _merge(layers: list[Layer]) -> dict[str, Origin]:
    origins = {}
    for key in FIELDS:
        highest, *rest = [layer[key] for layer in reversed(layers) if key in layer]
        origins[key] = Origin(highest.value, highest.layer, highest.where, tuple(rest))
    return origins


def _check(origins: Mapping[str, Origin], problems: list[Problem]) -> dict[str, Any]:
    """The values that are right, read; what is wrong, alone or with another, becomes a problem."""
    values: dict[str, Any] = {}
    for key, origin in origins.items():
        try:
            values[key] = read(key, origin.value)
            if origin.layer == "store":
                _check_fixed(key, values[key], origin, problems)
        except ValueError as error:
            problems.append(Problem(f"{key}: {error} ({origin.place})", (key,)))
    for relation in RELATIONS:
        keys = (relation.first, relation.second)
        if relation.broken(values):
            first, second = (f"{key}: {show(key, values[key])} ({origins[key].place})" for key in keys)
            problems.append(Problem(f"{first} {relation.otherwise} {second}", keys))
    return values


def _check_fixed(key: str, value: Any, origin: Origin, problems: list[Problem]) -> None:
    """A problem where `key` is also set explicitly, to something else than the store has.

    What an explicit layer overrides in turn was not going to count, so only the highest can disagree.
    """
    given = next((given for given in origin.overridden if given.layer != "default"), None)
    if given is None:
        return
    try:
        if read(key, given.value) == value:
            return
    except ValueError as error:
        problems.append(Problem(f"{key}: {error} ({given.place})", (key,)))
        return
    shown, fixed = show(key, given.value), show(key, value)
    problems.append(
        Problem(f"{key}: {shown} ({given.place}) is not what the store has, {fixed} ({origin.place})", (key,))
    )
