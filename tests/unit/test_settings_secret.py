"""A setting that is a secret is shown nowhere, wherever it is set and whatever is wrong with it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kvtool.settings import fields, model
from kvtool.settings.explain import explain, explain_key, problems_of
from kvtool.settings.kinds import REDACTED
from kvtool.settings.layers import resolve
from kvtool.settings.schema import settings_schema
from kvtool.settings.starter import starter
from kvtool.settings.tables import page, table
from tests.cli import Cli

SECRET, OTHER = "hunter2-hunter2-hunter2", "swordfish-swordfish"


@pytest.fixture
def cli(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = Cli(tmp_path, capsysbinary, monkeypatch)
    (tmp_path / "config/kvtool").mkdir(parents=True)
    (tmp_path / "config/kvtool/config.toml").write_text(f"[http]\ntoken = '{OTHER}'\n")
    monkeypatch.setenv("KVTOOL_HTTP__TOKEN", SECRET)
    return found


def shown(*texts: str) -> bool:
    return any(secret in text for text in texts for secret in (SECRET, OTHER))


QUESTIONS = [
    ["config"],
    ["config", "--changed"],
    ["config", "--explain"],
    ["config", "--explain", "http.token"],
    ["config", "--help"],
    ["status"],
]
WRONG: list[list[str]] = [
    [],
    ["--mount.workers", "0"],
    ["--http.token"],
    ["--http.token", SECRET, "--mount.x"],
    ["--http.tokn", SECRET],
    [f"--http.tokn={SECRET}"],
    ["--http-token", SECRET],
    [f"--http_token={SECRET}"],
    [f"-http.token={SECRET}"],
    [f"--json={SECRET}"],
    ["--log.level", "debug"],
]


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
def test_no_command_shows_it(cli: Cli, question: list[str], wrong: list[str]) -> None:
    if question[-1] == "--help":
        with pytest.raises(SystemExit):
            cli(*question)
        return
    done = cli(*question, *wrong)
    assert not shown(done.stdout.decode(), done.stderr)


FLAGS = [["--http.token", SECRET], [f"--http.token={SECRET}"], ["--http.tokn", SECRET]]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("more", [["status"], []])
def test_flags_before_the_command_do_not_show_it(cli: Cli, flag: list[str], more: list[str]) -> None:
    done = cli(*flag, *more)
    assert done.returncode == 2
    assert "arguments stand after the command" in done.stderr
    assert not shown(done.stdout.decode(), done.stderr)


def test_json_has_stars(cli: Cli) -> None:
    values = cli("config", "--json").stdout.decode()
    assert json.loads(values)["http"]["token"] == REDACTED
    found = json.loads(cli("config", "--explain", "http.token", "--json").stdout)
    assert [found["value"], *(each["value"] for each in found["overridden"])] == [REDACTED, REDACTED, ""]
    assert not shown(values, json.dumps(found))


def test_toml_leaves_it_out_and_says_so(cli: Cli, tmp_path: Path) -> None:
    text = cli("config").stdout.decode()
    assert text.startswith("# http.token is set and not shown (env KVTOOL_HTTP__TOKEN)\n")
    assert "token =" not in text
    path = tmp_path / "new"
    assert cli("config", "--init", str(path), "--http.token", SECRET).returncode == 0
    assert '#token = ""\n' in path.read_text()
    assert not shown(path.read_text())


def test_it_can_be_read_and_is_never_printed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    resolved = resolve({"http.token": SECRET}, environ={}, etc_file=tmp_path / "none")
    found: Any = resolved.settings
    assert found.http.token.get_secret_value() == SECRET
    with caplog.at_level(logging.INFO):
        logging.getLogger("kvtool").info("%s %r %r %s", found, resolved, resolved.origins, found.flat())
    data = explain(resolved)
    texts = [table(data), page(explain_key(data, "http.token", [])), starter(resolved), str(data)]
    assert not shown(caplog.text, *texts)
    assert REDACTED in texts[0]
    assert settings_schema()["properties"]["http"]["properties"]["token"]["writeOnly"]


@pytest.mark.parametrize("wrong", [f"['{SECRET}']", f"{{x = '{SECRET}'}}", "1234567890123"])
def test_a_wrong_one_is_not_shown_either(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "file").write_text(f"http.token = {wrong}\n")
    resolved = resolve({}, environ={}, config_file=tmp_path / "file", etc_file=tmp_path / "none")
    data = explain(resolved)
    problems = problems_of(resolved, "http.token")
    must_be = fields.describe("http.token")
    assert problems == [f"http.token: {REDACTED} is not {must_be} (file {tmp_path}/file:1)"]
    assert [row["shown"] for row in data["settings"] if row["wrong"]] == [REDACTED]
    texts = [repr(resolved), table(data), page(explain_key(data, "http.token", problems))]
    assert not any(word in text for word in (SECRET, "1234567890123") for text in texts)


def test_an_error_of_the_model_itself_does_not_show_it() -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        model.Settings.model_validate({"http": {"token": [SECRET]}})
    assert not shown(str(caught.value))
