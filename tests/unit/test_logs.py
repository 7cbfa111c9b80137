"""Which lines of a log fail a test."""

from tests.logs import alarms, unexpected


def test_warnings_and_tracebacks_are_alarms() -> None:
    lines = [
        "kvtool: INFO all is well",
        "kvtool: ready: /a on /b",
        "kvtool: WARNING the disk is slow",
        "kvtool: ERROR a: chunk 12 is missing",
        "Traceback (most recent call last):",
        "no WARNING: not at the start",
    ]
    assert alarms(lines) == lines[2:5]


def test_what_was_expected_is_no_surprise() -> None:
    assert unexpected(["one thing", "another thing"], ["^one"]) == ["another thing"]
    assert unexpected(["one thing"], []) == ["one thing"]
