"""Where the HTTP API listens, as text."""

import pytest

from kvtool.core.address import is_loopback, join, parse
from kvtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8700", "127.0.0.1", 8700),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("kv-1.example.net:80", "kv-1.example.net", 80),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse(text) == (host, port)
    assert join(host, port) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8700",
        ":8700",
        "127.0.0.1",
        "::1:80",
        "[::1]",
        "[x]:1",
        "[1.2.3.4]:1",
        "a:65536",
        "a:-1",
        "a b:1",
        "a:1\n",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "loopback", ""]))  # noqa: S104
