"""Pages out of templates: names of any bytes become visible text, and no other host is ever asked."""

import re
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kvtool import __version__
from kvtool.core.text import counted, printable
from kvtool.core.units import format_duration, format_size
from kvtool.http.access import Refused, Scope, Visitor
from kvtool.store.snapshots import iso_time

_SAFE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    # With no-referrer a browser sends `Origin: null` with our own forms, too.
    "referrer-policy": "same-origin",
}
_HTML = "text/html; charset=utf-8"
_OWN_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")  # of this server: no other host, no backslash, no line break


def page(template: str, visitor: Visitor | None, *, status: int = 200, **values: Any) -> Response:
    """A page. `values` are what its template shows."""
    notice = ""
    if visitor is not None and visitor.session is not None:
        notice, visitor.session.notice = visitor.session.notice, ""
    html = _environment().get_template(template).render(visitor=visitor, notice=notice, **values)
    return Response(html.encode(), status, headers=_SAFE_HEADERS, media_type=_HTML)


def failure(status: int, code: str, message: str) -> Response:
    """The page that tells an error."""
    title = {404: "There is no such thing here", 503: "The mount does not answer"}.get(status, "That failed")
    return page("failure.html", None, status=status, title=title, code=code, message=message)


def refusal(scope: Scope, refused: Refused) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The body and headers for who was refused: a form for the token where that helps."""
    if refused.code == "login":
        query = scope["query_string"].decode("latin-1")
        asked = scope["raw_path"].decode("ascii") + (f"?{query}" if query else "")
        onward = asked if scope["method"] == "GET" else "/"
        response = page(
            "login.html", scope["kvtool.visitor"], status=401, onward=own_path(onward), wrong=False
        )
    else:
        response = failure(refused.status, refused.code, str(refused))
    headers = [pair for pair in response.raw_headers if pair[0] != b"content-length"]
    return bytes(response.body), headers


def onward_to(path: str, cookie: str = "") -> Response:
    """An answer to a form: the browser is to get that page."""
    headers = {**_SAFE_HEADERS, "location": path}
    if cookie:
        headers["set-cookie"] = cookie
    return Response(status_code=303, headers=headers)


def own_path(text: str) -> str:
    """`text` if it is a path of this server, else the first page."""
    return text if _OWN_PATH.fullmatch(text) else "/"


def path_of(folder: str, name: str) -> str:
    """The path of a page about a snapshot, whatever bytes its name has."""
    return f"/{folder}/" + _quoted(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kvtool.http"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": _clock,
        "counted": counted,
        "duration": _duration,
        "lines": _lines,
        "moment": _moment,
        "quoted": _quoted,
        "size": format_size,
        "typed": _typed,
    }
    environment.globals |= {"path_of": path_of, "query": _query, "version": __version__}
    return environment


def _visible(value: Any) -> Any:
    """What a template prints: no line break, direction mark or broken byte in a name plays tricks."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _quoted(text: str) -> str:
    """As a path or a hidden field carries it, whatever its bytes."""
    return quote(text, errors="surrogateescape")


def _typed(text: str) -> Markup:
    """As somebody typed it, in a field; bytes that nobody types become question marks."""
    return escape(text.encode(errors="replace").decode())


def _lines(text: str) -> Markup:
    """A text that may have lines of its own."""
    return Markup("\n").join(escape(printable(line)) for line in text.split("\n"))


def _moment(text: str) -> Markup:
    """A time in ISO 8601, made short."""
    if not text:
        return Markup('<span class="quiet">never</span>')
    shown = text.replace("T", " ").removesuffix("Z")[:16]
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, text, shown)


def _clock(seconds: float) -> Markup:
    """A time in seconds since the epoch, to the second."""
    text = iso_time(seconds)
    return Markup('<time datetime="{}">{}</time>').format(text, text.replace("T", " ").removesuffix("Z"))


def _duration(seconds: float) -> str:
    """As people say it: the two largest units."""
    parts = re.findall(r"\d+[dhms]", format_duration(float(round(seconds))))
    return " ".join(parts[:2])


def _query(**values: Any) -> str:
    """A query string of what is not empty."""
    pairs = {name: value for name, value in values.items() if value not in {"", None}}
    return "?" + urlencode(pairs, errors="surrogateescape") if pairs else ""
