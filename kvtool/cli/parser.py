"""The commands, and the parser of each: help comes from here, and completion and man pages from that.

A subcommand NAME is the module kvtool.cli.NAME (`import_`, where that is a keyword), imported only when it is
called: with `configure(parser)`, which adds its arguments, and `run(call)`, which returns the exit code.
"""

import argparse
import re
import sys
from importlib import import_module
from keyword import iskeyword
from typing import Any, NoReturn

from kvtool import __version__
from kvtool.cli.call import writing_output
from kvtool.core.text import unescaped
from kvtool.errors import UsageError

DESCRIPTION = "llama-server's saved slots as ordinary files, stored as content-defined chunks."

COMMANDS: dict[str, tuple[str, str]] = {
    "mount": ("mount the store: snapshots as ordinary files", "Mounting"),
    "umount": ("finish what is being written and unmount", "Mounting"),
    "prefetch": ("read snapshots into the page cache: the next restore is warm", "Mounting"),
    "status": ("what the running mount does", "Mounting"),
    "inspect": ("list snapshots with what they cost, or show one in depth", "Snapshots"),
    "label": ("set, remove or list a snapshot's labels", "Snapshots"),
    "cat": ("write a snapshot to standard output, without a mount", "Snapshots"),
    "chunk": ("store a file as a snapshot, without a mount", "Snapshots"),
    "export": ("write snapshots as casync and desync read them", "Snapshots"),
    "import": ("store what casync, desync or export wrote", "Snapshots"),
    "gc": ("free the space of chunks that nothing needs", "Store"),
    "fsck": ("check the store for damage, and mend it", "Store"),
    "verify": ("hash what is stored, and say which snapshots are damaged", "Store"),
    "config": ("show the settings, and where each comes from", "Store"),
    "completion": ("print a completion script for a shell", "Help"),
    "man": ("print the manual page, or write one for each command", "Help"),
}

_EXAMPLES = (
    ("kvtool mount /srv/kv/mnt --background", "then save and restore in /srv/kv/mnt as usual"),
    ("kvtool inspect", "what is stored, and what deleting it would free"),
    ("kvtool umount /srv/kv/mnt", ""),
)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are UsageError, and that takes no abbreviated flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does it, which keeps silent when help cannot be written."""
        stream = file or sys.stderr
        if message and stream is not None:
            with writing_output():
                stream.write(message)

    def error(self, message: str) -> NoReturn:
        # `-http.token=...` is to argparse a -h with a value.
        message = re.sub(r"ignored explicit argument .*", "it takes no value", message, flags=re.DOTALL)
        if re.match(r"argument [^:]+: invalid ", message):
            message = unescaped(message)  # argparse quotes the value as repr() does
        raise UsageError(message, hint=f"`{self.prog} --help` lists what it takes")


def examples(parser: argparse.ArgumentParser, *lines: tuple[str, str]) -> None:
    """Ends the help with command lines and what each does."""
    parser.epilog = _examples_text(lines)


def command_module(name: str) -> Any:
    """The module of a subcommand."""
    return import_module(f"kvtool.cli.{name}_" if iskeyword(name) else f"kvtool.cli.{name}")


def root_parser() -> Parser:
    """The parser for calls without a subcommand: help and version."""
    width = max(map(len, COMMANDS))
    lines: list[str] = []
    for group in dict.fromkeys(group for _, group in COMMANDS.values()):
        lines += [f"{group}:"]
        lines += [f"  {name:<{width}} {text}" for name, (text, its) in COMMANDS.items() if its == group]
        lines += [""]
    lines += [_examples_text(_EXAMPLES), "", "`kvtool COMMAND --help` tells about one command."]
    parser = Parser(
        prog="kvtool",
        usage="kvtool COMMAND [ARGUMENTS]",
        description=DESCRIPTION,
        epilog="\n".join(lines),
    )
    parser.add_argument("--version", action="version", version=f"kvtool {__version__}")
    return parser


def command_parser(name: str) -> Parser:
    """The parser of one subcommand, a key of COMMANDS: its own arguments, and those that all have."""
    from kvtool.settings.fields import FIELDS, choices, env_name, kind, show

    text = COMMANDS[name][0]
    parser = Parser(prog=f"kvtool {name}", description=f"{text[0].upper()}{text[1:]}.")
    command_module(name).configure(parser)
    parser.add_argument("--json", action="store_true", help="answer in JSON, errors too")
    parser.add_argument("--quiet", action="store_true", help="no progress and no advice")
    parser.add_argument("--config", metavar="FILE", help="read this settings file too, above the other two")
    # The settings would fill the usage, and are all alike.
    usage = parser.format_usage().removeprefix("usage: ").rstrip("\n")
    parser.usage = f"{usage} [--SECTION.KEY VALUE ...]".replace("%", "%%")
    groups: dict[str, Any] = {}
    for key, field in FIELDS.items():
        section = key.partition(".")[0]
        if section not in groups:
            about = "" if groups else "`kvtool config --explain` shows where each comes from"
            groups[section] = parser.add_argument_group(f"settings: {section}", about)
        default = "" if field.default_factory else f"default {show(key, field.default) or 'none'}, "
        optional: dict[str, Any] = {"nargs": "?", "const": "true"} if kind(key) == "bool" else {}
        groups[section].add_argument(
            f"--{key}",
            default=argparse.SUPPRESS,
            metavar="|".join(choices(key)) or kind(key).upper(),
            help=f"{field.description} ({default}{env_name(key)})".replace("%", "%%"),
            **optional,
        )
    return parser


def _examples_text(lines: tuple[tuple[str, str], ...]) -> str:
    width = max(len(command) for command, _ in lines)
    return "\n".join(["examples:", *(f"  {command:<{width}}  {text}".rstrip() for command, text in lines)])
