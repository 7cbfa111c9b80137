"""Help, completion and manual pages: all made from the parsers, so that none lacks a command or a flag."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from kvtool.cli.parser import COMMANDS, command_parser, root_parser
from kvtool.cli.surface import commands
from kvtool.store.layout import Layout
from tests.cli import Cli
from tests.stores import layout_in, open_store, save

FLAGS = {each.name: [flag for argument in each.flags for flag in argument.flags] for each in commands()}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    with open_store(tmp_path) as store:
        for name in ("chat one", "chat$two", "di\nvided", "other"):
            save(store, name.encode(), name)
    return layout_in(tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_and_groups(name: str) -> None:
    text = command_parser(name).format_help()
    assert "settings: store:" in text
    assert "KVTOOL_MOUNT__READ_AHEAD" in text
    assert "--quiet" in text
    if name != "config":
        assert f"examples:\n  kvtool {name}" in text.replace('eval "$(kvtool', "kvtool")
    assert f"  {name} " in root_parser().format_help()


def test_the_documentation_has_every_command_in_its_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    rows = text.partition("| command | |")[2].partition("\n\n")[0].splitlines()
    named = [word for row in rows for word in row.split("|")[1:2] for word in word.split("`")[1::2]]
    assert sorted(named) == sorted(COMMANDS)


def test_a_label_that_does_not_fit_is_told_with_both_lengths(cli: Cli) -> None:
    done = cli("label", "other", f"{'k' * 300}=v")
    assert done.returncode == 2
    assert "(a name of 300 bytes and a value of 1) does not fit" in done.stderr


def test_examples_are_command_lines_that_are_understood() -> None:
    for name in COMMANDS:
        parser = command_parser(name)
        for line in (parser.epilog or "").splitlines()[1:]:
            words = line.strip().split("  ")[0].replace('eval "$(', "").replace(')"', "").split()
            words = words[: next((i for i, word in enumerate(words) if word in {">", "|"}), None)]
            assert words[:2] == ["kvtool", name]
            parser.parse_args(words[2:])


def bash(script: str, code: str, path: Path) -> list[list[str]]:
    """What bash completes for each line of `code`: the words of a command line, the last one unfinished."""
    run = (
        'complete_() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvtool;'
        ' printf "%s\\1" "${COMPREPLY[@]}"; echo; }\n'
    )
    lines = "\n".join(f"complete_ {line}" for line in code.splitlines())
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{run}{lines}"],
        capture_output=True,
        check=True,
        text=True,
        cwd=path,
        timeout=60,
    )
    assert done.stderr == ""
    return [[word for word in line.split("\1") if word] for line in done.stdout.splitlines()]


def test_bash_completes_commands_flags_values_and_names(cli: Cli, layout: Layout, tmp_path: Path) -> None:
    script = cli("completion", "bash").stdout.decode()
    # In the place of the program: only the script is tried here, `names` below.
    script += 'kvtool() { printf "%s\\n" "chat one" "chat\\$two" other; }\n'
    (tmp_path / "a file").touch()
    every = "\n".join(f"kvtool {name} -" for name in COMMANDS)
    found = bash(script, every, tmp_path)
    assert dict(zip(COMMANDS, map(sorted, found), strict=True)) == {
        name: sorted(flags) for name, flags in FLAGS.items()
    }
    found = bash(
        script,
        "kvtool ''\nkvtool ins\nkvtool inspect --sort s\nkvtool gc --store.durability ''\n"
        "kvtool cat chat\nkvtool chunk a\nkvtool mount ''\nkvtool inspect --match x",
        tmp_path,
    )
    assert found[0] == [*COMMANDS, "--help", "--version"]
    assert found[1:4] == [["inspect"], ["size", "shared", "score"], ["process", "power"]]
    assert found[4:6] == [["chat one", "chat$two"], ["a file"]]
    assert sorted(found[6]) == ["store", "stubs"]
    assert found[7] == []


def test_the_names_that_are_completed(cli: Cli) -> None:
    assert cli("completion", "names").stdout.decode().splitlines() == ["chat one", "chat$two", "other"]
    cli.flags = ("--store.path", "/nonexistent")
    assert cli("completion", "names").stdout.split() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_name_every_command_and_flag(cli: Cli, shell: str, tmp_path: Path) -> None:
    done = cli("completion", shell)
    text = done.stdout.decode()
    assert done.returncode == 0
    for name, flags in FLAGS.items():
        assert name in text
        for flag in flags:
            dashes = "-l" if flag.startswith("--") else "-s"
            assert (f" {dashes} {flag.lstrip('-')} " if shell == "fish" else flag) in text
    assert json.loads(cli("completion", shell, "--json").stdout)["text"] == text.rstrip("\n")
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(text)
        subprocess.run([shell, "-n", str(script)], check=True, timeout=60)
    # zsh looks for a completion in the first line of a file.
    assert shell != "zsh" or text.startswith("#compdef kvtool\n")


def test_the_manual_has_every_command_and_flag(cli: Cli, tmp_path: Path) -> None:
    overview = cli("man").stdout.decode()
    assert all(rf"kvtool\-{name}" in overview for name in COMMANDS)
    folder = tmp_path / "share" / "man1"
    written = cli.json("man", str(folder))["files"]
    assert sorted(written) == sorted(str(path) for path in folder.iterdir())
    assert len(written) == 1 + len(COMMANDS)
    assert cli("man", str(tmp_path / "a\nb\udcff")).stdout.endswith(b"/a\\nb\\udcff\n")
    for name, flags in FLAGS.items():
        page = (folder / f"kvtool-{name}.1").read_text()
        assert all(rf"\fB{flag.replace('-', chr(92) + '-')}\fR" in page for flag in flags)
        if shutil.which("groff"):
            done = subprocess.run(
                ["groff", "-man", "-Tutf8", "-ww", "-z"],
                input=page,
                text=True,
                capture_output=True,
                check=True,
            )
            assert done.stderr == ""
