"""The command line in this process: what takes a second as a process of its own takes milliseconds here."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvtool.cli.main import entry
from tests import schemas


class Done(NamedTuple):
    """How a command ended: its exit code, what it wrote to standard output, and to standard error."""

    returncode: int
    stdout: bytes
    stderr: str


class Cli:
    """Runs `kvtool` with flags of its own after the arguments, without the settings of who runs the tests.

    Whatever it answers with --json must be as the schema of the command says.
    """

    def __init__(
        self, root: Path, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch, *flags: str
    ) -> None:
        self.flags = flags
        self._capture = capture
        self._patch = patch
        for name in [name for name in os.environ if name.startswith("KVTOOL_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(root / "config"))

    def __call__(self, *arguments: str) -> Done:
        """Runs a command that ends by itself: no mount."""
        self._patch.setattr(sys, "argv", ["kvtool", *arguments, *self.flags])
        self._capture.readouterr()
        code = entry()
        out, err = self._capture.readouterr()
        raw = arguments[0] == "cat" and "--output" not in arguments  # a snapshot's own bytes
        if "--json" in arguments and out and not raw:
            schemas.check(list(arguments), json.loads(out))
        return Done(code, out, err.decode(errors="surrogateescape"))

    def json(self, *arguments: str) -> Any:
        """The answer of a command that must succeed."""
        done = self(*arguments, "--json")
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)
