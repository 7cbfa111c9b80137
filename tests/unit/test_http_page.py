"""Who may do what on the page: sessions, forms and their secret, in front of the real routes."""

import json
import os
import re
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio

from kvtool.core.score import DEFAULT, Score
from kvtool.http.access import Access, Message, Rules
from kvtool.http.app import create_app
from kvtool.http.render import own_path, refusal
from kvtool.http.source import Source
from kvtool.store import control, labels, stubs
from tests.stores import layout_in, open_store, save

TOKEN = "correct-horse-battery"  # noqa: S105
LOCAL = Rules(True, "127.0.0.1", TOKEN, "kvtool-8700")
REMOTE = Rules(False, "kv.example", TOKEN, "kvtool-8700")
FORM = "application/x-www-form-urlencoded"
_PROGRESS = {
    "stage": "",
    "dry_run": False,
    "started": "",
    "packs_to_write": 0,
    "packs_written": 0,
    "last": None,
    "last_ended": "",
    "last_error": "",
}


class Mount(Source):
    """A source whose mount notes what it is asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(layout_in(root), Score(DEFAULT))
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.app = create_app(self)

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        self.asked.append((command, fields))
        return dict(_PROGRESS)

    @property
    def changes(self) -> list[str]:
        return [command for command, _ in self.asked if command not in {"collection", "logs", "status"}]


class Browser:
    """Sends requests as a browser does, and keeps the cookie."""

    def __init__(self, mount: Mount, rules: Rules = LOCAL) -> None:
        self.mount = mount
        self.access = Access(mount.app, rules, refusal)
        self.host = "127.0.0.1:8700" if rules.loopback else "kv.example"
        self.cookie = ""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""

    def __call__(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        method: str = "",
        headers: Mapping[str, str] | None = None,
        kind: str = FORM,
    ) -> int:
        given = {"Host": self.host, "Content-Type": kind, **(headers or {})}
        if self.cookie:
            given["Cookie"] = f"theme=dark; {self.cookie}"
        body = urlencode(form or {}).encode()
        trio.run(partial(self._ask, method or ("GET" if form is None else "POST"), path, given, body))
        if "set-cookie" in self.headers:
            self.cookie = self.headers["set-cookie"].partition(";")[0]
        return self.status

    async def _ask(self, method: str, path: str, given: Mapping[str, str], body: bytes) -> None:
        parts: list[bytes] = []
        raw, _, query = path.partition("?")

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            if "status" in message:
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                parts.append(message["body"])

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }
        await self.access(scope, receive, send)
        self.text = b"".join(parts).decode()

    def log_in(self) -> None:
        assert self("/login", {"token": TOKEN, "onward": "/"}) == 303

    def secret(self) -> str:
        assert self("/collect") == 200
        return re.findall(r'name="secret" value="([^"]+)"', self.text)[0]


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    with open_store(tmp_path) as store:
        for name in ("a", "b\udcff", "c<b>'\"\n"):
            save(store, name.encode(errors="surrogateescape"), name)
    return Mount(tmp_path)


def test_an_odd_name_in_an_error_is_escaped_once(mount: Mount) -> None:
    browser = Browser(mount)
    assert browser("/tree?of=x%0Ay") == 404
    assert "&#39;x\\ny&#39;" in browser.text


def test_on_loopback_reading_goes_without_a_token(mount: Mount) -> None:
    browser = Browser(mount)
    for path in ("/snapshots", "/snapshot/a", "/tree", "/gc", "/collect", "/delete/a", "/static/style.css"):
        assert browser(path) == 200, path
    assert mount.changes == []


def test_what_changes_something_needs_a_session_and_its_secret(mount: Mount) -> None:
    browser = Browser(mount)
    for path in ("/delete/a", "/collect", "/logout", "/snapshots"):
        assert browser(path, {"secret": "x"}) == 401, path
        assert "The token, please" in browser.text
        assert "set-cookie" not in browser.headers
    browser.log_in()
    other = Browser(mount)
    other.log_in()
    for form in ({}, {"secret": ""}, {"secret": "x\udcff"}, {"secret": other.secret()}):
        bad = {key: value.encode(errors="surrogateescape").decode("latin-1") for key, value in form.items()}
        assert browser("/delete/a", bad) == 403
        assert browser("/collect", bad) == 403
    assert mount.changes == []
    assert browser("/delete/a", {"secret": browser.secret()}) == 303
    assert browser("/collect", {"secret": browser.secret()}) == 303
    assert mount.asked[-1] == ("gc", {"wait": False})
    assert mount.changes == ["delete", "gc"]


def test_reading_never_changes_anything(mount: Mount) -> None:
    browser = Browser(mount)
    browser.log_in()
    secret = browser.secret()
    for path in ("/delete/a", "/collect", "/logout", "/login"):
        browser(f"{path}?secret={secret}&token={TOKEN}")
    assert mount.changes == []
    assert browser.secret() == secret
    for method in ("DELETE", "PUT", "PATCH"):
        assert browser("/delete/a", {"secret": secret}, method=method) == 405
    assert mount.changes == []


def test_the_cookie_opens_nothing_of_the_api(mount: Mount) -> None:
    for rules in (LOCAL, REMOTE):
        browser = Browser(mount, rules)
        browser.log_in()
        secret = browser.secret()
        for path in ("/v1/snapshots/a", "/v1/gc", "/%761/gc"):
            for method in ("DELETE", "POST", "PATCH"):
                assert browser(path, {"secret": secret}, method=method) == 401
                assert browser.headers["content-type"] == "application/json"
    assert browser("/v1/snapshots") == 401
    assert browser("/metrics") == 401
    assert mount.changes == []


def test_beyond_loopback_nothing_is_shown_before_the_token(mount: Mount) -> None:
    browser = Browser(mount, REMOTE)
    for path in ("/", "/snapshots", "/snapshot/a", "/tree", "/gc", "/logs", "/delete/a", "/nothing"):
        assert browser(path) == 401, path
        assert f'name="onward" value="{path}"' in browser.text
    assert mount.asked == []
    assert browser("/static/style.css") == 200
    browser.log_in()
    assert browser("/snapshots") == 200
    assert browser("/logout", {"secret": browser.secret()}) == 303
    assert browser("/snapshots") == 401


def test_the_token_is_asked_for_by_a_form_and_stands_in_no_cookie(mount: Mount) -> None:
    browser = Browser(mount)
    for wrong in ("", "wrong", TOKEN + "x", TOKEN.upper(), "\u00fc"):
        assert browser("/login", {"token": wrong, "onward": "/gc"}) == 401
        assert 'value="/gc"' in browser.text
        assert "set-cookie" not in browser.headers
    assert browser("/login", {"token": TOKEN, "onward": "/gc"}) == 303
    assert browser.headers["location"] == "/gc"
    cookie = browser.headers["set-cookie"]
    assert re.fullmatch(r"kvtool-8700=[\w-]{40,}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", cookie)
    assert TOKEN not in cookie


def test_forms_of_other_sites_and_other_kinds_are_refused(mount: Mount) -> None:
    browser = Browser(mount)
    browser.log_in()
    form = {"secret": browser.secret()}
    assert browser("/delete/a", form, headers={"Origin": "http://evil.example"}) == 403
    assert browser("/delete/a", form, headers={"Origin": "null"}) == 403
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert browser("/delete/a", form, headers=cross) == 403
    assert browser("/login", {"token": TOKEN}, headers=cross) == 403
    assert browser("/delete/a", form, headers={"Host": "evil.example"}) == 421
    assert browser("/delete/a", form, kind="text/plain") == 415
    assert browser("/delete/a", {**form, **{str(number): "" for number in range(20)}}) == 400
    assert mount.changes == []
    assert browser("/delete/a", form, headers={"Origin": "http://127.0.0.1:8700"}) == 303


def test_without_a_token_set_the_page_says_that_nothing_can_be_changed(mount: Mount) -> None:
    browser = Browser(mount, Rules(True, "127.0.0.1", ""))
    for path in ("/delete/a", "/collect", "/login"):
        assert browser(path) == 200
        assert "Nothing can be changed here until a token is set" in browser.text
        assert "<button" not in browser.text
    for form in ({"token": ""}, {"token": "x"}):
        assert browser("/login", form) == 403
        assert browser("/delete/a", form) == 403
    assert mount.changes == []


def test_after_the_token_one_stays_here(mount: Mount) -> None:
    browser = Browser(mount)
    for path in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "",
        "/a\r\nx: y",
        "/\u00fc",
        "a",
    ):
        assert own_path(path) == "/"
        assert browser("/login", {"token": TOKEN, "onward": path}) == 303
        assert browser.headers["location"] == "/"


def test_names_of_any_bytes_are_shown_as_text_and_lead_to_their_pages(mount: Mount) -> None:
    browser = Browser(mount)
    browser("/snapshots")
    assert "b\\udcff</a>" in browser.text
    assert "c&lt;b&gt;&#39;&#34;\\n</a>" in browser.text
    links = re.findall(r'<a class="name" href="([^"]+)"', browser.text)
    assert len(links) == 3
    browser.log_in()
    for link in links:
        assert browser(link) == 200
        delete = re.findall(r'href="(/delete/[^"]+)"', browser.text)[0]
        assert browser(delete, {"secret": browser.secret()}) == 303
    names = [fields["name"] for command, fields in mount.asked if command == "delete"]
    assert names == ["a", "b\udcff", "c<b>'\"\n"]
    assert browser("/snapshots") == 200
    assert "c&lt;b&gt;&#39;&#34;\\n is deleted" in browser.text


def test_names_of_any_bytes_are_found_by_their_beginning(mount: Mount) -> None:
    browser = Browser(mount)
    assert browser("/v1/snapshots?prefix=b%FF") == 200
    assert [row["name"] for row in json.loads(browser.text)["snapshots"]] == ["b\udcff"]
    assert browser("/snapshots?prefix=b%FF&label=%FE") == 200
    assert 'value="b?"' in browser.text
    assert "There are none like that" in browser.text
    assert browser("/snapshots?prefix=b%FF") == 200
    assert "sort=size&amp;order=down&amp;prefix=b%FF" in browser.text
    assert re.findall(r'<a class="name" href="([^"]+)"', browser.text) == ["/snapshot/b%FF"]


def test_labels_are_added_changed_and_removed_by_forms(mount: Mount) -> None:
    path = os.fsencode(mount.layout.stubs / "a")
    odd = {"plain": 'x"<y>', "<b>\udcff\n": "", "odd": "v\n\udcff"}
    labels.change(path, odd)
    browser = Browser(mount)
    assert browser("/label/a") == 200
    assert "&lt;b&gt;\\udcff\\n" in browser.text
    assert "<button" not in browser.text.partition("<main")[2].partition('<form class="card token"')[0]
    assert browser("/label/a", {"label": "k", "value": "v"}) == 401
    browser.log_in()
    assert browser("/label/a") == 200
    known = re.findall(r'name="known" value="([^"]+)"', browser.text)
    assert sorted(known) == ["%3Cb%3E%FF%0A", "odd", "plain"]
    assert 'value="x&#34;&lt;y&gt;"' in browser.text
    assert browser.text.count('name="value"') == 3  # of the odd one nobody can type the value
    for bad in ({"label": "k", "value": "v"}, {"label": "k", "secret": "x"}):
        assert browser("/label/a", bad) == 403
    assert mount.changes == []
    secret = {"secret": browser.secret()}
    for form, change in (
        ({"label": "new", "value": "a b"}, {"new": "a b"}),
        ({"label": "bare"}, {"bare": ""}),
        ({"known": "plain", "value": "other"}, {"plain": "other"}),
        ({"known": "%3Cb%3E%FF%0A", "value": "", "remove": "1"}, {"<b>\udcff\n": None}),
    ):
        assert browser("/label/a", {**secret, **form}) == 303
        assert browser.headers["location"] == "/label/a"
        assert mount.asked[-1] == ("label", {"name": "a", "changes": change})
    assert browser("/label/a") == 200
    assert "&lt;b&gt;\\udcff\\n is removed." in browser.text
    assert browser("/label/none", {**secret, "label": "k"}) == 404
    assert browser(f"/label/a?secret={secret['secret']}&label=k&value=v") == 200
    assert mount.changes == ["label"] * 4


def test_what_cannot_be_read_any_more_can_be_deleted(mount: Mount) -> None:
    stub = mount.layout.stubs / "a"
    os.truncate(stub, 20)
    os.mkfifo(mount.layout.stubs / "fifo")
    browser = Browser(mount)
    assert browser("/snapshots") == 200
    assert 'href="/delete/a" aria-label="Delete a"' in browser.text
    assert browser("/delete/a") == 200
    assert "It cannot be read: stub " in browser.text
    browser.log_in()
    assert browser("/delete/a") == 200
    assert "Delete it" in browser.text
    assert browser("/delete/a", {"secret": browser.secret()}) == 303
    assert mount.asked[-1] == ("delete", {"name": "a"})
    (mount.layout.stubs / "link").symlink_to(mount.layout.stubs / "b")
    for other in ("fifo", "link"):  # they are not ours to delete
        assert browser(f"/delete/{other}") == 500
        assert "move it away" in browser.text


def test_a_mount_that_is_silent_keeps_nobody_waiting_for_ever(mount: Mount) -> None:
    source = Source(mount.layout, Score(DEFAULT))
    source.patience = 0.01
    mount.app = create_app(source)
    browser = Browser(mount)
    with socket.socket(socket.AF_UNIX) as listener, control.reachable(mount.layout.control) as address:
        listener.bind(address)
        listener.listen()
        for path in ("/", "/gc", "/logs", "/v1/status", "/metrics"):
            assert browser(path) == 503, path
            assert "does not answer" in browser.text


def test_a_row_shows_a_bounded_number_of_labels_and_the_page_all(mount: Mount) -> None:
    labels.change(os.fsencode(mount.layout.stubs / "a"), {f"label-{number:02}": "" for number in range(20)})
    browser = Browser(mount)
    assert browser("/snapshots") == 200
    assert browser.text.count('<span class="label">') == 8
    assert "and 12 more" in browser.text
    assert browser("/label/a") == 200
    assert browser.text.count('<span class="label">') == 20


def test_what_cannot_be_is_told_on_a_page(mount: Mount) -> None:
    browser = Browser(mount)
    for path in ("/snapshot/..%2F..%2Fetc", "/snapshot/a//b", "/delete/.kvtool/x"):
        assert browser(path) == 400
        assert browser.text.startswith("<!doctype html>")
    assert browser("/snapshots?limit=1000") == 422
    assert browser.text.startswith("<!doctype html>")


def test_a_snapshot_that_is_being_saved_for_the_first_time_is_not_there_yet(mount: Mount) -> None:
    stubs.create(mount.layout, os.fsencode(mount.layout.stubs / "new"), 0o600, None, None)
    browser = Browser(mount)
    for path in ("/snapshot/new", "/delete/new", "/v1/snapshots/new", "/v1/chunks/new"):
        assert browser(path) == 404, path
        assert "new is being saved for the first time" in browser.text
    assert browser("/v1/unique-bytes?name=a&name=new") == 404


def test_each_page_is_closed_to_scripts_and_other_hosts(mount: Mount) -> None:
    browser = Browser(mount)
    for path in ("/snapshots", "/nothing", "/login"):
        browser(path)
        policy = browser.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "form-action 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert browser.headers["cache-control"] == "no-store"
        assert browser.headers["x-content-type-options"] == "nosniff"
        assert "<script" not in browser.text
        assert "style=" not in browser.text
