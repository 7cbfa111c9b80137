"""kvtool completion: a script that teaches a shell kvtool's commands, flags, values and snapshot names."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise

from kvtool.cli.answers import Script
from kvtool.cli.call import Call, writing_output
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of
from kvtool.errors import UsageError

_SHELLS = ("bash", "zsh", "fish")
_MADE = "# Made by `kvtool completion`."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "shell",
        choices=[*_SHELLS, "names"],
        help="for which shell; names prints those of the snapshots, as the scripts need them",
    )
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        default=[],  # else argparse names it among those that are missing
        help="for names, after --: what is typed of a command; its flags say which store",
    )
    examples(
        parser,
        ('eval "$(kvtool completion bash)"', "in ~/.bashrc"),
        ("kvtool completion zsh > ~/.zfunc/_kvtool", "with fpath+=~/.zfunc before compinit in ~/.zshrc"),
        ("kvtool completion fish > ~/.config/fish/completions/kvtool.fish", ""),
    )


def run(call: Call) -> int:
    """Prints the script, or the names. Raises UsageError."""
    shell, words = call.args.shell, call.args.words
    if shell == "names":
        lines = list(_names(_typed(call, words)))
    elif words:
        raise UsageError("only `kvtool completion names` takes words")
    else:
        lines = [_script(shell)]
    if call.json:
        call.emit(asdict(Script(shell=shell, text="\n".join(lines))), "")
        return 0
    with writing_output():
        for line in lines:
            print(line)
    return 0


def _script(shell: str) -> str:
    from kvtool.cli import complete_bash, complete_fish, complete_zsh
    from kvtool.cli.surface import commands

    match shell:
        case "bash":
            text = f"{_MADE}\n{complete_bash.script(commands())}"
        case "zsh":  # which looks at the first line of a file
            text = f"#compdef kvtool\n{_MADE}\n{complete_zsh.script(commands())}"
        case _:
            text = f"{_MADE}\n{complete_fish.script(commands())}"
    return text.rstrip("\n")


def _typed(call: Call, words: Sequence[str]) -> Call:
    """The call with those flags among the words that say which store it is about."""
    flags, config = dict(call.flags), call.args.config
    for word, after in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        value = value if equals else after
        if flag == "--config":
            config = value
        elif flag in {"--store.path", "--store.stubs"}:
            flags[flag[2:]] = value
    return Call(argparse.Namespace(**vars(call.args) | {"config": config}), flags)


def _names(call: Call) -> Iterator[str]:
    """The snapshots' names, but for those with a line break."""
    from kvtool.store import stubs

    layout = layout_of(call.values)
    if layout.stubs.is_dir():
        names = (stubs.name_of(layout, path) for path in stubs.walk(layout))
        yield from (name for name in names if "\n" not in name)
