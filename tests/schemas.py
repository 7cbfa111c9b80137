"""`python -m tests.schemas` writes schemas/*.json: the settings file, answers to --json, the HTTP API.

They are made from the dataclasses that the answers are; a test fails when a file is not what would be made.
`check` is for tests of commands: an answer must be as its schema says, and have nothing that it does not say.
"""

import functools
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import kvtool
from kvtool.cli import answers
from kvtool.errors import KvtoolError
from kvtool.settings.explain import Explanation, Page
from kvtool.settings.schema import settings_schema
from kvtool.store.anatomy import Anatomy
from kvtool.store.exchange import Exported
from kvtool.store.findings import Report
from kvtool.store.kinship import Tree
from kvtool.store.labels import Labels
from kvtool.store.snapshots import Listing
from kvtool.store.status import Status
from kvtool.store.verify import Verified

FOLDER = Path(__file__).parents[1] / "schemas"

# What each prints, by the name of its schema; the settings themselves have another generator.
ANSWERS: dict[str, tuple[str, Any]] = {
    "cat": ("kvtool cat --output --json", answers.Restored),
    "chunk": ("kvtool chunk --json", answers.Stored),
    "completion": ("kvtool completion --json", answers.Script),
    "config-init": ("kvtool config --init --json", answers.Written),
    "config-systemd": ("kvtool config --systemd --json", answers.Unit),
    "errors": ("any command with --json that fails", answers.Failed),
    "export": ("kvtool export --json", Exported),
    "explain": ("kvtool config --explain [KEY] --json", Explanation | Page),
    "fsck": ("kvtool fsck --json", Report),
    "gc": ("kvtool gc --json", answers.Freed),
    "import": ("kvtool import --json", answers.Stored),
    "inspect": ("kvtool inspect [NAME | --tree] --json", Listing | Anatomy | Tree),
    "label": ("kvtool label --json", Labels),
    "man": ("kvtool man --json", answers.Manual | answers.Manuals),
    "mount": ("kvtool mount --background --json", answers.Mounted),
    "prefetch": ("kvtool prefetch --json", answers.Prefetched),
    "status": ("kvtool status --json", Status),
    "umount": ("kvtool umount --json", answers.Unmounted),
    "verify": ("kvtool verify --json", Verified),
}
NAMES = sorted([*ANSWERS, "openapi", "settings"])


def text(name: str) -> str:
    """A schema as the file has it."""
    makers = {"settings": settings_schema, "openapi": _openapi}
    return json.dumps(makers[name]() if name in makers else _answer(name), indent=2) + "\n"


def name_of(arguments: list[str]) -> str:
    """Which schema the answer to a command line with --json is of, when it succeeds."""
    command, *flags = [word.partition("=")[0] for word in arguments]
    if command != "config":
        return command
    kinds = {"--init": "config-init", "--systemd": "config-systemd", "--explain": "explain"}
    return next((kind for flag, kind in kinds.items() if flag in flags), "settings")


def check(arguments: list[str], answer: Any) -> None:
    """Raises jsonschema.ValidationError unless the answer to this command line is as its schema says."""
    is_error = isinstance(answer, dict) and set(answer) == {"error"}
    _validator("errors" if is_error else name_of(arguments)).validate(answer)


@functools.cache
def _validator(name: str) -> Any:
    import jsonschema  # here, since the demo has no packages for tests

    schema = json.loads((FOLDER / f"{name}.json").read_text())
    return jsonschema.validators.validator_for(schema)(schema)


def _openapi() -> dict[str, Any]:
    from kvtool.http.app import create_app

    return create_app(None).openapi()


def _answer(name: str) -> dict[str, Any]:
    from pydantic import TypeAdapter

    title, model = ANSWERS[name]
    schema = TypeAdapter(model).json_schema(mode="serialization")
    if name == "errors":
        failure = schema["$defs"]["Failure"]["properties"]
        failure["code"]["enum"], failure["exit"]["enum"] = _codes()
    _each_object(schema, lambda found: found.update(additionalProperties=False))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


def _each_object(schema: Any, change: Callable[[dict[str, Any]], None]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _each_object(each, change)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            change(schema)
        for each in schema.values():
            _each_object(each, change)


def _codes() -> tuple[list[str], list[int]]:
    """All words and exit codes: of every error class there is, and the three that `cli.main` adds."""
    for module in walk_packages(kvtool.__path__, "kvtool."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    classes = {KvtoolError}
    while more := {below for each in classes for below in each.__subclasses__()} - classes:
        classes |= more
    codes = {each.code for each in classes if each.__module__.startswith("kvtool.")}
    exits = {each.exit_code for each in classes if each.__module__.startswith("kvtool.")}
    return sorted(codes | {"os", "internal", "interrupted"}), sorted(exits | {1, 130})


def main() -> None:
    """Writes all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.json").write_text(text(name))


if __name__ == "__main__":
    main()
