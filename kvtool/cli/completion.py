"""kvtool completion: a script that teaches a shell kvtool's commands, flags, values and snapshot names."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from kvtool.cli.answers import Script
from kvtool.cli.call import Call, writing_output
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of
from kvtool.cli.surface import Argument, Command, commands

_NAMES = "kvtool completion names 2>/dev/null"
_HEAD = "# Made by `kvtool completion`."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "shell",
        choices=[*_SHELLS, "names"],
        help="for which shell; names prints those of the snapshots, as the scripts need them",
    )
    examples(
        parser,
        ('eval "$(kvtool completion bash)"', "in ~/.bashrc"),
        ("kvtool completion zsh > ~/.zfunc/_kvtool", "with fpath+=~/.zfunc before compinit in ~/.zshrc"),
        ("kvtool completion fish > ~/.config/fish/completions/kvtool.fish", ""),
    )


def run(call: Call) -> int:
    """Prints the script, or the names."""
    shell = call.args.shell
    lines = list(_names(call) if shell == "names" else _SHELLS[shell](commands()))
    if call.json:
        call.emit(asdict(Script(shell=shell, text="\n".join(lines))), "")
        return 0
    with writing_output():
        print("\n".join(lines), flush=True)
    return 0


def _names(call: Call) -> Iterator[str]:
    """The snapshots' names, but for those with a line break."""
    from kvtool.store import stubs

    layout = layout_of(call.values)
    if layout.stubs.is_dir():
        names = (stubs.name_of(layout, path) for path in stubs.walk(layout))
        yield from (name for name in names if "\n" not in name)


def _bash(all_: Sequence[Command]) -> Iterator[str]:
    kinds = {
        "file": 'mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null',
        "directory": 'mapfile -t COMPREPLY < <(compgen -d -- "$cur"); compopt -o filenames 2>/dev/null',
        "snapshot": "_kvtool_snapshots",
        "text": ":",
    }

    def words(texts: Sequence[str]) -> str:
        return f'mapfile -t COMPREPLY < <(compgen -W {shlex.quote(" ".join(texts))} -- "$cur")'

    def act(argument: Argument) -> str:
        return words(argument.choices) if argument.choices else kinds[argument.kind]

    yield _HEAD
    yield "_kvtool_snapshots() {"
    yield "    local name"
    yield "    while IFS= read -r name; do"
    yield '        [[ $name == "$cur"* ]] && COMPREPLY+=("$name")'
    yield f"    done < <({_NAMES})"
    yield "    compopt -o filenames 2>/dev/null"
    yield "}"
    yield "_kvtool() {"
    yield "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}"
    yield "    local command=${COMP_WORDS[1]}"
    yield "    COMPREPLY=()"
    yield "    if ((COMP_CWORD == 1)); then"
    yield f"        {words([*(each.name for each in all_), '--help', '--version'])}; return"
    yield "    fi"
    yield "    case $command:$before in"
    for command in all_:
        for argument in command.flags:
            if argument.value and not argument.optional:
                pattern = "|".join(f"{command.name}:{flag}" for flag in argument.flags)
                yield f"        {pattern}) {act(argument)}; return ;;"
    yield "    esac"
    yield "    if [[ $cur == -* ]]; then"
    yield "        case $command in"
    for command in all_:
        flags = [flag for argument in command.flags for flag in argument.flags]
        yield f"            {command.name}) {words(flags)} ;;"
    yield "        esac"
    yield "        return"
    yield "    fi"
    yield "    case $command in"
    for command in all_:
        if command.positionals:
            yield f"        {command.name}) {act(command.positionals[0])} ;;"
    yield "    esac"
    yield "}"
    yield "complete -F _kvtool kvtool"


def _zsh(all_: Sequence[Command]) -> Iterator[str]:
    kinds = {"file": "_files", "directory": "_files -/", "snapshot": "_kvtool_snapshots", "text": " "}

    def plain(text: str) -> str:
        return "".join(f"\\{char}" if char in "[]:\\" else char for char in text)

    def value(argument: Argument) -> str:
        act = f"({' '.join(argument.choices)})" if argument.choices else kinds[argument.kind]
        return f"{'::' if argument.optional else ':'}{plain(argument.value)}:{act}"

    yield "#compdef kvtool"  # zsh looks for this in the first line
    yield _HEAD
    yield "_kvtool_snapshots() {"
    yield "    local -a names"
    yield f'    names=(${{(f)"$({_NAMES})"}})'
    yield "    compadd -a names"
    yield "}"
    yield "_kvtool() {"
    yield "    local -a commands"
    yield "    commands=("
    for command in all_:
        yield f"        {shlex.quote(f'{command.name}:{plain(command.summary)}')}"
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield "    case $command in"
    for command in all_:
        yield f"        {command.name})"
        specs = [
            f"{flag}[{plain(argument.help)}]{value(argument) if argument.value else ''}"
            for argument in command.flags
            for flag in argument.flags
        ]
        for argument in command.positionals:
            specs.append(("*" if argument.repeated else "") + value(argument))
        yield " \\\n".join(
            ["            _arguments", *(f"                {shlex.quote(spec)}" for spec in specs)]
        )
        yield "            ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _kvtool ]]; then _kvtool "$@"; else compdef _kvtool kvtool; fi'


def _fish(all_: Sequence[Command]) -> Iterator[str]:
    kinds = {
        "file": "-r -F",
        "directory": "-x -a '(__fish_complete_directories)'",
        "snapshot": f"-x -a '({_NAMES})'",
        "text": "-x",
    }

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def act(argument: Argument) -> str:
        return f"-x -a {quoted(' '.join(argument.choices))}" if argument.choices else kinds[argument.kind]

    yield _HEAD
    yield "complete -c kvtool -f"
    for command in all_:
        yield f"complete -c kvtool -n __fish_use_subcommand -a {command.name} -d {quoted(command.summary)}"
    for command in all_:
        where = f"complete -c kvtool -n '__fish_seen_subcommand_from {command.name}'"
        for argument in command.flags:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags
            )
            takes = act(argument) if argument.value and not argument.optional else ""
            yield f"{where} {flags} -d {quoted(argument.help)} {takes}".rstrip()
        for argument in command.positionals[:1]:
            if argument.kind != "text":
                yield f"{where} {act(argument).replace('-r -F', '-F').replace('-x ', '')}"


_SHELLS: dict[str, Callable[[Sequence[Command]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
