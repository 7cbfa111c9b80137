"""The completion script for zsh: a specification of each command's arguments for its `_arguments`."""

import shlex
from collections.abc import Iterator, Sequence

from kvtool.cli.surface import Argument, Command, common

_ACTIONS = {"file": "_files", "directory": "_files -/", "snapshot": "_kvtool_snapshots", "text": " "}

_HEAD = r"""
_kvtool_snapshots() {
    local -a names
    names=(${(f)"$(kvtool completion names -- "${(@Q)words[1,CURRENT-1]}" 2>/dev/null)"})
    compadd -a names
}
"""


def script(all_: Sequence[Command]) -> str:
    """The script for these commands."""
    return "\n".join(_lines(all_))


def _lines(all_: Sequence[Command]) -> Iterator[str]:
    shared = common(all_)
    yield _HEAD
    yield "_kvtool() {"
    yield "    local -a commands common"
    yield "    commands=("
    for command in all_:
        yield f"        {shlex.quote(f'{command.name}:{_plain(command.summary)}')}"
    yield "    )"
    yield "    common=("
    for argument in shared:
        yield from _specifications(argument)
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe command commands || compadd -- --help --version"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield "    case $command in"
    for command in all_:
        yield f"        {command.name}) _arguments -S $common \\"
        own = [each for each in command.flags if each not in shared]
        for argument in [*own, *command.positionals]:
            for line in _specifications(argument):
                yield f"    {line} \\"
        yield "            ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _kvtool ]]; then _kvtool "$@"; else compdef _kvtool kvtool; fi'


def _specifications(argument: Argument) -> Iterator[str]:
    value = ""
    if argument.value:
        action = f"({' '.join(argument.choices)})" if argument.choices else _ACTIONS[argument.kind]
        # With a star, two colons would take the flags out of `words`, and with them where the store is.
        colons = "::" if argument.optional and not argument.repeated else ":"
        value = f"{colons}{_plain(argument.value)}:{action}"
    for flag in argument.flags:
        equals = "=" if value else ""
        yield f"        {shlex.quote(f'{flag}{equals}[{_plain(argument.help)}]{value}')}"
    if not argument.flags:
        yield f"        {shlex.quote(('*' if argument.repeated else '') + value)}"


def _plain(text: str) -> str:
    return "".join(f"\\{char}" if char in "[]:\\" else char for char in text)
