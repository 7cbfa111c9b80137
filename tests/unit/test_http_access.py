"""Who may do what over HTTP: each rule alone, in front of an application that answers anything."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from kvtool.http.access import BODY_MAX, Access, Message, Rules
from kvtool.http.server import Crowded

TOKEN = "correct-horse-battery"  # noqa: S105
LOCAL = Rules(True, "127.0.0.1", TOKEN)
REMOTE = Rules(False, "kv.example", TOKEN)
_NONE: Mapping[str, str] = {}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Seen:
    """The answer's status, what the application got, and the error's word."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.scope: dict[str, Any] | None = None
        self.received = b""

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"]) if self.status >= 400 else ""


async def ask(
    rules: Rules,
    method: str = "GET",
    path: bytes = b"/v1/snapshots",
    headers: Mapping[str, str] | list[tuple[str, str]] = _NONE,
    pieces: list[bytes] | None = None,
    *,
    version: str = "1.1",
    host: str | None = "127.0.0.1:8700",
) -> Seen:
    seen = Seen()
    pending = list(pieces if pieces is not None else [b""])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.scope = scope
        seen.received = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"fine"})

    async def receive() -> Message:
        if not pending:
            await trio.sleep_forever()
        return {
            "type": "http.request",
            "body": pending.pop(0),
            "more_body": bool(pending) or pieces == [b"..."],
        }

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            seen.status = message["status"]
            seen.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            seen.body += message["body"]

    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if host is not None:
        pairs.append(("Host", host))
    scope = {
        "type": "http",
        "http_version": version,
        "method": method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
    }
    await Access(app, rules)(scope, receive, send)
    return seen


def run(rules: Rules, method: str = "GET", **options: Any) -> Seen:
    return trio.run(partial(ask, rules, method, **options))


def test_on_loopback_reading_goes_without_a_token() -> None:
    for method in ("GET", "HEAD"):
        seen = run(LOCAL, method)
        assert (seen.status, seen.body) == (200, b"fine")


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT", "OPTIONS", "BREW"])
def test_on_loopback_changes_need_the_token(method: str) -> None:
    refused = run(LOCAL, method)
    assert (refused.status, refused.code, refused.scope) == (401, "token", None)
    assert refused.headers["www-authenticate"] == "Bearer"
    assert run(LOCAL, method, headers=BEARER).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_beyond_loopback_everything_needs_the_token(method: str) -> None:
    assert run(REMOTE, method, host="kv.example").code == "token"
    assert run(REMOTE, method, host="kv.example", headers=BEARER).status == 200


@pytest.mark.parametrize(
    "given",
    [
        "",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        "Bearer caf\xe9-caf\xe9-caf\xe9-caf\xe9",
    ],
)
def test_a_wrong_token_is_refused(given: str) -> None:
    assert run(LOCAL, "DELETE", headers={"Authorization": given}).code == "token"


def test_two_tokens_are_none() -> None:
    pairs = [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {TOKEN}")]
    assert run(LOCAL, "DELETE", headers=pairs).code == "token"


def test_the_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert run(LOCAL, "DELETE", headers=BEARER).status == 200
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_without_a_token_set_nothing_can_be_changed() -> None:
    rules = Rules(True, "127.0.0.1", "")
    assert run(rules).status == 200
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"}):
        refused = run(rules, "DELETE", headers=headers)
        assert (refused.status, refused.code) == (403, "no_token")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8700",
        "localhost:8700",
        "LOCALHOST",
        "[::1]:8700",
        "127.0.0.1:9000",
        "10.1.2.3",
    ],
)
def test_an_address_or_localhost_may_be_asked_for(host: str) -> None:
    assert run(LOCAL, host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8700",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "127.0.0.1:port",
        "[::1",
        "127.0.0.1/",
    ],
)
def test_a_name_that_was_pointed_here_is_refused(host: str | None) -> None:
    refused = run(LOCAL, host=host, headers=BEARER)
    assert (refused.status, refused.code, refused.scope) == (421, "host", None)


def test_two_hosts_are_refused() -> None:
    assert run(LOCAL, headers=[("Host", "127.0.0.1")]).code == "host"


def test_the_name_in_the_settings_and_this_machines_own_may_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Cellar")
    for host in ("kv.example:8700", "KV.EXAMPLE", "cellar"):
        assert run(REMOTE, host=host, headers=BEARER).status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:3000",
        "http://127.0.0.1",
        "file://127.0.0.1:8700",
        "http://[",
    ],
)
def test_requests_from_the_pages_of_others_are_refused(method: str, origin: str) -> None:
    refused = run(LOCAL, method, headers={**BEARER, "Origin": origin})
    assert (refused.status, refused.code, refused.scope) == (403, "origin", None)


def test_requests_from_our_own_pages_are_served() -> None:
    headers = {**BEARER, "Origin": "http://127.0.0.1:8700", "Sec-Fetch-Site": "same-origin"}
    assert run(LOCAL, "POST", headers=headers).status == 200


