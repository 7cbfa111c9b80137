"""Completion: the scripts in real shells, most of it as if typed, and what the scripts ask kvtool for."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kvtool.cli.parser import COMMANDS
from kvtool.cli.surface import commands
from kvtool.settings.fields import FIELDS
from kvtool.store.layout import Layout
from tests.cli import Cli
from tests.shells import Terminal
from tests.stores import layout_in, open_store, save

FLAGS = {each.name: [flag for argument in each.flags for flag in argument.flags] for each in commands()}
SHELLS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed"))
    for name in ("bash", "zsh", "fish")
]
LEFT = "\x02"  # Ctrl-B moves the cursor
# Each begins with a letter of its own, but for marks that have to be quoted.
ODD = [
    "a name",
    "b:c d",
    "e=f:g",
    "h$HOME",
    "i's",
    'j"k',
    "größe ü",
    "l`m`",
    "n\\o",
    "p[a]*?",
    "q#r",
    "s!t",
    "u;v&w|<>()",
    "dir/sub name",
    "x@y z",
    "{1,2}",
    "~tilde",
    "-dash",
    "folder",
]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return layout_in(tmp_path)


def script_of(cli: Cli, shell: str) -> str:
    done = cli("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.decode()


def begun(name: str, quote: str, shell: str) -> list[str]:
    """Beginnings of `name` as one types them in an open quote, or without one after backslashes."""
    special = {'"': '"\\$' if shell == "fish" else '"\\$`', "'": "'\\" if shell == "fish" else ""}
    beginnings = []
    for length in range(1, len(name) + 1):
        part = name[:length]
        if length > 1 and part[-1].isalnum():
            continue
        if quote:
            typed = quote + "".join(f"\\{char}" if char in special[quote] else char for char in part)
        else:
            typed = "".join(char if char.isalnum() or char in ":=@-/" else f"\\{char}" for char in part)
        in_single = quote == "'" and shell != "fish" and "'" in part  # cannot be typed there
        history = quote == '"' and "!" in part  # nor this
        pattern = shell == "fish" and set(part) & set("*?")  # to fish that is one, quoted or not
        if not (in_single or history or pattern):
            beginnings.append(typed)
    return beginnings


@pytest.mark.parametrize("quote", ["", '"', "'"], ids=["plain", "double", "single"])
@pytest.mark.parametrize("shell", SHELLS)
def test_any_name_is_completed_from_any_beginning(cli: Cli, shell: str, quote: str, tmp_path: Path) -> None:
    with Terminal(shell, script_of(cli, shell), tmp_path / "home", ODD) as terminal:
        (tmp_path / "home" / "folder").mkdir()  # named like a snapshot
        for name in ODD:
            for typed in begun(name, quote, shell):
                assert terminal.enter(f"kvtool cat -- {typed}\t") == ["cat", "--", name], typed


@pytest.mark.parametrize("shell", SHELLS)
def test_names_that_begin_alike_are_completed_as_far_as_they_do(cli: Cli, shell: str, tmp_path: Path) -> None:
    with Terminal(shell, script_of(cli, shell), tmp_path / "home", ["a b:c $1", "a b:c $2"]) as terminal:
        for typed in ("a\t2\t", '"a\t2\t', "'a\t2\t", "a\\ b:\t2\t"):
            assert terminal.enter(f"kvtool cat {typed}") == ["cat", "a b:c $2"], typed


LINES = [
    ("ins\t", ["inspect"]),
    ("--vers\t", ["--version"]),
    ("gc --store.dur\t pow\t", ["gc", "--store.durability", "power"]),
    ("gc --store.durability=pow\t", ["gc", "--store.durability=power"]),
    ("inspect --sort=last\t", ["inspect", "--sort=last-used"]),
    ("mount --mount.allow_other tr\t", ["mount", "--mount.allow_other", "true"]),
    ("mount --mount.allow_other=fa\t", ["mount", "--mount.allow_other=false"]),
    ("mount --mount.allow_other true fold\t", ["mount", "--mount.allow_other", "true", "folder"]),
    ("config --explain store.pa\t", ["config", "--explain", "store.path"]),
    ("config --explain=store.pa\t", ["config", "--explain=store.path"]),
    ("config --init fi\t", ["config", "--init", "file one"]),
    ("chunk fi\t --name=ch\t", ["chunk", "file one", "--name=chat one"]),
    ('chunk fi\t --name="ch\t', ["chunk", "file one", "--name=chat one"]),
    ("chunk --name ch\t fi\t", ["chunk", "--name", "chat one", "file one"]),
    ('cat chat\\ \t --output "fi\t', ["cat", "chat one", "--output", "file one"]),
    ("cat ch\t --output=fi\t", ["cat", "chat one", "--output=file one"]),
    ("cat ch\t > fi\t", ["cat", "chat one"]),
    ("export ch\t 'ot\t --to=fold\t", ["export", "chat one", "other", "--to=folder"]),
    ("mount --store.path ~/fold\t f", ["mount", "--store.path", "{home}/folder", "f"]),
    ("label ch\t ot\t", ["label", "chat one", "ot"]),
    ("label ch\t folde\t", ["label", "chat one", "folde"]),
    ("gc --chunk.min_size=fi\t", ["gc", "--chunk.min_size=fi"]),
    ("verify ch\t ot\t", ["verify", "chat one", "other"]),
]


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_typed_is_completed(cli: Cli, shell: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Terminal(shell, script_of(cli, shell), home, ["chat one", "other"]) as terminal:
        (home / "file one").touch()
        (home / "folder").mkdir()
        for typed, wanted in LINES:
            got = [word.rstrip("/") for word in terminal.enter(f"kvtool {typed}")]
            assert got == [word.format(home=home) for word in wanted], typed


@pytest.mark.parametrize("shell", SHELLS)
def test_names_are_asked_for_with_what_is_typed(cli: Cli, shell: str, tmp_path: Path) -> None:
    with Terminal(shell, script_of(cli, shell), tmp_path / "home", ["chat one", "other"]) as terminal:
        for before in ("export ot\\her", "verify ot\\her", "label", "cat --output x"):
            terminal.enter(f"kvtool {before} --store.path='/a b' --config ~/c ch\t --to x")
            asked = [*shlex.split(before), "--store.path=/a b", "--config", "~/c"]
            assert terminal.asked() == ["completion", "names", "--", *asked]


@pytest.mark.parametrize("shell", SHELLS)
def test_without_snapshots_nothing_is_typed(cli: Cli, shell: str, tmp_path: Path) -> None:
    with Terminal(shell, script_of(cli, shell), tmp_path / "home", []) as terminal:
        for typed in ('cat "\tx"', "cat '\tx'", "cat \t x"):
            assert terminal.enter(f"kvtool {typed}") == ["cat", "x"], typed


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_says_nothing_whatever_stands_before(cli: Cli, tmp_path: Path) -> None:
    with Terminal("fish", script_of(cli, "fish"), tmp_path / "home", ["chat one"]) as terminal:
        for word in ("!", "(", "-n", "-f", "=", "-a"):
            assert terminal.enter(f"kvtool config '{word}' \t") == ["config", word]
        assert "test:" not in terminal.screen()


@pytest.mark.parametrize(
    "options", ["COMP_WORDBREAKS=' '", "set -fu; shopt -s failglob nocasematch", "IFS=:"]
)
def test_bash_may_be_set_up_otherwise(cli: Cli, options: str, tmp_path: Path) -> None:
    script = f"{script_of(cli, 'bash')}\n{options}"
    with Terminal("bash", script, tmp_path / "home", ["b:c d", "e=f", "t\tab"]) as terminal:
        (tmp_path / "home" / "file one").touch()
        for typed, wanted in {
            "cat b:\t": ["cat", "b:c d"],
            "cat 'b:\t": ["cat", "b:c d"],
            "cat e=\t": ["cat", "e=f"],
            "cat t\t": ["cat", "t\tab"],
            "chunk --name=b:\t": ["chunk", "--name=b:c d"],
            "chunk --name='b:\t": ["chunk", "--name=b:c d"],
            "cat b --json" + 7 * LEFT + "\t": ["cat", "b:c d", "--json"],
            "cat --output=fi\t": ["cat", "--output=file one"],
            "gc --store.durability=po\t": ["gc", "--store.durability=power"],
            "cat b >fi\t": ["cat", "b"],
        }.items():
            assert terminal.enter(f"kvtool {typed}") == wanted, typed


def offered(script: str, lines: list[str], path: Path) -> list[list[str]]:
    """What bash offers at the end of each line."""
    calls = "".join(f"offer {shlex.quote(line)}\n" for line in lines)
    code = """
