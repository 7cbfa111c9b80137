"""The schemas are those of the code, and strict. Real answers meet them in all tests of commands."""

import json

import jsonschema
import pytest

from kvtool.cli.main import COMMANDS
from tests import schemas, settings_page


@pytest.mark.parametrize("name", schemas.NAMES)
def test_the_schema_is_what_would_be_made(name: str) -> None:
    path = schemas.FOLDER / f"{name}.json"
    assert path.read_text() == schemas.text(name), "run `python -m tests.schemas`"


def test_there_is_no_other_schema() -> None:
    assert {path.name for path in schemas.FOLDER.iterdir()} == {f"{name}.json" for name in schemas.NAMES}


def test_every_command_has_a_schema() -> None:
    assert {schemas.name_of([command]) for command in COMMANDS} <= set(schemas.NAMES)


@pytest.mark.parametrize("name", schemas.NAMES)
def test_the_schema_is_one(name: str) -> None:
    schema = json.loads((schemas.FOLDER / f"{name}.json").read_text())
    jsonschema.validators.validator_for(schema).check_schema(schema)


def test_what_a_schema_does_not_say_is_refused() -> None:
    answer = {"mountpoint": "/mnt", "store": "/srv/kv"}
    schemas.check(["umount", "/mnt", "--json"], answer)
    for wrong in ({"mountpoint": "/mnt"}, {**answer, "pid": 1}, {**answer, "store": None}, [], {"error": {}}):
        with pytest.raises(jsonschema.ValidationError):
            schemas.check(["umount", "/mnt", "--json"], wrong)


def test_the_page_of_settings_is_what_would_be_made() -> None:
    assert settings_page.PAGE.read_text() == settings_page.text(), "run `python -m tests.settings_page`"
