"""kvtool man: manual pages, made from the parsers as the help is."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from kvtool import __version__
from kvtool.cli.answers import Manual, Manuals
from kvtool.cli.call import Call
from kvtool.cli.parser import COMMANDS, DESCRIPTION, examples
from kvtool.cli.surface import Argument, Command, commands
from kvtool.core.text import printable

_EXIT_CODES = (
    ("0", "fine"),
    ("1", "failed"),
    ("2", "usage or settings"),
    ("3", "damage found, and left"),
    ("10", "no store"),
    ("11", "the store is locked"),
    ("130", "interrupted"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", help="write the pages there (default: print kvtool(1))"
    )
    examples(
        parser,
        ("kvtool man | man -l -", "read it"),
        ("kvtool man ~/.local/share/man/man1", "for `man kvtool`, `man kvtool-inspect` and so on"),
    )


def run(call: Call) -> int:
    """Prints kvtool(1), or writes it and one page for each command."""
    pages = {"kvtool": overview()} | {f"kvtool-{each.name}": page(each) for each in commands()}
    if call.args.directory is None:
        call.emit(asdict(Manual(page=pages["kvtool"])), pages["kvtool"].rstrip("\n"))
        return 0
    folder = Path(call.args.directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / f"{name}.1").write_text(text, encoding="utf-8")
    files = [str(folder / f"{name}.1") for name in pages]
    call.emit(asdict(Manuals(files=files)), f"{len(files)} pages in {printable(str(folder))}")
    return 0


def overview() -> str:
    """kvtool(1), as roff."""
    lines = [*_title("kvtool", DESCRIPTION), ".SH SYNOPSIS", ".B kvtool", r"\fICOMMAND\fR [\fIARGUMENTS\fR]"]
    for group in dict.fromkeys(group for _, group in COMMANDS.values()):
        lines.append(f".SH {_roff(group).upper()}")
        for name, (text, its) in COMMANDS.items():
            if its == group:
                lines += [".TP", rf"\fBkvtool\-{name}\fR(1)", _line(text)]
    lines.append(".SH EXIT STATUS")
    for code, text in _EXIT_CODES:
        lines += [".TP", f".B {code}", _line(text)]
    return "\n".join(lines) + "\n"


def page(command: Command) -> str:
    """The page of one command, as roff."""
    lines = [*_title(f"kvtool-{command.name}", command.summary), ".SH SYNOPSIS", _line(command.usage)]
    lines.append(".SH OPTIONS")
    for group in command.groups:
        lines += [f".SS {_roff(group.title)}", *([_line(group.about)] if group.about else [])]
        for argument in group.arguments:
            lines += [".TP", _term(argument), _line(argument.help)]
    if command.epilog:
        lines += [".SH EXAMPLES", ".nf", *map(_line, command.epilog.splitlines()[1:]), ".fi"]
    lines += [".SH SEE ALSO", r"\fBkvtool\fR(1)"]
    return "\n".join(lines) + "\n"


def _title(name: str, about: str) -> Iterator[str]:
    yield f'.TH {_roff(name).upper()} 1 "" "kvtool {__version__}" "User Commands"'
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield rf"{_roff(name)} \- {_roff(about)}"


def _term(argument: Argument) -> str:
    value = rf" \fI{_roff(argument.value)}\fR" if argument.value else ""
    if not argument.flags:
        return value.strip()
    return ", ".join(rf"\fB{_roff(flag)}\fR" for flag in argument.flags) + value


def _roff(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def _line(text: str) -> str:
    """A line of text; one that begins with a dot or a quote would be a request to roff."""
    text = _roff(text)
    return rf"\&{text}" if text.startswith((".", "'")) else text
