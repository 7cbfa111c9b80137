"""The console script: finds the subcommand, and turns every error into a line and an exit code.

A subcommand NAME is the module kvtool.cli.NAME, imported only when it is called: with `configure(parser)`,
which adds its arguments, and `run(call)`, which returns the exit code.
"""

import argparse
import codecs
import difflib
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from kvtool import __version__
from kvtool.cli.call import Call, printable, to_json
from kvtool.errors import KvtoolError, SettingsError, UsageError, reason

COMMANDS: dict[str, tuple[str, str]] = {
    "mount": ("mount the store: snapshots as ordinary files", "Mounting"),
    "umount": ("finish what is being written and unmount", "Mounting"),
    "prefetch": ("read snapshots into the page cache: the next restore is warm", "Mounting"),
    "status": ("what the running mount does", "Mounting"),
    "inspect": ("list snapshots with their sizes, or show one", "Snapshots"),
    "cat": ("write a snapshot to standard output, without a mount", "Snapshots"),
    "chunk": ("store a file as a snapshot, without a mount", "Snapshots"),
    "gc": ("free the space of chunks that nothing needs", "Store"),
    "fsck": ("check the store for damage, and mend it", "Store"),
    "verify": ("hash what is stored, and say which snapshots are damaged", "Store"),
    "config": ("show the settings, and where each comes from", "Store"),
}

_OS_HINTS = {
    errno.EACCES: "run as the user it belongs to, or choose another place",
    errno.EPERM: "run as the user it belongs to, or choose another place",
    errno.ENOTDIR: "choose another place: a part of that path is a file",
    errno.EROFS: "its disk is mounted read-only: choose another place, or mount it writable",
    errno.ENOSPC: "free some space on that disk; in a running mount, delete snapshots and run `kvtool gc`",
    errno.EDQUOT: "free some space on that disk; in a running mount, delete snapshots and run `kvtool gc`",
    errno.EIO: "the disk fails: see what the kernel says (dmesg)",
}


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are UsageError, and that takes no abbreviated flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"`{self.prog} --help` lists what it takes")


