"""Log lines of a mount's processes on their way to the mount's ring."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from kvtool.fs.logring import LogRing
from kvtool.store import child, relay
from tests.synth import random_bytes

LIMIT = 30.0


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The mount's end; whatever `child.start` starts inherits the other."""
    monkeypatch.setattr(relay, "_ours", None)
    ours = relay.open_receiver()
    yield ours
    ours.close()
    assert relay._ours is not None
    relay._ours.close()


def say(sender: relay.Sender, text: str, level: int = logging.WARNING) -> None:
    sender.handle(logging.LogRecord("kvtool.x", level, __file__, 1, text, (), None))


def taken(receiver: socket.socket) -> LogRing:
    """A ring that has taken all that has arrived."""
    ring = LogRing()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring.receive, receiver.dup())
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    return ring


def run(tmp_path: Path, code: str, **pipes: int) -> "subprocess.CompletedProcess[str]":
    """Runs `code` as a process that a mount starts, and returns what it said on standard error."""
    (tmp_path / "talker.py").write_text(
        f"from kvtool.store import child\nchild.begin(child.parser('talker'))\n{code}"
    )
    starter = (
        "import logging, sys; from kvtool.store import child, relay; import socket\n"
        "relay._ours = socket.socket(fileno=int(sys.argv[1]))\n"
        "logging.getLogger().setLevel(logging.INFO)\n"
        "print(child.start('talker', []).wait())\n"
    )
    fd = relay.descriptor()
    assert fd is not None
    path = os.pathsep.join([str(tmp_path), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", starter, str(fd)],
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=[fd],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )


def test_a_line_of_a_process_is_on_standard_error_and_in_the_ring_once(
    receiver: socket.socket, tmp_path: Path
) -> None:
    done = run(
        tmp_path,
        "import logging\n"
        "logging.getLogger('kvtool.z').debug('too much')\n"
        "logging.getLogger('kvtool.a').info('one\\n%s', '\\udcff')\n"
        "logging.getLogger('kvtool.b').error('two')\n",
    )
    assert (done.stdout, done.stderr) == ("0\n", "kvtool: INFO one\\n\\udcff\nkvtool: ERROR two\n")
    ring = taken(receiver)
    found = ring.read(level="debug", since=0, after=0, limit=9)["lines"]
    assert [(line["level"], line["logger"], line["message"]) for line in found] == [
        ("info", "talker:kvtool.a", "one\n\udcff"),
        ("error", "talker:kvtool.b", "two"),
    ]
    assert ring.counts == {"info": 1, "error": 1}


def test_what_ends_a_process_is_in_both_as_well(receiver: socket.socket, tmp_path: Path) -> None:
    done = run(tmp_path, "1 / 0\n")
    assert done.stdout == "1\n"
    assert done.stderr.startswith("kvtool: ERROR talker ended by a bug\nTraceback")
    assert done.stderr.count("ZeroDivisionError") == 1
    (line,) = taken(receiver).read(level="error", since=0, after=0, limit=9)["lines"]
    assert line["message"].startswith("talker ended by a bug\nTraceback")
    assert "ZeroDivisionError" in line["message"]


def test_a_process_that_dies_in_the_middle_of_a_line_leaves_no_half_of_it(
    receiver: socket.socket, tmp_path: Path
) -> None:
    done = run(
        tmp_path,
        "import logging, os, sys\n"
        "logging.getLogger('kvtool.a').warning('whole')\n"
        "os.write(2, b'kvtool: WARNING ha')\n"
        "os.kill(os.getpid(), 9)\n",
    )
    assert (done.stdout, done.stderr) == ("-9\n", "kvtool: WARNING whole\nkvtool: WARNING ha")
    found = taken(receiver).read(level="debug", since=0, after=0, limit=9)["lines"]
    assert [line["message"] for line in found] == ["whole"]


def test_a_flood_waits_for_nobody_and_is_counted(receiver: socket.socket) -> None:
    assert relay._ours is not None
    sender = relay.Sender(relay._ours, "talker")
    for number in range(3000):
        say(sender, f"{number}", logging.ERROR if number % 3 else logging.WARNING)
    kept = taken(receiver)
    assert 0 < sum(kept.counts.values()) < 3000
    say(sender, "the next")
    last = json.loads(receiver.recv(1 << 16))
    assert last["text"] == "the next"
    missed = dict(last["missed"])
    assert kept.counts["warning"] + missed[logging.WARNING] == 1000
    assert kept.counts["error"] + missed[logging.ERROR] == 2000
    say(sender, "and one more")
    assert json.loads(receiver.recv(1 << 16))["missed"] == []


def test_what_was_missed_is_counted_by_level_and_as_lost(receiver: socket.socket) -> None:
    assert relay._ours is not None
    sender = relay.Sender(relay._ours, "talker")
    say(sender, "first")
    sender._missed.update({logging.ERROR: 7})
    say(sender, "second")
    ring = taken(receiver)
    assert ring.counts == {"warning": 2, "error": 7}
    found = ring.read(level="debug", since=0, after=0, limit=9)
    assert [line["number"] for line in found["lines"]] == [1, 9]
    assert (found["last"], found["lost"]) == (9, 7)
    assert ring.read(level="error", since=0, after=8, limit=9)["lost"] == 0


@pytest.mark.parametrize("text", ["x" * 10_000, "\U0001f600" * 10_000, "\udcff" * 10_000, "\0" * 10_000])
def test_a_long_line_arrives_cut(receiver: socket.socket, text: str) -> None:
    assert relay._ours is not None
    say(relay.Sender(relay._ours, "talker"), text)
    (line,) = taken(receiver).read(level="debug", since=0, after=0, limit=9)["lines"]
    assert line["message"] == text[: relay.TEXT_MAX]


def test_nobody_at_the_other_end_is_no_error(receiver: socket.socket) -> None:
    assert relay._ours is not None
    sender = relay.Sender(relay._ours, "talker")
    receiver.close()
    say(sender, "into the void")


def test_a_failure_is_the_last_line_or_there_is_none() -> None:
    assert child.failure_in(b'{"failed": "no space"}\n') == "no space"
    for line in (b"", b'{"fail', b"{}\n", b"[]\n", b"1\n", random_bytes(100)):
        assert child.failure_in(line) == "its process ended unasked"
