"""README and docs/: links lead somewhere, commands parse, what is named exists, log lines are told of."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtool.cli.main import parse
from kvtool.errors import UsageError
from kvtool.settings.fields import FIELDS
from kvtool.store.layout import Layout
from tests import data
from tests.cli import Cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LEVELS = {"info": "Information", "warning": "Warning", "error": "Error", "exception": "Error"}
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[list[str]]:
    """The words after `kvtool` of every call in a shell's text, each up to what ends a command."""
    for line in text.replace("\\\n", " ").splitlines():
        for call in re.findall(r"(?:^|[\s(/])kvtool (?!:)([^|>&;)]*)", line):
            if call[:1].isalpha() or call[:1] == "-":
                yield shlex.split(call, comments=True)


def trouble(words: list[str], *, whole: bool) -> str:
    """What is wrong with a call; one that is only named in a sentence (not `whole`) may lack arguments."""
    if not re.fullmatch("[a-z]+|--[a-z]+", words[0]):  # COMMAND, or a drawing's list
        return ""
    try:
        parse(words)
    except SystemExit as end:  # help and version
        return f"exit code {end.code}" if end.code else ""
    except UsageError as error:
        lacks = "are required" in error.message or "is missing" in error.message
        return "" if lacks and not whole else error.message
    return ""


@pages
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name) if name else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {target}"


def test_every_page_is_linked_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for page in PAGES[2:]:
        assert f"](docs/{page.name})" in text, page.name


@pages
def test_every_command_parses(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, block in _BLOCK.findall(page.read_text()):
        if kind in {"", "sh"} and not block.startswith(("kvtool/", "STORE/")):
            for words in commands(block):
                assert not trouble(words, whole=True), (page.name, words)
    for span in _SPAN.findall(prose(page)):
        for words in commands(span) if span.startswith("kvtool ") else ():
            assert not trouble(words, whole=False), (page.name, words)


@pages
def test_every_target_of_make_is_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = [block for _, block in _BLOCK.findall(page.read_text())] + _SPAN.findall(prose(page))
    for text in code:
        for target in re.findall(r"^(?:\$ )?make ([a-z]+)", text, re.MULTILINE):
            assert target in targets, f"{page.name}: make {target}"


@pages
def test_every_setting_that_is_named_exists(page: Path) -> None:
    sections = {key.partition(".")[0] for key in FIELDS}
    files = Layout(Path("/s"), Path("/s/stubs")).names
    text = page.read_text()
    for span in [*_SPAN.findall(prose(page)), *re.findall(r"--([a-z_]+\.[a-z_]+)", text)]:
        if (key := re.fullmatch(r"([a-z_]+)\.[a-z_]+", span)) and key[1] in sections and span not in files:
            assert span in FIELDS, f"{page.name}: {span}"


def sessions() -> Iterator[tuple[str, str]]:
    """Each command in a session that begins with `$ kvtool`, and what follows it."""
    for page in PAGES:
        for _, block in _BLOCK.findall(page.read_text()):
            if block.startswith("$ kvtool "):
                yield from re.findall(r"^\$ kvtool (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def test_sessions_answer_what_the_docs_say(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store like any other: the first format's, from tests/data."""
    data.unpack(1, tmp_path)
    (tmp_path / "stubs").rename(tmp_path / "store" / "stubs")
    cli = Cli(tmp_path, capsysbinary, monkeypatch)
    monkeypatch.chdir(tmp_path)
    shown = list(sessions())
    assert shown
    for command, answer in shown:
        done = cli(*shlex.split(command.replace("/srv/kv/store", f"{tmp_path}/store")))
        said = (done.stdout.decode() + done.stderr).replace(f"{tmp_path}/store", "/srv/kv/store")
        assert said == answer, command


def logged() -> set[tuple[str, str]]:
    """The level and message of every log call in the code, from information up."""
    found = set()
    for path in (ROOT / "kvtool").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if isinstance(of, ast.Name) and of.id == "log" and node.func.attr in _LEVELS:
                    message = node.args[0]
                    assert isinstance(message, ast.Constant), f"{path}:{node.lineno}: not one constant text"
                    found.add((_LEVELS[node.func.attr], message.value))
    return found


def test_every_log_line_is_in_the_table() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    table = {
        (level, message)
        for level, rows in re.findall(r"^### (\w+)\n\n((?:\|.*\n)+)", text, re.MULTILINE)
        for message in re.findall(r"^\| `([^`]+)` \|", rows, re.MULTILINE)
    }
    assert logged() == table
    others = [
        path
        for path in (ROOT / "kvtool").rglob("*.py")
        if re.search(r"^(?!log = ).* = logging.getLogger\(__", path.read_text(), re.MULTILINE)
    ]
    assert not others, "what is logged under another name than `log` is seen by no test"


def test_every_exit_code_is_in_the_table() -> None:
    import kvtool.errors

    text = (ROOT / "docs" / "operations.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [kind for kind in vars(kvtool.errors).values() if isinstance(kind, type)]
    assert codes == {0, 130} | {
        kind.exit_code for kind in kinds if issubclass(kind, kvtool.errors.KvtoolError)
    }
