"""schemathesis asks a mount's API whatever schemas/openapi.json allows, and what it does not."""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests import schemas
from tests.api import TOKEN, Api, mounted

description = schemathesis.openapi.from_path(str(schemas.FOLDER / "openapi.json"))


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with mounted("--store.gc_interval", "0", limit=300) as api:
        for name in ("a", "b", "folder/c"):
            (api.mount.dir / name).parent.mkdir(exist_ok=True)
            (api.mount.dir / name).write_bytes(name.encode() * 50_000)
        yield api


@description.parametrize()
@settings(
    max_examples=6, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
def test_every_operation_answers_as_described(case: schemathesis.Case, api: Api) -> None:
    case.call_and_validate(base_url=api.url, headers={"Authorization": f"Bearer {TOKEN}"})
