"""docs/api.md and its companions: the examples run as they stand, and the metrics they name are there."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kvtool.core.score import DEFAULT, Score
from tests import schemas
from tests.api import TOKEN, Api, mounted

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "api.md").read_text()
_BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
EXAMPLES = [
    command.replace("\\\n", " ")
    for block in _BLOCKS
    for command in re.findall(r"^(?:curl|getfattr) (?:.*\\\n)*.*$", block, re.MULTILINE)
]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with mounted("--store.gc_interval", "0", limit=300) as api:
        (api.mount.dir / "chat").mkdir()
        for name in ("turn-1.bin", "turn-2.bin"):
            (api.mount.dir / "chat" / name).write_bytes(os.urandom(200_000))
        yield api


def test_every_path_has_an_example() -> None:
    paths = json.loads((schemas.FOLDER / "openapi.json").read_text())["paths"]
    called = " ".join(EXAMPLES)
    for path in paths:
        assert path.removesuffix("{name}") in called, path


def test_the_examples_run_as_they_stand(api: Api) -> None:
    """In their order, by a shell; each answers what the API says that it does."""
    assert len(EXAMPLES) > 15
    if not shutil.which("curl"):
        pytest.skip("there is no curl here")
    for example in EXAMPLES:
        if example.startswith("getfattr"):
            check_attribute(api, example)
            continue
        done = subprocess.run(
            [
                "sh",
                "-c",
                example + " -f" * ("none.bin" not in example) + " -w '\\n%{http_code} %{content_type}'",
            ],
            env={"API": api.url, "TOKEN": TOKEN, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (example, done)
        body, _, last = done.stdout.rpartition("\n")
        status, _, kind = last.partition(" ")
        assert status == ("404" if "none.bin" in example else "204" if "DELETE" in example else status)
        if kind == "application/json":
            check_answer(example, status, json.loads(body))
    assert not (api.mount.dir / "chat" / "turn-2.bin").exists()


def check_answer(example: str, status: str, answer: Any) -> None:
    """Against the OpenAPI document: the operation that the example calls, and its answer of that status."""
    document = json.loads((schemas.FOLDER / "openapi.json").read_text())
    method = re.findall(r"-X (\w+)", example)[0].lower() if "-X" in example else "get"
    called = re.findall(r'"\$API(/[^?"]*)', example)[0]
    for path, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\\{name\\}", ".+", re.escape(path)), called) and method in operations:
            schema = operations[method]["responses"][status]["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(answer)
            return
    assert called == "/v1/openapi.json"


def check_attribute(api: Api, example: str) -> None:
    _, _, name, path = shlex.split(example)
    value = os.getxattr(api.mount.dir / path.removeprefix("/mnt/kv/"), name)
    assert float(value) >= 0


def test_the_default_score_is_the_one_described() -> None:
    assert f"\n{DEFAULT}\n" in TEXT
    for expression in re.findall(r'^expression = "(.*)"$', TEXT, re.MULTILINE):
        Score(expression)


def test_dashboard_and_alerts_name_metrics_that_there_are(api: Api) -> None:
    there = {line.partition("{")[0].partition(" ")[0] for line in api("/metrics").body.decode().splitlines()}
    there |= {"kvtool_request_failures_total"}  # there once a request has failed
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    alerts = yaml.safe_load((DOCS / "alerts.yml").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    expressions += re.findall(r"`(kvtool_\w+)`", TEXT)
    named = {name for expression in expressions for name in re.findall(r"kvtool_\w+", expression)}
    assert len(named) > 20
    assert named <= there
    assert yaml.safe_load((DOCS / "prometheus.yml").read_text())["scrape_configs"][0]["job_name"] == "kvtool"
