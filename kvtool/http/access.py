"""Who may do what: looked at before any route runs. An ASGI wrapper around the whole application.

On a loopback address everybody on this machine may read, as with `ps`; beyond it, and for whatever changes
something, the token is needed. Host and Origin are looked at in any case: a page of another site, or one
whose name was pointed at this machine (DNS rebinding), gets nothing.

Programs send the token with each request to the API. People give it to the page once: there a session's
cookie counts, and a form needs the session's secret beside it. The cookie opens nothing of the API.
"""

import hmac
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import trio

from kvtool.core import address
from kvtool.http.sessions import Session, Sessions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_MAX = 64 << 10  # bytes of a request's body
_READING = {"GET", "HEAD"}
_FIELDS_MAX = 16  # of a form
_LOGIN = "/login"
_STYLE = "/static/"  # what the page looks like: the same everywhere, and needed to ask for the token
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
    cookie: str = "kvtool"
    body_time: float = 10.0  # seconds for the whole body of a request
    at_once: int = 64  # requests that are being answered
    arriving: int = 256  # requests of which the body is on its way


class Refused(Exception):
    """The answer is no: status, a word for programs, a line for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


Told = Callable[[Scope, Refused], tuple[bytes, list[tuple[bytes, bytes]]]]


def is_page(scope: Scope) -> bool:
    """Whether this is a request to the page, and not to the API, by its decoded path."""
    return not (scope["path"].startswith("/v1/") or scope["path"] in {"/v1", "/metrics"})


@dataclass(slots=True)
class Visitor:
    """Who asks for a page: the session, if there is one, and what the form says."""

    rules: Rules
    sessions: Sessions
    session: Session | None = None
    form: dict[str, str] = field(default_factory=dict)

    @property
    def may_log_in(self) -> bool:
        """Whether a token is set at all."""
        return bool(self.rules.token)

    def log_in(self) -> str:
        """Begins a session for the form's token; returns the Set-Cookie header. Raises Refused."""
        if not _same(self.form.get("token", ""), self.rules.token):
            raise Refused(401, "token", "that is not the token (http.token)")
        self.session, cookie = self.sessions.begin()
        return cookie

    def log_out(self) -> str:
        """Ends the session; returns the Set-Cookie header."""
        return self.sessions.end(self.session) if self.session is not None else ""


def visitor_of(scope: Scope) -> Visitor:
    """The visitor of a page, in a route."""
    visitor: Visitor = scope["kvtool.visitor"]
    return visitor


class Access:
    """The application behind the rules. `told` makes a refusal a page, for those who asked for one."""

    def __init__(self, app: App, rules: Rules, told: Told | None = None) -> None:
        self._app = app
        self._rules = rules
        self._told = told
        self._sessions = Sessions(rules.cookie)
        self._names = {"localhost", rules.name.lower(), socket.gethostname().lower()}
        self._answering = _Bound(rules.at_once)
        self._arriving = _Bound(rules.arriving)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs a request, or refuses it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here: the server closes it
        try:
            scope["path"] = unquote(scope["raw_path"].decode("ascii"), errors="surrogateescape")
            headers = _headers(scope)
            self._check(scope, headers)
            body = await self._body(headers, receive)
            if is_page(scope):
                self._check_form(scope, headers, body)
            self._answering.enter()
        except Refused as refused:
            await self._refuse(scope, send, refused)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        try:
            await self._app(scope, _replay(body, receive), _with_safe_headers(send))
        finally:
            self._answering.leave()

    def _check(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        if scope["http_version"] not in {"1.0", "1.1"}:
            raise Refused(505, "http_version", "HTTP/1.1 is spoken here")
        self._check_host(scope["method"], headers)
        reading = scope["method"] in _READING
        if is_page(scope):
            session = self._sessions.find(headers.get("cookie", []))
            scope["kvtool.visitor"] = Visitor(self._rules, self._sessions, session)
            open_to_all = scope["path"] == _LOGIN or (reading and scope["path"].startswith(_STYLE))
            if session is None and not open_to_all and not (self._rules.loopback and reading):
                self._check_set()
                raise Refused(401, "login", "this needs the token")
        elif not self._rules.loopback or not reading:
            self._check_token(headers)

    def _check_host(self, method: str, headers: dict[str, list[str]]) -> None:
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
        if site[0] in {"cross-site", "same-site"} and not (
            method in _READING and headers.get("sec-fetch-mode") == ["navigate"]
        ):
            raise Refused(403, "origin", "requests from the pages of other sites are refused")

    def _check_form(self, scope: Scope, headers: dict[str, list[str]], body: bytes) -> None:
        """A form that changes something must come from a page of the session; the first one has none yet."""
        if scope["method"] in _READING:
            return
        visitor = visitor_of(scope)
        self._check_set()
        if (
            headers.get("content-type", [""])[0].partition(";")[0].strip()
            != "application/x-www-form-urlencoded"
        ):
            raise Refused(415, "form", "a form is sent here")
        try:
            pairs = parse_qsl(
                body.decode("latin-1"), True, errors="surrogateescape", max_num_fields=_FIELDS_MAX
            )
        except ValueError:
            raise Refused(400, "form", f"a form has at most {_FIELDS_MAX} fields") from None
        visitor.form = dict(pairs)
        if scope["path"] == _LOGIN:
            return
        if visitor.session is None or not visitor.session.sent(visitor.form.get("secret", "")):
            raise Refused(403, "form", "this form is too old; go back, load the page again and repeat it")

    def _check_set(self) -> None:
        if not self._rules.token:
            raise Refused(403, "no_token", "nothing can be changed here until http.token is set")

    def _check_token(self, headers: dict[str, list[str]]) -> None:
        self._check_set()
        given = headers.get("authorization", [])
        scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        if scheme.lower() != "bearer" or not _same(token.strip(), self._rules.token):
            raise Refused(401, "token", "this needs the header `Authorization: Bearer TOKEN` (http.token)")

    async def _body(self, headers: dict[str, list[str]], receive: Receive) -> bytes:
        """The whole body, before anything is done: who sends it slowly holds up only others who send."""
        length = headers.get("content-length", ["0"])[0]
        if not length.isdigit() or int(length) > BODY_MAX:
            raise Refused(413, "too_large", f"a request's body may have {BODY_MAX} bytes")
        if length == "0" and "transfer-encoding" not in headers:
            return await self._receive(receive)  # there is none
        self._arriving.enter()
        try:
            return await self._receive(receive)
        finally:
            self._arriving.leave()

    async def _receive(self, receive: Receive) -> bytes:
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

    async def _refuse(self, scope: Scope, send: Send, refused: Refused) -> None:
        if self._told is not None and is_page(scope):
            body, headers = self._told(scope, refused)
        else:
            body = json.dumps({"error": {"code": refused.code, "message": str(refused)}}).encode()
            headers = [(b"content-type", b"application/json")]
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if refused.status in {408, 413}:
            headers.append((b"connection", b"close"))
        send = _with_safe_headers(send)
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _Bound:
    """So many at once, and no more: the next is Refused."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._now = 0

    def enter(self) -> None:
        if self._now >= self._most:
            raise Refused(503, "busy", "too many requests at once; try again")
        self._now += 1

    def leave(self) -> None:
        self._now -= 1


def _same(given: str, token: str) -> bool:
    """Whether that is the token, in a time that tells nothing of it."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), token.encode())


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
