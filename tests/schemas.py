"""`python -m tests.schemas` writes schemas/*.json: what the answers of commands with --json look like.

They are made from the dataclasses that the answers are; a test fails when a file is not what would be made.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kvtool.store.anatomy import Anatomy
from kvtool.store.findings import Report
from kvtool.store.kinship import Tree
from kvtool.store.labels import Labels
from kvtool.store.snapshots import Listing
from kvtool.store.verify import Verified

FOLDER = Path(__file__).parents[1] / "schemas"
ANSWERS: dict[str, Any] = {
    "fsck": Report,
    "inspect": Listing | Anatomy | Tree,
    "label": Labels,
    "verify": Verified,
}


def text(command: str) -> str:
    """The schema of a command's answer, as the file has it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(ANSWERS[command]).json_schema(mode="serialization"),
        "title": f"kvtool {command} --json",
    }
    return json.dumps(schema, indent=2) + "\n"


def main() -> None:
    """Writes all of them."""
    FOLDER.mkdir(exist_ok=True)
    for command in ANSWERS:
        (FOLDER / f"{command}.json").write_text(text(command))


if __name__ == "__main__":
    main()
