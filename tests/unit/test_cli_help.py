"""Help and manual pages: both made from the parsers, so that none lacks a command or a flag."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kvtool.cli.main import parse
from kvtool.cli.parser import COMMANDS, command_parser, root_parser
from kvtool.cli.surface import commands
from kvtool.errors import UsageError
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


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("label a --json k=v --quiet l=", {"name": "a", "labels": ["k=v", "l="]}),
        ("label --store.path s a k=v -- -l=w", {"name": "a", "labels": ["k=v", "-l=w"]}),
        ("label a --json", {"name": "a", "labels": []}),
        ("verify a --repair b", {"names": ["a", "b"]}),
        ("export a --to x b --json -- -c", {"names": ["a", "b", "-c"]}),
        ("completion names --json -- cat -- --json", {"words": ["cat", "--", "--json"]}),
    ],
)
def test_arguments_may_stand_between_flags(typed: str, wanted: dict[str, object]) -> None:
    _, call = parse(typed.split())
    assert {key: getattr(call.args, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("inspect a --json b", "unrecognized arguments: b"),
        ("label a --bogus k=v", "unrecognized arguments: --bogus"),
        ("label", "the following arguments are required: NAME"),
        ("completion", "the following arguments are required: shell"),
    ],
)
def test_what_no_argument_takes_is_named_and_what_lacks(typed: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(typed.split())
    assert caught.value.message == message


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
