"""A mount with its HTTP API, and a client: what a test says is what goes over the wire."""

import http.client
import json
import os
import random
import socket
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from kvtool.core.tokens import TokenList, encode
from kvtool.store import stubs
from kvtool.store.layout import Layout
from tests.mounts import MountedStore, temporary_folder

TOKEN = "0123456789abcdef-test"  # noqa: S105
BEARER = {"Authorization": f"Bearer {TOKEN}"}
KiB = 1 << 10
IMPORTS = {"PYTHONPROFILEIMPORTTIME": "1"}  # each process tells all that it imports
_LIMIT = 60.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """A client of a mount's API; changes go with the token."""

    def __init__(self, mount: MountedStore) -> None:
        self.mount = mount
        self.url: str = mount.json("status")["http"]
        self.host, port = self.url.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)

    def __call__(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_LIMIT)
        try:
            given = dict(BEARER if headers is None and method != "GET" else headers or {})
            data = None
            if body is not None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                given.setdefault("Content-Type", "application/json")
            connection.request(method, path, data, given)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer that must be 200."""
        answer = self(path)
        assert answer.status == 200, (path, answer)
        return answer.json

    def snapshots(self, query: str = "") -> dict[str, Any]:
        """Snapshots by name."""
        return {row["name"]: row for row in self.get(f"/v1/snapshots?limit=1000{query}")["snapshots"]}

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection((self.host, self.port), timeout=_LIMIT)


def path_of(name: str | bytes) -> str:
    """A name as it stands in a path."""
    return quote(name)


@contextmanager
def mounted(*flags: str, **options: Any) -> Iterator[Api]:
    """A mount whose API answers."""
    listen = ("--http.listen", "127.0.0.1:0", "--http.token", TOKEN)
    with temporary_folder() as folder, MountedStore(folder, *listen, *flags, **options) as mount:
        api = Api(mount)
        wait_until_healthy(api)
        yield api


def wait_until_healthy(api: Api) -> None:
    """Until the process serves: the socket listens before it."""
    deadline = time.monotonic() + _LIMIT
    while True:
        try:
            assert api("/v1/health").status == 200
            return
        except (AssertionError, ConnectionError, http.client.HTTPException):
            if time.monotonic() > deadline:
                raise


def shared_api() -> Iterator[Api]:
    """One mount for all tests of a module, which only add files of their own: for a fixture of theirs."""
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with mounted("--store.gc_interval", "0", limit=300, env=IMPORTS) as api:
        yield api


def save(api: Api, name: str | bytes, data: bytes) -> None:
    path = os.path.join(os.fsencode(api.mount.dir), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def recount(api: Api) -> dict[str, tuple[int, int]]:
    """Unique and shared bytes of every snapshot, from its stub, chunk by chunk."""
    layout = Layout(api.mount.store, api.mount.stubs)
    chunks = {
        stubs.name_of(layout, path): dict(stubs.read_index(path).chunks()) for path in stubs.walk(layout)
    }
    counts: dict[str, tuple[int, int]] = {}
    for name, its in chunks.items():
        others = [other for other_name, other in chunks.items() if other_name != name]
        shared = sum(length for chunk, length in its.items() if any(chunk in other for other in others))
        counts[name] = (sum(its.values()) - shared, shared)
    return counts


def slot(tokens: int) -> bytes:
    """A file that begins as those of llama-server do."""
    return encode(TokenList(4, array("i", range(tokens)))) + bytes(100)


def data_of(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)
