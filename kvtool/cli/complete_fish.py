"""The completion script for fish: a `complete` line for each flag and argument, with where it stands."""

from collections.abc import Iterator, Sequence

from kvtool.cli.surface import Argument, Command, common

_ACTIONS = {
    "file": "-F",
    "directory": "-a '(__fish_complete_directories)'",
    "snapshot": "-a '(__kvtool_snapshots)'",
    "text": "",
}

_HEAD = r"""
# What is behind a tab would be a description.
function __kvtool_snapshots
    kvtool completion names -- (commandline -opc)[2..] 2>/dev/null | string match -rv \t
end

# Whether this is the command itself.
function __kvtool_first
    test (count (commandline -opc)) -eq 1
end

# Whether this is an argument of the command $argv[1]; with $argv[2], one right behind that flag.
function __kvtool_in
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1]; or return
    test -z "$argv[2]"; or test "$words[-1]" = "$argv[2]" # in one test, a ! or -n would be an operator
end

# Whether this is the argument at the place $argv[2] ("more": at any) of the command $argv[1].
function __kvtool_at
    __kvtool_in $argv[1]; or return
    set -l place 0
    set -l before
    set -l end
    for word in (commandline -opc)[3..]
        if contains -- $before $__kvtool_takes; or contains -- "$before $word" $__kvtool_takes
            set before
        else if test -z "$end"; and string match -q -- '-?*' $word
            test $word = --; and set end 1
            set before $word
        else
            set before
            set place (math $place + 1)
        end
    end
    not contains -- $before $__kvtool_takes; and contains -- $argv[2] $place more
end

complete -c kvtool -f
complete -c kvtool -n __kvtool_first -l help -d 'show this help message and exit'
complete -c kvtool -n __kvtool_first -l version -d 'show program\'s version number and exit'
"""


def script(all_: Sequence[Command]) -> str:
    """The script for these commands."""
    return "\n".join(_lines(all_))


def _lines(all_: Sequence[Command]) -> Iterator[str]:
    shared = common(all_)
    takers = dict.fromkeys(word for command in all_ for each in command.flags for word in _taken(each))
    yield "# The flags whose value is the next argument, and those with a word that may be."
    yield f"set -g __kvtool_takes {' '.join(map(_quoted, takers))}"
    yield _HEAD
    for command in all_:
        yield f"complete -c kvtool -n __kvtool_first -a {command.name} -d {_quoted(command.summary)}"
    for argument in shared:
        yield _flag("not __kvtool_first", argument)
        if argument.optional:
            after = f"'test (commandline -opc)[-1] = {argument.flags[0]}'"
            yield f"complete -c kvtool -n {after} {_action(argument)}"
    for command in all_:
        for argument in command.flags:
            if argument not in shared:
                yield _flag(f"__kvtool_in {command.name}", argument)
                if argument.optional:
                    after = f"'__kvtool_in {command.name} {argument.flags[0]}'"
                    yield f"complete -c kvtool -n {after} {_action(argument)}"
        for place, argument in enumerate(command.positionals):
            if _action(argument):
                at = "more" if argument.repeated else place
                yield f"complete -c kvtool -n '__kvtool_at {command.name} {at}' {_action(argument)}"


def _taken(argument: Argument) -> Iterator[str]:
    """What of a flag and the word behind it belongs together: FLAG if that is any word, else both."""
    for flag in argument.flags:
        if argument.optional:
            yield from (f"{flag} {word}" for word in argument.choices)
        elif argument.value:
            yield flag


def _flag(where: str, argument: Argument) -> str:
    spellings = " ".join(
        f"-l {each[2:]}" if each[:2] == "--" else f"-s {each[1:]}" for each in argument.flags
    )
    line = f"complete -c kvtool -n '{where}' {spellings} -d {_quoted(argument.help)}"
    if argument.value and not argument.optional:
        line += " -r" if argument.kind == "file" else " -x"
    return f"{line} {_action(argument)}".rstrip() if argument.value else line


def _action(argument: Argument) -> str:
    return f"-a {_quoted(' '.join(argument.choices))}" if argument.choices else _ACTIONS[argument.kind]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
