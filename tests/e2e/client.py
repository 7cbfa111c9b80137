"""Start the real server, talk to it, and save and restore its slot as a proxy does."""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.e2e.models import PRINTABLE

LIMIT = 120.0
_SCRIPT = Path(__file__).with_name("llama_server.py")
_UNPRINTABLE = [[token, False] for token in range(288) if token not in PRINTABLE]


class Server:
    """One llama.cpp server process on a folder of slots; a context manager that ends it by its id.

    `limit` seconds after the start it is killed whatever it does: a call that waits for it then fails.
    """

    def __init__(self, model: str, folder: Path, flash_attention: str = "auto", limit: float = LIMIT) -> None:
        self.folder = folder
        self._command = [sys.executable, str(_SCRIPT), model, str(folder), flash_attention]
        self._limit = limit

    def __enter__(self) -> "Server":
        self._log = open(f"{self.folder}.server-log", "ab+")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._timer = threading.Timer(self._limit, self._process.kill)
        self._timer.start()
        assert self._process.stdout
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.__exit__(None, None, None)
            raise RuntimeError(f"the server did not start: {Path(self._log.name).read_text()[-2000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def complete(self, prompt: list[int], predict: int = 4) -> "Answer":
        """Go on from these tokens, greedily."""
        answer = self._post(
            "/completion",
            {
                "prompt": prompt,
                "id_slot": 0,
                "cache_prompt": True,
                "n_predict": predict,
                "temperature": 0,
                "logit_bias": _UNPRINTABLE,
                "return_tokens": True,
            },
        )
        return Answer(answer["tokens"], answer["timings"]["cache_n"])

    def save(self, name: str) -> "Saved":
        """Save slot 0 as NAME.tmp and rename it over NAME."""
        answer = self._post("/slots/0?action=save", {"filename": f"{name}.tmp"})
        written = answer["n_written"]
        temporary = self.folder / f"{name}.tmp"
        assert temporary.stat().st_size == written
        os.rename(temporary, self.folder / name)
        assert (self.folder / name).stat().st_size == written
        return Saved(written, answer["n_saved"])

    def restore(self, name: str) -> int:
        """Restore slot 0. Returns the size that the server says it read."""
        return int(self._post("/slots/0?action=restore", {"filename": name})["n_read"])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=self._limit) as answer:  # noqa: S310
            return json.load(answer)


class Saved(NamedTuple):
    """What the server says it saved: bytes, and tokens."""

    written: int
    tokens: int


class Answer:
    """Tokens that the server wrote, and how many of the prompt it found in its cache."""

    def __init__(self, tokens: list[int], reused: int) -> None:
        self.tokens = tokens
        self.reused = reused