kvtool() { printf "%s\\n" "chat one" "chat\\$two" other; }
offer() {
    COMP_LINE=$1 COMP_POINT=${#1}
    _kvtool kvtool "${1##*[ =:\\'\\"]}" ''
    printf '%s\\1' "${COMPREPLY[@]}"
    echo
}
"""
    done = subprocess.run(
        ["bash", "--norc", "-uc", f"{script}{code}{calls}"],
        capture_output=True,
        check=True,
        text=True,
        cwd=path,
        timeout=60,
    )
    assert done.stderr == ""
    return [[word for word in line.split("\1") if word] for line in done.stdout.splitlines()]


def test_bash_offers_commands_flags_values_and_names(cli: Cli, tmp_path: Path) -> None:
    script = script_of(cli, "bash")
    (tmp_path / "a file").touch()
    (tmp_path / "folder").mkdir()
    found = offered(script, [f"kvtool {name} -" for name in COMMANDS], tmp_path)
    assert dict(zip(COMMANDS, map(sorted, found), strict=True)) == {
        name: sorted(flags) for name, flags in FLAGS.items()
    }
    wanted = {
        "kvtool ": [*COMMANDS, "--help", "--version"],
        "kvtool inspect --sort s": ["size", "shared", "score"],
        "kvtool inspect --match ": [],
        "kvtool inspect ch": ["chat one", "chat$two"],
        "kvtool inspect 'ch": ["chat one", "chat$two"],
        "kvtool inspect -- -": [],
        "kvtool gc --store.durability ": ["process", "power"],
        "kvtool gc --store.durability=": ["process", "power"],
        "kvtool gc --http.listen=": [],
        "kvtool chunk a": ["a file"],
        "kvtool mount ": ["folder"],
        "kvtool mount --mount.allow_other ": ["true", "false", "folder"],
        "kvtool mount --mount.allow_other=": ["true", "false"],
        "kvtool config --explain ": list(FIELDS),
        "kvtool config --explain=": list(FIELDS),
        "kvtool cat chat 2>/dev/null ": [],
        "kvtool cat > a": ["a file"],
        "kvtool label other ": [],
        "kvtool nonsense ": [],
    }
    assert dict(zip(wanted, offered(script, list(wanted), tmp_path), strict=True)) == wanted


def test_the_names_that_are_completed(cli: Cli, tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for name in ("chat one", "chat$two", "di\nvided", "other"):
            save(store, name.encode(), name)
    names = ["chat one", "chat$two", "other"]
    assert cli("completion", "names").stdout.decode().splitlines() == names
    flags, cli.flags = cli.flags, ()
    typed = ["names", "--", "inspect", "other", *flags, "--sort"]
    assert cli("completion", *typed).stdout.decode().splitlines() == names
    joined = [f"{flag}={value}" for flag, value in zip(flags[::2], flags[1::2], strict=True)]
    assert cli("completion", "names", "--", "inspect", *joined).stdout.decode().splitlines() == names
    cli.flags = ("--store.path", "/nonexistent")
    assert cli("completion", "names").stdout == b""
    assert cli("completion", "bash", "word").returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_name_every_command_and_flag(cli: Cli, shell: str, tmp_path: Path) -> None:
    text = script_of(cli, shell)
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
