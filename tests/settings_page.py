"""`python -m tests.settings_page` writes docs/settings.md from the model; a test fails when it is stale."""

import textwrap
from pathlib import Path

from kvtool.settings.fields import FIELDS, default_text, describe, env_name, extra, is_secret, unit
from kvtool.settings.relations import RELATIONS
from kvtool.settings.sections import SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

_HEAD = """\
# Settings

(Made from the code by `python -m tests.settings_page`.)

## Where they come from

Lowest to highest; the highest that has a setting decides:

1. the defaults below (of `store.path` in `$XDG_DATA_HOME` instead of `~/.local/share` if that is set)
2. `/etc/kvtool/config.toml`
3. `~/.config/kvtool/config.toml` (in `$XDG_CONFIG_HOME` instead of `~/.config` if that is set)
4. the file of `--config FILE`
5. the environment: `KVTOOL_MOUNT__CACHE` is `mount.cache`
6. flags, which every command takes after its name: `--mount.cache`
7. `store.toml` in the store, for what was fixed when the store was made: `chunk.*`. Another value set
   elsewhere is an error, which names both places.

A setting has one spelling everywhere: section, dot, name. In a file the section is a table:

```toml
[mount]
cache = "512 MiB"
allow_other = true
```

- Sizes: `"64 MiB"`, `"64M"` (the same), `"64 MB"` (64,000,000 bytes), or a number of bytes.
- Durations: `"90s"`, `"1h30m"`, `"2d"`, or a number of seconds.
- Paths: absolute, or beginning with `~/`; in the environment and in flags also relative to the working
  directory.
- What is not a setting is an error in files and flags, and a warning in the environment, with the nearest
  name.
- Everything that is wrong is reported at once, each with where it stands; the exit code is 2.

```
kvtool config                        # what holds, as TOML that can be fed back with --config
kvtool config --explain              # where each value comes from, what it overrode, the files looked for
kvtool config --explain mount.cache  # one setting in full
kvtool config --changed              # without what has its default; also with --explain
kvtool config --running              # what the mount that runs was started with; also with --explain
kvtool config --init                 # write ~/.config/kvtool/config.toml, every setting as a comment
kvtool config --init FILE            # write another file; neither ever replaces one that is there
kvtool config --systemd              # write a systemd unit: docs/deploy.md
```

`kvtool config` takes every flag and looks at the same files and variables as `kvtool mount`, so it tells
what a mount with the same flags would get. With `--json` sizes are bytes and durations seconds;
schemas/explain.json describes the answer of `--explain`, schemas/settings.json a settings file. The first
line of a file that `--init` wrote names the latter, so that editors with Taplo (in VS Code: Even Better
TOML) check and complete it. A flag given with `--init`, a variable that is set, and what the file of
`--config` sets are written as set.
"""


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for section, model in SECTIONS.items():
        parts.append(f"## {section}\n\n{model.__doc__}\n")
        parts += [_setting(key) for key in FIELDS if key.startswith(section + ".")]
    parts.append("## What must not be\n\n")
    parts[-1] += "\n".join(f"- `{each.first}` {each.otherwise} `{each.second}`" for each in RELATIONS)
    return "\n".join(parts) + "\n"


def _setting(key: str) -> str:
    meaning = FIELDS[key].description or ""
    facts = [
        f"- value: {describe(key)}" + (f"; a bare number is {unit(key)}" if unit(key) else ""),
        f"- default: `{default_text(key)}`" if default_text(key) else "- default: none",
        f"- variable: `{env_name(key)}`",
    ]
    if is_secret(key):
        facts.append("- secret: shown nowhere")
    advice = textwrap.fill(extra(key, "advice"), 110)
    return "\n".join([f"### {key}\n", f"{meaning[0].upper()}{meaning[1:]}.\n", *facts, "", advice, ""])


def main() -> None:
    """Writes it."""
    PAGE.write_text(text())


if __name__ == "__main__":
    main()
