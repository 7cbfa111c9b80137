"""Who may do what: looked at before any route runs. An ASGI wrapper around the whole application.

On a loopback address everybody on this machine may read, as with `ps`; beyond it, and for whatever changes
something, the token is needed. Host and Origin are looked at in any case: a page of another site, or one
whose name was pointed at this machine (DNS rebinding), gets nothing.
"""

import hmac
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import trio

from kvtool.core import address

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_MAX = 64 << 10  # bytes of a request's body
_READING = {"GET", "HEAD"}
_SAFE_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(frozen=True, slots=True)
class Rules:
    """What is known at start. `name` is the host of http.listen as it was written; no token: no changes."""

    loopback: bool
    name: str
    token: str
    body_time: float = 10.0  # seconds for the whole body of a request
    at_once: int = 64  # requests


class Refused(Exception):
    """The answer is no: status, a word for programs, a line for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Access:
    """The application behind the rules."""

    def __init__(self, app: App, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._names = {"localhost", rules.name.lower(), socket.gethostname().lower()}
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs a request, or refuses it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here: the server closes it
        self._running += 1
        try:
            headers = _headers(scope)
            self._check(scope, headers)
            scope["path"] = unquote(scope["raw_path"].decode("ascii"), errors="surrogateescape")
            body = await self._body(headers, receive)
        except Refused as refused:
            await _refuse(send, refused)
            return
        else:
            await self._app(scope, _replay(body, receive), _with_safe_headers(send))
        finally:
            self._running -= 1

    def _check(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        if self._running > self._rules.at_once:
            raise Refused(503, "busy", "too many requests at once; try again")
        if scope["http_version"] not in {"1.0", "1.1"}:
            raise Refused(505, "http_version", "HTTP/1.1 is spoken here")
        self._check_host(headers)
        if not self._rules.loopback or scope["method"] not in _READING:
            self._check_token(headers)

    def _check_host(self, headers: dict[str, list[str]]) -> None:
        """The request must be meant for us, and not come from the page of another site."""
        hosts = headers.get("host", [])
        host = _host(hosts[0]) if len(hosts) == 1 else None
        # Nobody can point an IP address elsewhere, as they can a name.
        if host is None or not (host in self._names or address.is_address(host)):
            raise Refused(421, "host", "the Host header names another server; use an IP address or localhost")
        for origin in headers.get("origin", []):
            if origin not in {f"http://{hosts[0]}", f"https://{hosts[0]}"}:
                raise Refused(403, "origin", "requests from the pages of other sites are refused")
        site = headers.get("sec-fetch-site", ["none"])
        if site[0] in {"cross-site", "same-site"} and headers.get("sec-fetch-mode") != ["navigate"]:
            raise Refused(403, "origin", "requests from the pages of other sites are refused")

    def _check_token(self, headers: dict[str, list[str]]) -> None:
        if not self._rules.token:
            raise Refused(403, "no_token", "nothing can be changed here until http.token is set")
        given = headers.get("authorization", [])
        scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        wanted = self._rules.token.encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), wanted):
            raise Refused(401, "token", "this needs the header `Authorization: Bearer TOKEN` (http.token)")

    async def _body(self, headers: dict[str, list[str]], receive: Receive) -> bytes:
        """The whole body, before anything is done: who sends it slowly holds nobody up."""
        length = headers.get("content-length", ["0"])[0]
        if not length.isdigit() or int(length) > BODY_MAX:
            raise Refused(413, "too_large", f"a request's body may have {BODY_MAX} bytes")
        body = b""
        with trio.move_on_after(self._rules.body_time):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refused(400, "disconnected", "the connection broke")
                body += bytes(message.get("body", b""))
                if len(body) > BODY_MAX:
                    raise Refused(413, "too_large", f"a request's body may have {BODY_MAX} bytes")
                if not message.get("more_body", False):
                    return body
        raise Refused(408, "too_slow", "the request's body did not arrive in time")


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _host(header: str) -> str | None:
    """The host in a Host header, without its port (a tunnel may have another)."""
    try:
        split = urlsplit(f"//{header}")
        _ = split.port  # raises when it is none
    except ValueError:
        return None
    plain = split.netloc == header and split.username is None
    return split.hostname if plain else None


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body at once, and then what else comes."""
    pending = [body]

    async def replay() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return replay


def _with_safe_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            have = {name for name, _ in message.get("headers", [])}
            missing = [(name, value) for name, value in _SAFE_HEADERS if name not in have]
            message["headers"] = [*message.get("headers", []), *missing]
        await send(message)

    return wrapped


async def _refuse(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": {"code": refused.code, "message": str(refused)}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *_SAFE_HEADERS]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status in {408, 413}:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
