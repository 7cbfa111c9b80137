"""The settings file to start with: every setting with its meaning, those at their default as comments."""

import os
import textwrap
from pathlib import Path

import tomli_w

from kvtool.errors import UsageError
from kvtool.settings.fields import (
    FIELDS,
    default_text,
    describe,
    env_name,
    extra,
    is_secret,
    toml_value,
    unit,
)
from kvtool.settings.layers import Resolved
from kvtool.settings.schema import schema_file
from kvtool.settings.sections import SECTIONS

_WIDTH = 100
_HEAD = """\
#:schema {schema}
# Settings of kvtool. Lines such as #name = value show what holds without them: take away the # to change it.
# `kvtool config --explain` shows what holds and where it comes from.
"""


def starter(resolved: Resolved) -> str:
    """The file's text, for valid settings.

    What flags, the environment and the file of --config set is set in it; what comes from elsewhere
    (defaults, the two files that are read in any case, the store) is there as a comment. So the file gives
    the settings that it was made from, also with every `#name = value` uncommented. Secrets are left out.
    """
    text = _HEAD.format(schema=schema_file().as_uri())
    for section, model in SECTIONS.items():
        text += f"\n# {model.__doc__}\n[{section}]\n"
        text += "".join(_setting(resolved, key) for key in FIELDS if key.startswith(section + "."))
    return text


def write_new(path: Path, text: str) -> None:
    """Writes a file that must not be there, and the folders above it. Raises UsageError, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # O_EXCL: whoever makes the same file at the same moment, one of the two learns of it.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise UsageError(
            f"{path} is there already and is left as it is", hint="name another with --init FILE"
        ) from None
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except BaseException:
        os.unlink(path)
        raise


def _setting(resolved: Resolved, key: str) -> str:
    origin = resolved.origins[key]
    name = key.partition(".")[2]
    meaning = FIELDS[key].description or ""
    facts = [describe(key), *([f"a bare number is {unit(key)}"] if unit(key) else [])]
    facts += [f"default {default_text(key) or 'none'}", env_name(key)]
    parts = [f"{meaning[:1].upper()}{meaning[1:]}.", f"Value: {'; '.join(facts)}.", extra(key, "advice")]
    lines = [line for part in parts for line in textwrap.wrap(part, _WIDTH - 2)]
    value = "" if is_secret(key) else toml_value(key, resolved.values[key])
    assignment = tomli_w.dumps({name: value})
    is_set = not is_secret(key) and origin.layer in ("flag", "env", "file") and not _stays(resolved, key)
    return "\n" + "".join(f"# {line}\n" for line in lines) + ("" if is_set else "#") + assignment


def _stays(resolved: Resolved, key: str) -> bool:
    """Whether the value comes from one of the two files that are read in any case."""
    where = resolved.origins[key].where.rpartition(":")[0]
    return any(str(file.path) == where for file in resolved.files[:2])
