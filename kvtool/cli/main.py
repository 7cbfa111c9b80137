"""The console script: finds the subcommand, and turns every error into a line and an exit code."""

import codecs
import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict

from kvtool.cli.call import Call, say, to_json, writing_output
from kvtool.cli.parser import COMMANDS, command_module, command_parser, root_parser
from kvtool.cli.table import paint
from kvtool.core.text import printable
from kvtool.errors import KvtoolError, OutputFailed, SettingsError, UsageError, reason

_GC_THRESHOLD = 20_000  # objects made between two looks of the interpreter for what can be freed

_OS_HINTS = {
    errno.EACCES: "run as the user it belongs to, or choose another place",
    errno.EPERM: "run as the user it belongs to, or choose another place",
    errno.ENOTDIR: "choose another place: a part of that path is a file",
    errno.EROFS: "its disk is mounted read-only: choose another place, or mount it writable",
    errno.ENOSPC: "free some space on that disk; in a running mount, delete snapshots and run `kvtool gc`",
    errno.EDQUOT: "free some space on that disk; in a running mount, delete snapshots and run `kvtool gc`",
    errno.EIO: "the disk fails: see what the kernel says (dmesg)",
}


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
        if words[0].startswith("-"):  # what follows may be its value, and that a secret: it is not shown
            command = next((word for word in words if word in COMMANDS), "COMMAND")
            raise UsageError(
                f"arguments stand after the command: kvtool {command} ...",
                hint="`kvtool --help` lists the commands",
            )
        import difflib

        unknown = words[0]
        near = difflib.get_close_matches(unknown, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else "`kvtool --help` lists the commands"
        raise UsageError(f"'{unknown}' is not a command", hint=hint)
    from kvtool.cli.flags import check_flags, refuse, take_more, take_unknown
    from kvtool.settings.fields import FIELDS

    name = argv[0]
    unsettled, words = take_unknown(argv[1:], FIELDS)
    parser = command_parser(name)
    try:
        args, rest = parser.parse_known_args(_join_bools(words))
        refuse(parser, take_more(parser, args, rest))
    except UsageError:
        check_flags(unsettled)
        raise
    given = vars(args)
    return name, Call(args, {key: given[key] for key in FIELDS if key in given} | unsettled)


def entry() -> int:
    """Run the command line of this process. Returns the exit code; no exception but SystemExit leaves it."""
    _print_any_name()
    # Imports and long lists leave no rubbish: looking for it took a tenth of the time of `kvtool inspect`.
    gc.set_threshold(_GC_THRESHOLD)
    # pydantic would look for plugins of its own in every installed package, at each start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    argv = sys.argv[1:]
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                with writing_output():
                    sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough
        return _without_output(KvtoolError.exit_code)
    except OutputFailed as error:
        return _without_output(_report(error.code, error.message, error.hint, error.exit_code, ()))


def _without_output(exit_code: int) -> int:
    """Keeps the interpreter from failing in turn: it writes what is left at exit. Returns `exit_code`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return exit_code


def _run(argv: Sequence[str]) -> int:
    call: Call | None = None
    try:
        name, call = parse(argv)
        command = command_module(name)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see __main__
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code: int = command.run(call)
        return code
    except (BrokenPipeError, OutputFailed):
        raise
    except KeyboardInterrupt:
        return _report("interrupted", "interrupted", None, 130, argv)
    except KvtoolError as error:
        lines = error.lines if isinstance(error, SettingsError) else ()
        return _report(error.code, error.message, error.hint, error.exit_code, argv, lines)
    except OSError as error:
        if error.errno == errno.ENOENT and error.filename is None and _is_nowhere():
            return _report("os", "the working directory is gone", "change to one that is there", 1, argv)
        hint = _OS_HINTS.get(error.errno) if error.errno is not None else None
        return _report("os", reason(error), hint, 1, argv)
    except MemoryError:
        hint = "free some, or run it where there is more"
        return _report("os", os.strerror(errno.ENOMEM), hint, 1, argv)
    except Exception as error:
        if call is not None and call.debug:
            import traceback

            traceback.print_exc()
        what = f"internal error: {type(error).__name__}: {error}"
        return _report("internal", what, "run it again with `--log.level debug` to see where", 1, argv)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # What pydantic's Rust makes of a KeyboardInterrupt: nothing else makes it panic.
        return _report("interrupted", "interrupted", None, 130, argv)


def _is_nowhere() -> bool:
    """Whether the working directory was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _report(
    code: str,
    message: str,
    hint: str | None,
    exit_code: int,
    argv: Sequence[str],
    parts: Sequence[str] = (),
) -> int:
    """Print one error, as a line on standard error or as JSON on standard output. Returns `exit_code`.

    `parts` are the lines of a message of several; elsewhere a line break is part of a name.
    """
    if "--json" in argv[: argv.index("--") if "--" in argv else None]:
        from kvtool.cli.answers import Failed, Failure

        failed = Failed(error=Failure(code=code, message=message, hint=hint, exit=exit_code))
        with writing_output():
            print(to_json(asdict(failed)), flush=True)
        return exit_code
    lines = list(parts) or [message]
    if hint and len(lines) > 1:
        lines.append(hint)
    elif hint:
        lines[0] += f"; {hint}"
    say(paint("kvtool: error:", "red", sys.stderr) + " " + "\n".join(map(printable, lines)))
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
