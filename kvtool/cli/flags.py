"""Flags that look like settings and are none: taken out before argparse, so that one report tells all."""

import argparse
import re
from collections.abc import Container, Mapping, Sequence

from kvtool.errors import SettingsError

_SETTING = re.compile(r"--([\w-]+\.[\w.-]+)(?:=(.*))?", re.DOTALL)


def take_unknown(argv: Sequence[str], known: Container[str]) -> tuple[dict[str, str], list[str]]:
    """The `--section.key` flags whose key is not in `known`, with their values, and the other arguments.

    argparse would print such a flag with its value, which may be a secret, and tell of nothing else.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    unknown: dict[str, str] = {}
    rest: list[str] = []
    words = list(argv[:end])
    while words:
        word = words.pop(0)
        match = _SETTING.fullmatch(word)
        if match is None or match[1] in known:
            rest.append(word)
        elif match[2] is None and words and not words[0].startswith("-"):
            unknown[match[1]] = words.pop(0)
        else:
            unknown[match[1]] = match[2] or ""
    return unknown, rest + list(argv[end:])


def take_more(parser: argparse.ArgumentParser, args: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Gives what is left over to the argument that takes any number. Returns what nothing takes.

    argparse gives that argument only those that stand together: of `NAME --json KEY=VALUE` none.
    """
    positionals = (each for each in parser._actions if not each.option_strings)
    more = next((each for each in positionals if each.nargs in {"*", "+"}), None)
    end = rest.index("--") if "--" in rest else len(rest)
    if more is None or any(word.startswith("-") for word in rest[:end]):
        return list(rest)
    setattr(args, more.dest, [*getattr(args, more.dest), *rest[:end], *rest[end + 1 :]])
    return []


def refuse(parser: argparse.ArgumentParser, rest: Sequence[str]) -> None:
    """Raises UsageError when arguments are left over. Flags are named without what may be their value."""
    flags = [word.partition("=")[0] for word in rest if word.startswith("-")]
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(flags or rest)}")


def check_flags(unknown: Mapping[str, str]) -> None:
    """Raises SettingsError when there are such flags: for where nothing else can be said about settings."""
    from kvtool.settings.sources import Sources

    sources = Sources()
    sources.flags(unknown)
    if sources.problems:
        raise SettingsError("; ".join(problem.message for problem in sources.problems))
