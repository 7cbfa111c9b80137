"""The socket of the HTTP API, and what its process is told."""

import contextlib
import errno
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from kvtool.errors import KvtoolError, UsageError
from kvtool.fs import api
from kvtool.fs.api import ApiOptions, ApiProcess, listen
from kvtool.store import child
from kvtool.store.layout import Layout

SECRET = "0123456789abcdef"  # noqa: S105
LAYOUT = Layout(Path("/store"), Path("/stubs"))


def test_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, as hypercorn waits for ever; with less than the real time."""
    assert api.STALLED <= 30_000
    monkeypatch.setattr(api, "STALLED", 300)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(ApiOptions("127.0.0.1:0", "")))
        stack.enter_context(socket.create_connection(listener.getsockname()))
        server = stack.enter_context(listener.accept()[0])
        server.settimeout(30)
        began = time.monotonic()
        with pytest.raises(OSError, match="timed out") as caught:
            server.sendall(bytes(64 << 20))
        assert caught.value.errno == errno.ETIMEDOUT  # not the socket's own timeout
        assert time.monotonic() - began < 20


def test_without_a_token_only_loopback_is_listened_on() -> None:
    for place in ("127.0.0.1:0", "localhost:0"):
        listen(ApiOptions(place, "")).close()
    for place in ("0.0.0.0:0", "[::]:0"):
        with pytest.raises(UsageError, match=r"needs http\.token"):
            listen(ApiOptions(place, ""))
        listen(ApiOptions(place, SECRET)).close()


def test_an_address_that_cannot_be_had() -> None:
    with listen(ApiOptions("127.0.0.1:0", "")) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(KvtoolError, match=f"cannot listen on {place}: Address already in use"):
            listen(ApiOptions(place, ""))


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "find_spec", lambda name: None if name == "hypercorn" else object())
    with pytest.raises(KvtoolError, match=r"needs hypercorn, .* pip install 'kvtool\[http\]'"):
        ApiProcess(LAYOUT, ApiOptions("127.0.0.1:0", ""), "size")


def test_the_token_goes_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, Any]]] = []

    class Process:
        def kill(self) -> None: ...

        def wait(self) -> int:
            return 0

    def start(module: str, arguments: list[str], descriptors: tuple[int, ...]) -> Process:
        config = int(arguments[arguments.index("--config") + 1])
        assert config in descriptors
        started.append((arguments, json.loads(os.read(config, 1 << 16))))
        return Process()

    monkeypatch.setattr(child, "start", start)
    process = ApiProcess(LAYOUT, ApiOptions("127.0.0.1:0", SECRET), "size")

    async def main() -> None:
        with trio.move_on_after(0.2):
            await process.run()

    with pytest.MonkeyPatch.context() as quiet:
        quiet.setattr(api.log, "error", lambda *_: None)
        trio.run(main)
    arguments, config = started[0]
    assert SECRET not in " ".join(arguments)
    assert config["token"] == SECRET
    assert config["score"] == "size"