def root_parser() -> Parser:
    """The parser for calls without a subcommand: help and version."""
    lines: list[str] = []
    for group in dict.fromkeys(group for _, group in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:<9} {text}" for name, (text, its) in COMMANDS.items() if its == group]
    parser = Parser(
        prog="kvtool",
        usage="kvtool COMMAND [ARGUMENTS]",
        description="llama-server's saved slots as ordinary files, stored as content-defined chunks.",
        epilog="\n".join([*lines[1:], "", "`kvtool COMMAND --help` tells about one command."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvtool {__version__}")
    return parser


def command_parser(name: str) -> Parser:
    """The parser of one subcommand, a key of COMMANDS: its own arguments, and those that all have."""
    from kvtool.settings.fields import FIELDS, choices, env_name, kind, show

    parser = Parser(prog=f"kvtool {name}", description=COMMANDS[name][0])
    import_module(f"kvtool.cli.{name}").configure(parser)
    parser.add_argument("--json", action="store_true", help="answer in JSON, errors too")
    parser.add_argument("--config", metavar="FILE", help="read this settings file too, above the other two")
    # The settings would fill the usage, and are all alike.
    usage = parser.format_usage().removeprefix("usage: ").rstrip("\n")
    parser.usage = f"{usage} [--SECTION.KEY VALUE ...]".replace("%", "%%")
    group = parser.add_argument_group("settings", "`kvtool config --explain` shows where each comes from")
    for key, field in FIELDS.items():
        default = "" if field.default_factory else f"default {show(key, field.default)}, "
        optional: dict[str, Any] = {"nargs": "?", "const": "true"} if kind(key) == "bool" else {}
        group.add_argument(
            f"--{key}",
            default=argparse.SUPPRESS,
            metavar="|".join(choices(key)) or kind(key).upper(),
            help=f"{field.description} ({default}{env_name(key)})".replace("%", "%%"),
            **optional,
        )
    return parser


def _join_bools(argv: Sequence[str]) -> list[str]:
    """`--mount.allow_other` joined with its value, as argparse would take any next argument for one."""
    from kvtool.settings.fields import FIELDS, kind

    bools = {f"--{key}" for key in FIELDS if kind(key) == "bool"}
    end = argv.index("--") if "--" in argv else len(argv)
    joined: list[str] = []
    for word in argv[:end]:
        if joined and joined[-1] in bools and word in ("true", "false"):
            joined[-1] += f"={word}"
        else:
            if joined and joined[-1] in bools:
                joined[-1] += "=true"
            joined.append(word)
    if joined and joined[-1] in bools:
        joined[-1] += "=true"
    return joined + list(argv[end:])


def parse(argv: Sequence[str]) -> tuple[str, Call]:
    """The subcommand's name and its call. Raises UsageError; SystemExit after help or version."""
    if not argv or argv[0] not in COMMANDS:
        _, words = root_parser().parse_known_args(argv)
        if not words:
            raise UsageError("the command is missing", hint="`kvtool --help` lists the commands")
        unknown = next((word for word in words if not word.startswith("-")), words[0])
        if unknown in COMMANDS:
            raise UsageError(f"arguments stand after the command: kvtool {unknown} ...")
        near = difflib.get_close_matches(unknown, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else "`kvtool --help` lists the commands"
        raise UsageError(f"{unknown!r} is not a command", hint=hint)
    from kvtool.settings.fields import FIELDS

    name = argv[0]
    args = command_parser(name).parse_args(_join_bools(argv[1:]))
    given = vars(args)
    return name, Call(args, {key: given[key] for key in FIELDS if key in given})


def entry() -> int:
    """Run the command line of this process. Returns the exit code; no exception but SystemExit leaves it."""
    _print_any_name()
    try:
        try:
            return _run(sys.argv[1:])
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes again at exit, which must not fail in turn.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):  # whoever reads has enough
            print(f"kvtool: error: standard output: {reason(error)}", file=sys.stderr)
        return 1


def _run(argv: Sequence[str]) -> int:
    call: Call | None = None
    try:
        name, call = parse(argv)
        code: int = import_module(f"kvtool.cli.{name}").run(call)
        return code
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return _report("interrupted", "interrupted", None, 130, argv)
    except KvtoolError as error:
        return _report(error.code, error.message, error.hint, error.exit_code, argv)
    except OSError as error:
        hint = _OS_HINTS.get(error.errno) if error.errno is not None else None
        return _report("os", reason(error), hint, 1, argv)
    except Exception as error:
        if call is not None and call.debug:
            traceback.print_exc()
        what = f"internal error: {type(error).__name__}: {error}"
        return _report("internal", what, "run it again with `--log.level debug` to see where", 1, argv)


def _report(code: str, message: str, hint: str | None, exit_code: int, argv: Sequence[str]) -> int:
    """Print one error, as a line on standard error or as JSON on standard output. Returns `exit_code`."""
    if "--json" in argv[: argv.index("--") if "--" in argv else None]:
        error = {"code": code, "message": message, "hint": hint, "exit": exit_code}
        try:
            print(to_json({"error": error}), flush=True)
        except OSError as failure:
            if isinstance(failure, BrokenPipeError):
                raise
            # Standard output itself is what fails: there is nowhere to say it.
        return exit_code
    # Several wrong settings are the only message of several lines; elsewhere a line break is part of a name.
    lines = message.split("\n") if code == SettingsError.code else [message]
    if hint and len(lines) > 1:
        lines.append(hint)
    elif hint:
        lines[0] += f"; {hint}"
    print("kvtool: error: " + "\n".join(map(printable, lines)), file=sys.stderr)
    return exit_code


def _print_any_name() -> None:
    """Let standard output take any text: bytes of names as they were, other characters it lacks escaped."""

    def encode(error: UnicodeError) -> tuple[str | bytes, int]:
        try:
            return codecs.lookup_error("surrogateescape")(error)
        except UnicodeError:
            return codecs.lookup_error("backslashreplace")(error)

    codecs.register_error("kvtool", encode)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="kvtool")
