"""The schemas of the JSON answers are those of the code; that real answers keep to them, their tests see."""

import pytest

from tests import schemas


@pytest.mark.parametrize("command", schemas.ANSWERS)
def test_the_schema_is_what_would_be_made(command: str) -> None:
    path = schemas.FOLDER / f"{command}.json"
    assert path.read_text() == schemas.text(command), "run `python -m tests.schemas`"


def test_there_is_no_other_schema() -> None:
    assert {path.name for path in schemas.FOLDER.iterdir()} == {f"{name}.json" for name in schemas.ANSWERS}
