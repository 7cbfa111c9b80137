"""schemathesis asks a mount's API whatever schemas/openapi.json allows, and what it does not."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests import schemas
from tests.api import TOKEN, Api, mounted

description = schemathesis.openapi.from_path(str(schemas.FOLDER / "openapi.json"))
# Not by schemathesis' own `parametrize`, whose tests all have the same id.
OPERATIONS = [found.ok() for found in description.get_all_operations()]
few = settings(
    max_examples=10, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with mounted("--store.gc_interval", "0", limit=300) as api:
        for name in ("a", "b", "folder/c"):
            (api.mount.dir / name).parent.mkdir(exist_ok=True)
            (api.mount.dir / name).write_bytes(name.encode() * 50_000)
        yield api


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_operation_answers_as_described(operation: Any, api: Api) -> None:
    @settings(few)
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=api.url, headers={"Authorization": f"Bearer {TOKEN}"})

    ask()