def test_a_link_on_another_site_may_lead_here_but_nothing_may_be_loaded_into_it() -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert run(LOCAL, headers={**cross, "Sec-Fetch-Mode": "navigate"}).status == 200
    for mode in ("no-cors", "cors"):
        assert run(LOCAL, headers={**cross, "Sec-Fetch-Mode": mode}).code == "origin"
    assert run(LOCAL, headers={"Sec-Fetch-Site": "same-site"}).code == "origin"


def test_a_body_is_bounded() -> None:
    assert run(LOCAL, "POST", headers=BEARER, pieces=[b"x" * BODY_MAX]).received == b"x" * BODY_MAX
    announced = run(LOCAL, "POST", headers={**BEARER, "Content-Length": str(BODY_MAX + 1)})
    assert (announced.status, announced.code, announced.scope) == (413, "too_large", None)
    sent = run(LOCAL, "POST", headers=BEARER, pieces=[b"x" * BODY_MAX, b"x"])
    assert (sent.status, sent.code, sent.scope) == (413, "too_large", None)
    assert run(LOCAL, "POST", headers={**BEARER, "Content-Length": "many"}).code == "too_large"


def test_who_sends_a_body_slowly_is_cut_off() -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    seen = trio.run(partial(ask, LOCAL, "POST", headers=BEARER, pieces=[b"..."]), clock=clock)
    assert (seen.status, seen.code, seen.scope) == (408, "too_slow", None)
    assert seen.headers["connection"] == "close"


def test_the_number_of_requests_at_once_is_bounded() -> None:
    async def main() -> None:
        release = trio.Event()
        statuses = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await release.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: Message) -> None:
            if "status" in message:
                statuses.append(message["status"])

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        access = Access(app, Rules(True, "localhost", "", at_once=2))

        async def one() -> None:
            scope = {"type": "http", "http_version": "1.1", "method": "GET", "raw_path": b"/"}
            await access({**scope, "headers": [(b"host", b"localhost")]}, receive, send)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
            await trio.testing.wait_all_tasks_blocked()
            assert statuses == [503]
            release.set()
        assert statuses == [503, 200, 200]
        await one()
        assert statuses[-1] == 200

    trio.run(main)


def test_who_sends_a_body_slowly_keeps_nobody_out_who_reads() -> None:
    async def main() -> None:
        statuses = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["body"] == b""
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: Message) -> None:
            if "status" in message:
                statuses.append(message["status"])

        async def nothing() -> Message:
            return {"type": "http.request", "body": b""}

        async def never() -> Message:
            await trio.sleep_forever()
            raise AssertionError

        access = Access(app, Rules(True, "localhost", TOKEN, at_once=2, arriving=3))

        async def one(method: str, path: bytes, length: bytes, receive: Any) -> None:
            headers = [(b"host", b"localhost"), (b"content-length", length)]
            scope = {"type": "http", "http_version": "1.1", "method": method, "raw_path": path}
            await access({**scope, "headers": headers}, receive, send)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one, "POST", b"/login", b"10", never)
            await trio.testing.wait_all_tasks_blocked()
            assert statuses == [503]
            await one("GET", b"/v1/health", b"0", nothing)
            assert statuses == [503, 200]
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_who_asks_for_the_head_is_answered_as_for_all_of_it() -> None:
    seen = run(LOCAL, "HEAD")
    assert seen.status == 200
    assert seen.scope is not None
    assert seen.scope["method"] == "GET"
    assert run(REMOTE, "HEAD", host="kv.example").code == "token"


def test_that_descriptors_are_short_is_told_in_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, expect_log: Callable[[str], None]
) -> None:
    expect_log("no more connections are taken for now: accept returned EMFILE")
    crowded = Crowded()
    for second in (1000.0, 1000.1, 1059.9, 1060.1, 1060.2):
        args = ("EMFILE", "Too many open files", 0.1)
        error = (OSError, OSError(24, "Too many open files"), None)
        text = "accept returned %s (%s); retrying in %s seconds"
        record = logging.LogRecord("trio.serve_listeners", logging.ERROR, "", 0, text, args, error)
        record.created = second
        assert not crowded.filter(record)
    assert [record.exc_info for record in caplog.records] == [None, None]


def test_only_http_1_is_spoken() -> None:
    assert run(LOCAL, version="2").code == "http_version"


def test_names_of_any_bytes_arrive() -> None:
    seen = run(LOCAL, path=b"/v1/snapshots/a%FFb%0Ac%C3%A9%2e%2e")
    assert seen.scope is not None
    assert seen.scope["path"] == "/v1/snapshots/a\udcffb\nc\u00e9.."


def test_answers_are_not_stored_sniffed_or_framed() -> None:
    for seen in (run(LOCAL), run(LOCAL, "DELETE")):
        assert seen.headers["cache-control"] == "no-store"
        assert seen.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in seen.headers["content-security-policy"]
