"""The command line as data, read off the parsers: what completion and man pages are made from."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvtool.cli.parser import COMMANDS, command_parser
from kvtool.settings.fields import FIELDS

# What a value is, by the word that stands for it in the help. PATH is that of a setting.
_KINDS = {
    "FILE": "file",
    "DIR": "directory",
    "PATH": "directory",
    "MOUNTPOINT": "directory",
    "NAME": "snapshot",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag (`flags` has its spellings), or with none a positional argument.

    `value` is the word for its value, empty when it takes none; `kind` is "file", "directory", "snapshot",
    "choice" (one of `choices`) or "text".
    """

    flags: tuple[str, ...]
    value: str
    kind: str
    choices: tuple[str, ...]
    help: str
    optional: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments under one heading, with a line about them."""

    title: str
    about: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its one-line summary, usage, groups of arguments, and what its help ends with."""

    name: str
    summary: str
    usage: str
    groups: tuple[Group, ...]
    epilog: str

    @property
    def flags(self) -> Iterator[Argument]:
        """All flags."""
        return (each for group in self.groups for each in group.arguments if each.flags)

    @property
    def positionals(self) -> list[Argument]:
        """What is given by its place."""
        return [each for group in self.groups for each in group.arguments if not each.flags]


def commands() -> list[Command]:
    """Every subcommand."""
    return [_command(name) for name in COMMANDS]


def common(all_: Sequence[Command]) -> list[Argument]:
    """The flags that all the commands have: the settings, and a few more."""
    first, *others = all_
    return [each for each in first.flags if all(each in other.flags for other in others)]


def _command(name: str) -> Command:
    parser = command_parser(name)
    groups = [
        Group(
            group.title or "",
            group.description or "",
            tuple(_argument(a) for a in group._group_actions if a.help is not argparse.SUPPRESS),
        )
        for group in parser._action_groups
    ]
    usage = parser.format_usage().removeprefix("usage: ")
    filled = tuple(group for group in groups if group.arguments)
    return Command(name, COMMANDS[name][0], " ".join(usage.split()), filled, parser.epilog or "")


def _argument(action: argparse.Action) -> Argument:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = "" if action.nargs == 0 else metavar
    choices = tuple(map(str, action.choices)) if action.choices is not None else ()
    if not choices and "|" in metavar:
        choices = tuple(metavar.split("|"))
    if choices:
        value = "|".join(choices)
    elif value == "SETTING":
        choices = tuple(FIELDS)
    return Argument(
        flags=tuple(action.option_strings),
        value=value,
        kind="choice" if choices else _KINDS.get(value, "text"),
        choices=choices,
        help=(action.help or "") % {"prog": "kvtool"},
        optional=action.nargs in {"?", "*"},
        repeated=action.nargs in {"*", "+"},
    )
