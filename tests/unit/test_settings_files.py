"""`kvtool config` as TOML, the file of `--init`, their schema: what is written is read back the same."""

import json
import os
import re
import tempfile
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvtool.cli.config import toml_text
from kvtool.core.text import printable, unescaped
from kvtool.core.units import parse_duration, parse_size
from kvtool.errors import UsageError
from kvtool.settings import starter as starters
from kvtool.settings.explain import explain
from kvtool.settings.fields import is_secret
from kvtool.settings.layers import resolve
from kvtool.settings.schema import DURATION_PATTERN, SIZE_PATTERN, schema_file, settings_schema
from tests import layering
from tests.cli import Cli

# Any value of these fits any other; defaults too.
FITTING = {
    "chunk.min_size": (64, 16 << 10),
    "chunk.avg_size": (16 << 10, 64 << 10),
    "chunk.max_size": (64 << 10, 8 << 20),
    "mount.read_ahead": (8 << 20, 256 << 20),
    "mount.cache": (256 << 20, 1 << 40),
}


@pytest.fixture
def cli(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Cli(tmp_path, capsysbinary, monkeypatch)


def fit(assignment: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """An assignment of single values that are right, made such that they fit together."""
    # Secrets are left out of what is written.
    fitting = {place: text for place, text in assignment.items() if not is_secret(place[1])}
    for (source, key), text in fitting.copy().items():
        if key in FITTING:
            least, most = FITTING[key]
            fitting[source, key] = str(least + parse_size(text) % (most - least + 1))
    return fitting


few = settings(max_examples=30)
fitting = layering.assignments(store=False).map(fit)


def again(root: Path, text: str, given: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The settings that a file gives where there are the same two files below it, and nothing else."""
    layering.write(root / "again.toml", text)
    for source in ("etc", "user"):
        layering.write(root / layering.FILES[source], layering.toml(layering.layer(given, source)))
    found = resolve(
        {},
        environ=layering.environment(root, {}),
        config_file=root / "again.toml",
        etc_file=root / layering.FILES["etc"],
    )
    return found.settings.flat()


def shown(values: dict[str, Any]) -> dict[str, Any]:
    """Without secrets, which are left out of what is printed."""
    return {key: value for key, value in values.items() if not is_secret(key)}


def uncommented(text: str) -> str:
    return re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE)


@few
@given(fitting)
def test_the_toml_fed_back_gives_the_same_settings(assignment: dict[tuple[str, str], str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first = layering.resolved(root, assignment)
        assume("store.stubs" not in {key for each in first.problems for key in each.keys})
        text = toml_text(explain(first)["settings"])
        assert shown(again(root, text, {})) == shown(first.settings.flat())
        jsonschema.validate(tomllib.loads(text), settings_schema())


@few
@given(fitting)
def test_the_starter_gives_the_settings_it_was_made_from(assignment: dict[tuple[str, str], str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first = layering.resolved(root, assignment)
        assume("store.stubs" not in {key for each in first.problems for key in each.keys})
        text = starters.starter(first)
        assert shown(again(root, text, assignment)) == shown(first.settings.flat())
        assert shown(again(root, uncommented(text), {})) == shown(first.settings.flat())
        set_in_it = {f"{section}.{name}" for section, table in tomllib.loads(text).items() for name in table}
        assert set_in_it == {
            key
            for key, origin in first.origins.items()
            if (origin.layer in ("flag", "env") or origin.where.startswith(f"{root}/config.toml:"))
            and not is_secret(key)
        }
        for each in (text, uncommented(text)):
            jsonschema.validate(tomllib.loads(each), settings_schema())


def test_the_starter_names_a_schema_that_is_there(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config/kvtool/config.toml"
    assert cli.json("config", "--init") == {"path": str(path)}
    lines = path.read_text().splitlines()
    assert lines[0] == f"#:schema {schema_file().as_uri()}"
    schema = json.loads(schema_file().read_text())
    assert schema == settings_schema()
    assert max(map(len, lines[1:])) <= 110
    assert "KVTOOL_MOUNT__CACHE" in path.read_text()
    # It is read as the user's file, and sets nothing.
    explained = cli.json("config", "--explain")
    assert explained["files"][1] == {"path": str(path), "state": "read"}
    assert {row["layer"] for row in explained["settings"]} == {"default"}


def test_the_starter_takes_flags_and_any_place(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "new/deep/odd\n\udcff.toml"
    done = cli("config", "--init", str(path), "--mount.cache", "1G", "--store.path", "/srv/\udcff")
    assert done.returncode == 0, done
    assert done.stdout.decode().startswith(f"{tmp_path}/new/deep/odd\\n\\udcff.toml written; have it read")
    values = cli.json("config", "--config", str(path))
    assert (values["mount"]["cache"], values["store"]["path"]) == (1 << 30, "/srv/\udcff")


def test_an_absent_file_is_made_and_one_that_is_there_is_left(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("precious")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("there", "dangling", "folder"):
        done = cli("config", "--init", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"{tmp_path}/{name} is there already and is left as it is; name another" in done.stderr
    assert (tmp_path / "there").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert cli("config", "--init", str(tmp_path / "there" / "below")).returncode == 1


def test_nothing_is_written_for_wrong_settings_or_with_other_questions(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "new"
    for flags in (
        ["--mount.workers", "0"],
        ["--explain"],
        ["--changed"],
        ["--running"],
        ["--explain=log.level"],
    ):
        assert cli("config", "--init", str(path), *flags).returncode == 2
    assert not path.exists()


def test_of_many_at_once_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    start = threading.Barrier(8)
    refused: list[str] = []
    written: list[str] = []

    def write(text: str) -> None:
        start.wait()
        try:
            starters.write_new(path, text)
            written.append(text)
        except UsageError:
            refused.append(text)

    threads = [threading.Thread(target=write, args=(str(number) * 1000,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert written == [path.read_text()]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.open", fail)
    with pytest.raises(OSError, match="No space"):
        starters.write_new(tmp_path / "new", "text")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def reads(parse: Callable[[str], object], text: str) -> bool | None:
    """Whether it is read; None when it is written well and is too much, or no whole number."""
    try:
        parse(text)
    except UsageError as error:
        return None if "too long" in error.message or "whole number of bytes" in error.message else False
    return True


@pytest.mark.parametrize(
    ("pattern", "parse", "letters"),
    [(SIZE_PATTERN, parse_size, "01.kKmgTiIbB "), (DURATION_PATTERN, parse_duration, "01.dhms ")],
)
@given(data=st.data())
def test_the_patterns_are_what_is_read(
    pattern: str, parse: Callable[[str], object], letters: str, data: st.DataObject
) -> None:
    text = data.draw(
        st.from_regex(pattern, fullmatch=True) | st.text(letters, max_size=9) | st.text(max_size=4)
    )
    assume(not re.search(r"[\t\n\v\f\r]", text))  # read, and of no use in an editor
    assert reads(parse, text) in (None, re.search(pattern, text) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "[mount]\ncach = 1\n",
        "[mounts]\n",
        "[mount]\ncache = '64 MiBs'\n",
        "[mount]\ncache = 1\n",
        "[mount]\ncache = 1.5\n",
        "[mount]\nworkers = 65\n",
        "[mount]\nallow_other = 'perhaps'\n",
        "[store]\npath = 'relative'\n",
        "[store]\ngc_interval = '1 week'\n",
        "[store]\ngc_interval = -1\n",
        "log.level = 'loud'\n",
        "mount = 3\n",
    ],
)
def test_an_editor_marks_what_kvtool_refuses(tmp_path: Path, text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), settings_schema())
    (tmp_path / "file").write_text(text)
    assert resolve({}, environ={}, config_file=tmp_path / "file", etc_file=tmp_path / "none").problems


def test_an_unknown_flag_is_told_with_the_rest_and_without_its_value(cli: Cli) -> None:
    done = cli("config", "--explain", "--mount.workrs", "hunter2", "--mount.cache=1", "--http.tokn=hunter3")
    assert done.returncode == 2
    text = done.stdout.decode()
    assert "error: --mount.workrs is not a setting (did you mean mount.workers?)\n" in text
    assert "error: --http.tokn is not a setting (did you mean http.token?)\n" in text
    assert "error: mount.cache: '1' is not a size" in text
    assert "hunter" not in text + done.stderr
    # Also where argparse would have stumbled first: the value looks like the mountpoint.
    done = cli("mount", "--mount.alow_other", "/mnt")
    assert done.returncode == 2
    assert done.stderr == (
        "kvtool: error: --mount.alow_other is not a setting (did you mean mount.allow_other?)\n"
    )
    assert "unrecognized arguments: --mount.x" not in cli("cat", "--", "--mount.x").stderr


def test_the_table_is_printed_also_for_a_store_that_is_not_usable(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "data" / "kvtool"
    store.mkdir(parents=True)
    (store / "store.toml").write_text("version = 2\n")
    done = cli("config", "--explain")
    assert (done.returncode, done.stderr) == (10, "")
    text = done.stdout.decode()
    assert f"{store}/store.toml" in text
    assert "not usable" in text
    assert "error: " in text
    assert "the store is of format 2, this kvtool reads 1; upgrade kvtool" in text
    assert cli("config", "--explain", "--mount.workers", "0").returncode == 2
    done = cli("status", "--mount.workers", "0")
    assert done.returncode == 2
    assert "mount.workers" in done.stderr
    assert "the store is of format 2" in done.stderr
    (store / "store.toml").unlink()
    os.mkfifo(store / "store.toml")
    assert cli("config", "--explain").returncode == 10


def test_what_is_no_visible_character_is_escaped_in_the_table(cli: Cli) -> None:
    flags = ["--store.path", "/srv/a\nb\x1b[1m", "--config", "/x\ny"]
    for question in (["--explain"], ["--explain", "store.path"]):
        text = cli("config", *question, *flags).stdout.decode()
        assert "/srv/a\\nb\\x1b[1m" in text
        assert "\x1b" not in text
    told = cli("config", *flags).stderr
    assert told.count("\n") == 1
    assert "/x\\ny: No such file" in told


@pytest.mark.parametrize(
    "flag",
    [
        "mount.cache=a\nb\udcff",
        "store.gc_interval=a\nb\udcff",
        "http.listen=a\nb\udcff",
        "store.durability=a\nb\udcff",
    ],
)
def test_an_error_is_escaped_once_and_is_raw_in_json(cli: Cli, flag: str) -> None:
    for more, lines in ((), 1), (("--mount.workers", "a\nb\udcff"), 4):
        told = cli("config", f"--{flag}", *more).stderr
        assert "a\\nb\\udcff" in told
        assert "\\\\" not in told
        assert told.count("\n") == lines
    error = json.loads(cli("config", f"--{flag}", "--json").stdout)["error"]
    assert "a\nb\udcff" in error["message"]
    assert "a\\nb\\udcff" in cli("config", "--explain", f"--{flag}").stdout.decode()
    assert "\\\\" not in cli("config", "--explain", f"--{flag}").stdout.decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"a\\nb\\\\" = 1', ":1: a\\nb\\\\ is not a setting"),
        ('mount."a\\nb\\\\" = 1', ":1: mount.a\\nb\\\\ is not a setting"),
        ('mount.cache = "\x01"', "Illegal character '\\x01'"),
    ],
)
def test_what_a_file_has_is_escaped_once(cli: Cli, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a\nb.toml"
    path.write_text(text)
    told = cli("config", "--config", str(path)).stderr
    assert f"{tmp_path}/a\\nb.toml:1: " in told
    assert words in told


def test_other_messages_are_escaped_once(cli: Cli) -> None:
    assert "invalid choice: 'a\\nb'" in cli("completion", "a\nb").stderr
    assert "invalid int value: '\\x1b\\\\'" in cli("mount", "/x", "--ready-fd", "\x1b\\").stderr
    assert "'a\\nb' is not a setting" in cli("config", "--explain", "a\nb").stderr
    assert "'tokens +\\x1b' is wrong at" in cli("config", "--score.expression", "tokens +\x1b").stderr


@pytest.mark.parametrize("text", ["a\nb", "\\n", "\\\\", "\udcff\x85\U000e0001\t", "it's"])
def test_what_is_printed_can_be_read_back(text: str) -> None:
    assert unescaped(printable(text)) == text


def test_a_home_that_is_not_known_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    found = resolve({}, environ={}, etc_file=tmp_path / "none")
    assert "store.path: '~/.local/share/kvtool' is not an absolute path" in found.messages[0]
